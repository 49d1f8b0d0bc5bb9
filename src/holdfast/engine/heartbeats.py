"""The heartbeats of a run's effects: taken from any thread, written by the next commit, the newest details winning."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.engine.desk import Desk
from holdfast.engine.machine import Command
from holdfast.errors import LeaseLost
from holdfast.kernel.changes import Beat, Change, Run


class Heartbeats:
    """What the steps of one run have said last."""

    def __init__(self, desk: Desk, run: Run, beats: Iterable[Beat]) -> None:
        self._desk = desk
        self._run = run
        self._newest = {beat.step: beat.details for beat in beats}
        self._unwritten: set[str] = set()
        self._writing: set[asyncio.Task[None]] = set()
        self._written = 0

    def last(self, step: str) -> Any:
        """What the last heartbeat of the step said, in whatever attempt."""
        details = self._newest.get(step)
        return None if details is None else self._desk.codec.decode(details, Any)

    def of(self, command: Command) -> Callable[[Any], None]:
        """The function that records the heartbeats of the attempt that begins now."""
        desk, attempt, loop_thread = self._desk, command.failures, threading.get_ident()

        def beat(details: Any) -> None:
            data = desk.codec.encode(details, what="the details of heartbeat()")
            if threading.get_ident() == loop_thread:
                self._take(command, attempt, data)
            else:
                desk.loop.call_soon_threadsafe(self._take, command, attempt, data)

        return beat

    def _take(self, command: Command, attempt: int, data: bytes) -> None:
        if attempt != command.failures or command.future.done():
            return  # a thread that goes on after its attempt was given up
        self._newest[command.step] = data
        if command.step not in self._unwritten:
            self._unwritten.add(command.step)
            task = self._desk.loop.create_task(self._write(command.step))
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
