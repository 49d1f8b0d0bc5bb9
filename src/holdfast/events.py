"""What the engine reports: typed events. Logs, metrics, traces, live views and tests all read these."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Literal

from msgspec import Struct, field

from holdfast.kernel.runs import Run
from holdfast.kernel.times import EPOCH, NO_TIME, Instant, Millis
from holdfast.kernel.traces import lineage_of

__all__ = [
    "AskedInVain",
    "BatchCommitted",
    "BreakerChanged",
    "BreakerProbed",
    "CallDropped",
    "CancelRequested",
    "DecidesAlone",
    "DecidesTogether",
    "Deposed",
    "DutyFailed",
    "EffectBegan",
    "EffectGaveUp",
    "EffectHeld",
    "EffectPerformed",
    "EffectWillRetry",
    "Elected",
    "Event",
    "EvidenceWaived",
    "KeyWasReleased",
    "LaneSet",
    "LeaseWasLost",
    "LimitChecked",
    "LimitsCountedAgain",
    "LimitsFellBack",
    "MessagesRelayed",
    "NoticesPolled",
    "OutcomeUndeclared",
    "PartFailed",
    "ProcessEnded",
    "ProcessKilled",
    "ProcessStarted",
    "ReplicaStarted",
    "ReplicaStopped",
    "ReplyNotKept",
    "RequestOvertaken",
    "RequestReplayed",
    "RequestTakenOver",
    "ResourceNotClosed",
    "ResourceOpened",
    "RetryRequested",
    "RunAdmitted",
    "RunBlocked",
    "RunContinued",
    "RunDebounced",
    "RunEnded",
    "RunForked",
    "RunHandedOver",
    "RunJoined",
    "RunLetGo",
    "RunOvertaken",
    "RunParked",
    "RunResumed",
    "RunRetried",
    "RunSignalled",
    "RunSuspected",
    "RunTakenUp",
    "RunThrottled",
    "RunWaitsForVersion",
    "RunsClaimed",
    "RunsPruned",
    "RunsRescued",
    "SlotsMoved",
    "StepDecided",
    "StoreMayLose",
    "StoreTroubled",
    "ThreadGivenUp",
    "ThreadsUsedUp",
    "TimeLimitPassed",
    "UndoBegan",
]


class Event(Struct, frozen=True, gc=False):
    """Something happened."""


class ReplicaStarted(Event, frozen=True):
    owner: str
    workflows: tuple[str, ...]


class ReplicaStopped(Event, frozen=True):
    owner: str
    given_back: int


class RunAdmitted(Event, frozen=True):
    run_id: str
    workflow: str
    key: str | None


class RunJoined(Event, frozen=True):
    """A start met a live key: nothing was created."""

    run_id: str
    workflow: str
    key: str | None


class RunParked(Event, frozen=True):
    """A run was admitted and has to wait for its turn in a lane."""

    run_id: str
    workflow: str
    lane: str


class LaneSet(Event, frozen=True):
    """A person has set a lane, which is so from now on."""

    lane: str
    width: int
    paused: bool
    by: str = ""


class RunDebounced(Event, frozen=True):
    """A start gave its arguments to a run that has not begun, and put it off."""

    run_id: str
    workflow: str
    key: str | None


class RunThrottled(Event, frozen=True):
    """A run was admitted that its throttle lets go only after `late_ms`."""

    run_id: str
    workflow: str
    late_ms: Millis


class RunsClaimed(Event, frozen=True):
    """Runs were taken up. `waited_ms` is how long the first of them had been ready."""

    count: int
    waited_ms: Millis = NO_TIME


class AskedInVain(Event, frozen=True):
    """A part of a worker asked the store whether there is something to do, and there was nothing."""

    part: str


class RunLetGo(Event, frozen=True):
    run_id: str
    wake_at_ms: Instant | None = field(name="wake_ms")


class RunEnded(Event, frozen=True):
    """`parent`, `root` and `traceparent` say what it came from, if it came from something."""

    run_id: str
    workflow: str
    status: str
    error: str = ""
    namespace: str = ""
    key: str | None = None
    created_at_ms: Instant = field(default=EPOCH, name="created_ms")
    elapsed_ms: Millis = NO_TIME
    parent: str = ""
    root: str = ""
    traceparent: str = ""


def ended(run: Run, error: str = "") -> RunEnded:
    """The event for a run that has ended."""
    lineage = lineage_of(run.attributes)
    return RunEnded(
        run.id,
        run.workflow,
        run.status,
        error,
        run.namespace,
        run.key,
        run.created_at_ms,
        (run.finished_at_ms or run.created_at_ms) - run.created_at_ms,
        lineage.parent,
        lineage.root,
        lineage.traceparent,
    )


class RunBlocked(Event, frozen=True):
    run_id: str
    code: str
    message: str
    workflow: str = ""
    key: str | None = None


class CallDropped(Event, frozen=True):
    """The code of a run called an effect or a workflow and did not await it, so nothing was performed."""

    run_id: str
    workflow: str
    call: str
    line: str


class RunRetried(Event, frozen=True):
    run_id: str


class StepDecided(Event, frozen=True):
    """A person has said what came of a step in doubt."""

    run_id: str
    step: str
    by: str


class RetryRequested(Event, frozen=True):
    """A person wants the next attempt of a step to begin at once."""

    run_id: str
    step: str
    by: str


class RunContinued(Event, frozen=True):
    """It continued as new."""

    run_id: str
    generation: int


class RunResumed(Event, frozen=True):
    run_id: str


class RunForked(Event, frozen=True):
    run_id: str
    from_run: str
    workflow: str = ""


class RunSignalled(Event, frozen=True):
    run_id: str
    hook: str


class CancelRequested(Event, frozen=True):
    run_id: str
    reason: str


class TimeLimitPassed(Event, frozen=True):
    """A run has taken longer than it may, and is ended."""

    run_id: str
    workflow: str
    timeout_ms: Millis


class UndoBegan(Event, frozen=True):
    """The code of a run has failed, and its workflow wants what it did to be undone before the run fails."""

    run_id: str
    workflow: str
    error: str


class KeyWasReleased(Event, frozen=True):
    run_id: str
    key: str


class OutcomeUndeclared(Event, frozen=True):
    """A cancellation ended in a way that the workflow does not declare."""

    run_id: str
    workflow: str
    outcome: str


class RunOvertaken(Event, frozen=True):
    """A late write was refused: another process has the run. The outcome here is void."""

    run_id: str


class EffectBegan(Event, frozen=True):
    run_id: str
    step: str
    attempt: int
    effect: str = ""


class EffectPerformed(Event, frozen=True):
    """An effect has returned; its record is about to be committed. `took_ms` is None if it was only reconciled."""

    run_id: str
    step: str
    attempt: int
    effect: str = ""
    took_ms: float | None = None


class EffectWillRetry(Event, frozen=True):
    run_id: str
    step: str
    attempt: int
    delay_ms: Millis
    error: str
    effect: str = ""
    took_ms: float | None = None


class EffectGaveUp(Event, frozen=True):
    run_id: str
    step: str
    attempt: int
    error: str
    effect: str = ""
    took_ms: float | None = None


class ThreadGivenUp(Event, frozen=True):
    """A sync function is still running although its time is over, or its run is gone.

    `given_up` is how many there are in this process. Its thread cannot be interrupted; it is replaced. A `once` effect
    is waited for all the same.
    """

    run_id: str
    step: str
    effect: str
    given_up: int


class ThreadsUsedUp(Event, frozen=True):
    """So many threads were given up that a sync effect has to wait until one of them ends."""

    given_up: int


class ResourceOpened(Event, frozen=True):
    """An effect was the first in this process to use a resource."""

    resource: str


class ResourceNotClosed(Event, frozen=True):
    """Closing a resource raised, or took too long, while the worker stopped. The process goes on to stop."""

    resource: str
    error: str


class BatchCommitted(Event, frozen=True):
    changes: int


class StoreTroubled(Event, frozen=True):
    """A store call failed; it is made again."""

    message: str


class StoreMayLose(Event, frozen=True):
    """The store was opened with settings under which something that it has confirmed may be lost."""

    message: str


class NoticesPolled(Event, frozen=True):
    """What other processes commit is looked for here, every few milliseconds, as they cannot tell it; and why."""

    reason: str


class LeaseWasLost(Event, frozen=True):
    """`age_ms` is how long ago it was last renewed, by this process's own clock.

    One that is lost long before it would have expired was taken away, or the store has forgotten it.
    """

    owner: str
    dropped: int
    age_ms: Millis = NO_TIME


class RunsRescued(Event, frozen=True):
    run_ids: tuple[str, ...]


class RunSuspected(Event, frozen=True):
    """`takeovers` workers in a row died or lost their lease under this run. It is executed beside no other such run."""

    run_id: str
    workflow: str
    takeovers: int


class RunHandedOver(Event, frozen=True):
    """The code of this worker does not fit the run, or not as well: the worker `to` has other code, and goes on."""

    run_id: str
    workflow: str
    to: str
    why: str


class RunTakenUp(Event, frozen=True):
    """A run that was blocked because code contradicted its journal is tried with the code of this worker."""

    run_id: str
    workflow: str


class RunWaitsForVersion(Event, frozen=True):
    """A run of a pinned version was given back: no live worker serves that version."""

    run_id: str
    workflow: str
    version: str


class RunsPruned(Event, frozen=True):
    count: int


class MessagesRelayed(Event, frozen=True):
    """Messages between shards were delivered that a process had left behind."""

    count: int


class Elected(Event, frozen=True):
    """This process leads a duty from now on. `term` grows from leader to leader."""

    duty: str
    term: int


class Deposed(Event, frozen=True):
    """This process no longer leads a duty: its lease could not be renewed, or another process has it."""

    duty: str
    term: int


class LimitChecked(Event, frozen=True):
    """A limit was asked. `limit` is which one: address, api_key, tenant, start, or own, of `hf.limit`."""

    limit: str
    verdict: Literal["granted", "refused"]


class LimitsFellBack(Event, frozen=True):
    """The store does not count: this process limits by itself, to its share as one of so many `replicas`."""

    why: str
    replicas: int


class LimitsCountedAgain(Event, frozen=True):
    """The store counts again."""


class EffectHeld(Event, frozen=True):
    """An effect may not begin yet: `rule` is "breaker" or "limit". It uses up no attempt, and its run needs no slot."""

    run_id: str
    step: str
    rule: str
    name: str


class BreakerChanged(Event, frozen=True):
    """A circuit breaker is "open", "half-open" or "closed" from now on, as this process sees it.

    `until_ms` says when an effect is tried again, at the earliest; `by` who has changed it by hand.
    """

    name: str
    state: str
    until_ms: Instant | None = None
    by: str = ""


class BreakerProbed(Event, frozen=True):
    """A call of this process is tried, to see whether what a breaker stands before works again."""

    name: str


class SlotsMoved(Event, frozen=True):
    """This process has so many of the slots of a limit from now on."""

    name: str
    slots: int
    width: int


class DecidesAlone(Event, frozen=True):
    """The store is away: this process goes on by what it knows of a breaker or a limit, and tells no other."""

    rule: str
    name: str
    message: str


class DecidesTogether(Event, frozen=True):
    """The store is back: a breaker or a limit is shared with other processes again."""

    rule: str
    name: str


class RequestReplayed(Event, frozen=True):
    """A repeated request got the response of the first one."""

    method: str
    path: str
    status: int


class RequestTakenOver(Event, frozen=True):
    """A request is executed again: the process that executed it first has not renewed its lease."""

    method: str
    path: str


class RequestOvertaken(Event, frozen=True):
    """A response came too late: another process has taken the request over. It is neither kept nor sent."""

    method: str
    path: str


class ReplyNotKept(Event, frozen=True):
    """The response to a request was sent but not kept; a repetition cannot get it."""

    method: str
    path: str
    why: str


class ProcessStarted(Event, frozen=True):
    """A supervisor (`--processes`) has started one of its processes. It only logs this: it is no `Holdfast`."""

    number: int
    pid: int


class ProcessEnded(Event, frozen=True):
    """A process of a supervisor has ended by itself; it is started again after `delay_ms`. Only logged, too."""

    number: int
    pid: int
    how: str
    delay_ms: Millis


class ProcessKilled(Event, frozen=True):
    """A process of a supervisor was told to stop, did not in time, and is ended by force. Only logged, too."""

    number: int
    pid: int


class EvidenceWaived(Event, frozen=True):
    """A worker was started without the evidence that its settings require (`--without-evidence`). Only logged, too."""

    reason: str
    workflows: tuple[str, ...]


class DutyFailed(Event, frozen=True):
    """A background duty raised; it is tried again."""

    duty: str
    message: str


class PartFailed(Event, frozen=True):
    """A part of this replica raised, by a fault of Holdfast itself. It was started again; please report it."""

    part: str
    message: str


Emit = Callable[[Event], None]


class Events:
    """Hands each event to every listener. A listener that raises is the listener's problem, not the engine's."""

    def __init__(self) -> None:
        self._listeners: tuple[Emit, ...] = ()

    def listen(self, listener: Emit) -> Callable[[], None]:
        """Add a listener. Returns a function that removes it again."""
        self._listeners += (listener,)
        return lambda: self._forget(listener)

    def _forget(self, listener: Emit) -> None:
        self._listeners = tuple(each for each in self._listeners if each is not listener)

    def emit(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except BaseException:  # noqa: BLE001 - see above; a task would pass SystemExit on to the loop
                traceback.print_exc()
