"""The heartbeats of a run's effects: taken from any thread, written by the next commit, the newest details winning."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from holdfast.engine.desk import Desk
from holdfast.engine.steps import Command
from holdfast.errors import LeaseLost
from holdfast.kernel.changes import Beat, Change, Run
from holdfast.kernel.documents import Document


class AttemptScope:
    """One attempt of an effect, as its body sees it."""

    __slots__ = ("_command", "_heartbeats", "abandoned", "attempt", "dropped", "key", "task")

    def __init__(self, command: Command, heartbeats: Heartbeats) -> None:
        self.dropped = False  # nobody waits for the outcome any more; it is still recorded
        self.abandoned = False  # the run is not here any more: nobody could record it
        self.task: Document | None = None  # of a remote effect, once its outcome is there
        self.key = command.intent.key
        self.attempt = command.failures + 1
        self._command = command
        self._heartbeats = heartbeats

    def last_beat(self) -> Any:
        return self._heartbeats.last(self._command.step)

    def beat(self, details: Any) -> None:
        self._heartbeats.beat(self._command, self.attempt, details)


class Heartbeats:
    """What the steps of one run have said last."""

    def __init__(self, desk: Desk, run: Run, beats: tuple[Beat, ...]) -> None:
        self._desk = desk
        self._run = run
        self._newest = {beat.step: beat.details for beat in beats} if beats else dict[str, bytes]()
        self._unwritten: set[str] = set()
        self._writing: set[asyncio.Task[None]] = set()
        self._written = 0
        self._loop_thread = threading.get_ident()

    def last(self, step: str) -> Any:
        """What the last heartbeat of the step said, in whatever attempt."""
        details = self._newest.get(step)
        return None if details is None else self._desk.codec.decode(details, Any)

    def beat(self, command: Command, attempt: int, details: Any) -> None:
        """Take a heartbeat of this attempt, in whatever thread it runs."""
        data = self._desk.codec.encode(details, what="the details of heartbeat()")
        if attempt != command.failures + 1 or command.future.done():
            return  # a thread that goes on after its attempt was given up
        self._newest[command.step] = data
        if threading.get_ident() == self._loop_thread:
            self._write_soon(command.step)
        else:
            self._desk.loop.call_soon_threadsafe(self._write_soon, command.step)

    def _write_soon(self, step: str) -> None:
        if step not in self._unwritten:
            self._unwritten.add(step)
            task = self._desk.loop.create_task(self._write(step))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    async def _write(self, step: str) -> None:
        self._unwritten.discard(step)
        self._written += 1
        change_id = f"{self._run.id}/{self._run.epoch}.beat{self._written}"
        try:
            await self._desk.commit(Change(change_id, self._run.fence, beats=(Beat(step, self._newest[step]),)))
        except LeaseLost:
            return  # the run is somebody else's; the worker has said so
