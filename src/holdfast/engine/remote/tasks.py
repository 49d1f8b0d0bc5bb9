"""Remote effects, from the workers' side: claim, heartbeat, complete, fail.

Each verb reads a task, has the kernel decide, and writes what it decided; if another process was first it looks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from msgspec import DecodeError, Struct

from holdfast.engine.api.scope import Scope
from holdfast.engine.remote.task_watch import TaskWatch
from holdfast.errors import UnknownTask, UsageError
from holdfast.events import PartFailed
from holdfast.kernel import keys, tasks
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.leases import checked_ttl
from holdfast.kernel.runs import ENDED
from holdfast.kernel.tasks import (
    Json,
    Task,
    TaskBeat,
    TaskClaim,
    TaskClaimed,
    TaskOutcome,
    TaskPlace,
    TaskRaised,
    TaskReturned,
)
from holdfast.kernel.times import Millis
from holdfast.kernel.units import Duration, milliseconds

CLAIM_MAX = 100
EFFECTS_MAX = 100
LEASE_MS_MAX = Millis(3_600_000)

T = TypeVar("T")
Decide = Callable[[Document], Awaitable[tuple[T, Writing | None]]]


class Handed(Struct, frozen=True):
    """A task in the hands of a worker."""

    place: TaskPlace
    task: Task
    claim: TaskClaimed


class Tasks:
    """The verbs of remote workers, on the tasks of one namespace."""

    def __init__(self, scope: Scope, task_watch: TaskWatch) -> None:
        self._scope = scope
        self._store = scope.store
        self._task_watch = task_watch

    async def claim(
        self, effects: Sequence[str], *, worker: str, limit: int = 1, lease: Duration = "30s", wait: Duration = 0
    ) -> list[Handed]:
        """Up to `limit` tasks of these effects, oldest first; waits for the first one as long as it may."""
        self._scope.require_open()
        keys.checked(worker, what="worker name")
        if not 0 < len(effects) <= EFFECTS_MAX:
            raise UsageError(f"{len(effects)} effects cannot be served", hint=f"Name 1 to {EFFECTS_MAX}.")
        if not 0 < limit <= CLAIM_MAX:
            raise UsageError(f"limit={limit} is out of range", hint=f"Use 1 to {CLAIM_MAX}.")
        lease_ms = checked_ttl(milliseconds(lease))
        if lease_ms > LEASE_MS_MAX:
            raise UsageError(f"a lease of {lease_ms} ms is too long", hint="Use 1 h at most; heartbeats renew it.")
        until_ms = self._store.now_ms() + milliseconds(wait)
        with self._task_watch.seek(self._scope.namespace, effects) as seeker:
            while True:
                seeker.woken.clear()
                by = TaskClaim(worker, self._scope.ids.nonce(), lease_ms)
                handed, due = await self._claimed(seeker.kinds, by, limit)
                left_ms = until_ms - self._store.now_ms()
                if handed or left_ms <= 0:
                    break
                if not due:
                    await _woken(seeker.woken, left_ms)
        for document in due[limit:]:  # it may have been this seeker that was woken for it
            self._task_watch.wake_seeker(document)
        return handed

    async def _claimed(self, kinds: Sequence[str], by: TaskClaim, limit: int) -> tuple[list[Handed], list[Document]]:
        """What could be claimed, and what was due just then: one more than could be claimed, if there was."""
        due = await self._store.due(self._scope.namespace, kinds, limit + 1)
        found = await self._readable(due[:limit])
        living, now_ms = await self._living([task.run_id for _, task in found]), self._store.now_ms()
        decided = [
            tasks.claim(document, by, run_lives=task.run_id in living, now_ms=now_ms) for document, task in found
        ]
        writings = [writing for writing in decided if writing is not None]
        answers = await self._task_watch.write(writings)
        stored = [writing.document for writing, is_stored in zip(writings, answers, strict=True) if is_stored]
        return [each for document in stored if (each := _handed(document)) is not None], due

    async def _readable(self, due: Sequence[Document]) -> list[tuple[Document, Task]]:
        """Those that can be read. One that cannot must not hold up the others: the oldest comes first, forever."""
        found: list[tuple[Document, Task]] = []
        for document in due:
            try:
                found.append((document, tasks.task_of(document)))
            except (DecodeError, UnicodeDecodeError) as error:
                why = f"task {tasks.place_of(document).name} cannot be read: {error}"
                self._scope.emit(PartFailed("claim", f"{why}; it is set aside for a while"))
                await self._task_watch.write([tasks.set_aside(document, now_ms=self._store.now_ms())])
        return found

    async def _living(self, run_ids: list[str]) -> set[str]:
        """Which of these runs have not ended."""
        if not run_ids:
            return set()
        return {run.id for run in await self._store.runs(run_ids) if run.status not in ENDED}

    async def heartbeat(self, name: str, *, fence: int, details: bytes | None = None) -> TaskBeat:
        """The worker goes on, and has come this far (as JSON).

        What is returned says whether the outcome is still wanted, and until when its lease lasts.
        """
        text = None if details is None else self._checked(details, f"the details of task {name}")

        async def decide(current: Document) -> tuple[TaskBeat, Writing | None]:
            run_id = tasks.task_of(current).run_id
            lives = run_id in await self._living([run_id])
            now_ms = self._store.now_ms()
            beat = tasks.heartbeat(current, fence=fence, details=text, run_lives=lives, now_ms=now_ms)
            return beat, beat.writing

        return await self._decided(name, decide)

    async def complete(self, name: str, *, fence: int, result: bytes) -> None:
        """The effect has been performed, with this result (as JSON). Said twice, it is accepted twice."""
        await self._finish(name, TaskReturned(self._checked(result, f"the result of task {name}")), fence)

    async def fail(
        self,
        name: str,
        *,
        fence: int,
        type: str,
        message: str,
        retry: bool = True,
        retry_after: Duration | None = None,
    ) -> None:
        """The attempt has failed; the retry policy of the effect decides what follows."""
        after_ms = None if retry_after is None else milliseconds(retry_after)
        await self._finish(name, TaskRaised(type, message, retry, after_ms), fence)

    async def _finish(self, name: str, outcome: TaskOutcome, fence: int) -> None:
        async def decide(current: Document) -> tuple[None, Writing | None]:
            return None, tasks.finish(current, outcome, fence=fence, now_ms=self._store.now_ms())

        await self._decided(name, decide)

    def _checked(self, sent: bytes, what: str) -> Json:
        """What was sent, if it can be kept: JSON may be nested deeper, or be larger, than can be read."""
        self._scope.codec.encode(self._scope.codec.decode(sent, Any), what=what)
        return sent.decode()

    async def _decided(self, name: str, decide: Decide[T]) -> T:
        self._scope.require_open()
        place = tasks.place_named(self._scope.namespace, name)
        while True:
            current = await self._task_watch.read(place)
            if current is None:
                raise UnknownTask(name)
            answer, writing = await decide(current)
            if writing is None or (await self._task_watch.write([writing]))[0]:
                return answer


async def _woken(bell: asyncio.Event, within_ms: Millis) -> None:
    try:
        async with asyncio.timeout(within_ms / 1000):
            await bell.wait()
    except TimeoutError:
        pass


def _handed(document: Document) -> Handed | None:
    """None if it was withdrawn rather than claimed: it is not wanted any more."""
    task = tasks.task_of(document)
    return Handed(tasks.place_of(document), task, task.state) if isinstance(task.state, TaskClaimed) else None
