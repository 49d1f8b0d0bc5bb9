"""Remote effects, from the run's side: an attempt is put up as a task, and its outcome waited for.

Rules
- A task that is out already is joined: a former holder of the run has put it up.
- Where the attempt is dropped, a worker that has claimed it may still say how it ended.
- Where it is abandoned the task stays as it is: the next holder of the run joins it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from msgspec import Struct

from holdfast.engine.attempts import AttemptOutcome, AttemptRaised, AttemptReturned, EffectAttempt, LeaseTrust
from holdfast.engine.failures import rebuilt
from holdfast.engine.pace import Pace
from holdfast.engine.remote.task_watch import TaskSubscription, TaskWatch
from holdfast.errors import (
    NotPerformed,
    NotSerializable,
    Permanent,
    RetryAfter,
    TimedOut,
    TransientError,
    UsageError,
)
from holdfast.events import Emit, StoreTroubled
from holdfast.kernel import tasks
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.journal import Failure
from holdfast.kernel.tasks import Json, LookAgain, NoOutcome, Task, TaskOutcome, TaskPlace, TaskRaised, TaskReturned
from holdfast.kernel.times import Instant, Millis
from holdfast.pack import Effect
from holdfast.ports.clock import Clock
from holdfast.ports.codec import Codec
from holdfast.ports.store import Store


class RemoteAttempt(Struct, frozen=True):
    """An attempt to be performed elsewhere. `in_doubt`: it must happen once, and may have been put up before."""

    effect: Effect[..., Any]
    place: TaskPlace
    task: Task
    in_doubt: bool
    timeout_ms: Millis | None
    deadline_at_ms: Instant | None


class RemoteEffects:
    """Has attempts performed by the remote workers that claim them."""

    def __init__(
        self,
        store: Store,
        task_watch: TaskWatch,
        *,
        codec: Codec,
        clock: Clock,
        gate: LeaseTrust,
        emit: Emit,
        pace: Pace,
    ) -> None:
        self._store = store
        self._task_watch = task_watch
        self._codec = codec
        self._clock = clock
        self._gate = gate
        self._emit = emit
        self._pace = pace
        self._going: set[asyncio.Future[list[bool]]] = set()

    async def attempt(self, wanted: RemoteAttempt, scope: EffectAttempt) -> AttemptOutcome:
        """Put the attempt up, or join it if it is out already, and wait for its outcome."""
        with self._task_watch.subscribe(wanted.place) as subscription:
            outcome: AttemptOutcome | NoOutcome | None = None
            while outcome is None:
                try:
                    outcome = await self._outcome(wanted, scope, subscription)
                except asyncio.CancelledError:
                    if scope.abandoned or not scope.dropped:
                        raise
                except BaseException as error:  # noqa: BLE001 - a task that cannot be read, say; the run must hear of it
                    outcome = AttemptRaised(error)
        return _of_lost(wanted.effect, outcome) if isinstance(outcome, NoOutcome) else outcome

    async def _outcome(
        self, wanted: RemoteAttempt, scope: EffectAttempt, subscription: TaskSubscription
    ) -> AttemptOutcome | NoOutcome | None:
        """How it ended; None if the store was in trouble meanwhile."""
        try:
            if subscription.current is None:
                lost = await (self._find(wanted, subscription) if scope.dropped else self._put_up(wanted, subscription))
                if lost is not None:
                    return lost
            return await self._ended(wanted, scope, subscription)
        except TransientError as error:
            self._emit(StoreTroubled(str(error)))
            await self._clock.pause(self._pace.trouble_pause_seconds)
            return None

    async def _find(self, wanted: RemoteAttempt, subscription: TaskSubscription) -> None:
        subscription.update(await self._task_watch.read(wanted.place))

    async def _put_up(self, wanted: RemoteAttempt, subscription: TaskSubscription) -> NoOutcome | None:
        while True:
            current, now_ms = await self._task_watch.read(wanted.place), self._store.now_ms()
            writing = tasks.offer(current, wanted.place, wanted.task, in_doubt=wanted.in_doubt, now_ms=now_ms)
            if writing is None:
                subscription.update(current)
                return None
            if isinstance(writing, NoOutcome):
                return writing
            if (await self._task_watch.write([writing]))[0]:
                return None

    async def _ended(
        self, wanted: RemoteAttempt, scope: EffectAttempt, subscription: TaskSubscription
    ) -> AttemptOutcome | NoOutcome:
        told = wanted.task.details
        while True:
            current, now_ms = subscription.current, self._store.now_ms()
            if current is not None:
                told = self._beaten(tasks.task_of(current).details, told, scope)
            match tasks.look(
                current,
                wanted=not scope.dropped,
                timeout_ms=wanted.timeout_ms,
                deadline_at_ms=wanted.deadline_at_ms,
                now_ms=now_ms,
            ):
                case Writing() as writing:
                    await self._gate.until_trusted()  # if the run is not ours any more, neither is its task
                    if not (await self._task_watch.write([writing]))[0]:
                        subscription.update(await self._task_watch.read(wanted.place))
                case LookAgain(until_ms=until_ms):
                    await subscription.changed(None if until_ms is None else until_ms - now_ms)
                case NoOutcome() as lost:
                    return lost
                case TaskReturned() | TaskRaised() as outcome:
                    scope.task = current
                    return self._attempt_outcome(wanted.effect, outcome)

    def _beaten(self, details: Json | None, told: Json | None, scope: EffectAttempt) -> Json | None:
        """Pass on what the worker's last heartbeat said, if that is news."""
        if details is not None and details != told:
            with contextlib.suppress(UsageError):  # what cannot be kept is of no use to the next attempt
                scope.beat(self._codec.decode(details.encode(), Any))
        return details

    async def drained(self, seconds: float) -> None:
        """Returns when nothing is waiting to be written, or when the time is over."""
        if self._going:
            await asyncio.wait(self._going, timeout=seconds)

    def let_go(self, current: Document) -> None:
        """Its outcome is recorded: it is of no further use. Nothing waits for that to be stored."""
        writing = asyncio.ensure_future(self._task_watch.write([tasks.heard(current, now_ms=self._store.now_ms())]))
        self._going.add(writing)
        writing.add_done_callback(self._gone)

    def _gone(self, writing: asyncio.Future[list[bool]]) -> None:
        self._going.discard(writing)
        if not writing.cancelled() and (error := writing.exception()) is not None:
            self._emit(StoreTroubled(str(error)))  # it is kept for longer, that is all

    def _attempt_outcome(self, effect: Effect[..., Any], outcome: TaskOutcome) -> AttemptOutcome:
        if isinstance(outcome, TaskRaised):
            return AttemptRaised(self._error_of(outcome))
        try:
            value = self._codec.decode(outcome.value.encode(), effect.signature.returns)
            return AttemptReturned(self._codec.encode(value, what=effect.result_name))
        except NotSerializable as error:
            why = error.__cause__ or error
            return AttemptRaised(
                NotSerializable(
                    f"{effect.result_name}, as a remote worker sent it, does not fit its annotation: {why}",
                    hint="Correct the worker, or the annotation of the effect.",
                )
            )
        except UsageError as error:
            return AttemptRaised(error)

    def _error_of(self, raised: TaskRaised) -> Exception:
        text = f"{raised.type}: {raised.message}"
        if not raised.retry:
            return Permanent(text)
        if raised.retry_after_ms is not None:
            return RetryAfter(raised.retry_after_ms / 1000, text)
        return rebuilt(Failure(raised.type, raised.message), self._codec)


def _of_lost(effect: Effect[..., Any], lost: NoOutcome) -> AttemptOutcome:
    if not lost.begun:
        why = "it was dropped" if lost.dropped else "its deadline was over"
        return AttemptRaised(NotPerformed(f"effect {effect.name} was not performed: {why} before a worker claimed it"))
    if lost.dropped:
        raise asyncio.CancelledError
    return AttemptRaised(TimedOut(f"effect {effect.name}, performed by a remote worker, did not end in time"))
