"""What the engine says: typed events. Logs, live views and tests all read these."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from msgspec import Struct


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


class RunsClaimed(Event, frozen=True):
    count: int


class RunLetGo(Event, frozen=True):
    run_id: str
    wake_ms: int | None


class RunEnded(Event, frozen=True):
    run_id: str
    workflow: str
    status: str
    error: str = ""


class RunBlocked(Event, frozen=True):
    run_id: str
    code: str
    message: str


class RunRetried(Event, frozen=True):
    run_id: str


class RunContinued(Event, frozen=True):
    """It continued as new."""

    run_id: str
    generation: int


class RunResumed(Event, frozen=True):
    run_id: str


class RunForked(Event, frozen=True):
    run_id: str
    from_run: str


class RunSignalled(Event, frozen=True):
    run_id: str
    hook: str


class CancelRequested(Event, frozen=True):
    run_id: str
    reason: str


class KeyWasReleased(Event, frozen=True):
    run_id: str
    key: str


class OutcomeUndeclared(Event, frozen=True):
    """A cancellation ended in a way that the workflow does not declare."""

    run_id: str
    workflow: str
    outcome: str


class RunOvertaken(Event, frozen=True):
    """A late write was refused: somebody else has the run. The outcome here is void."""

    run_id: str


class EffectBegan(Event, frozen=True):
    run_id: str
    step: str
    attempt: int


class EffectPerformed(Event, frozen=True):
    """An effect has returned; its record is about to be committed."""

    run_id: str
    step: str
    attempt: int


class EffectWillRetry(Event, frozen=True):
    run_id: str
    step: str
    attempt: int
    delay_ms: int
    error: str


class EffectGaveUp(Event, frozen=True):
    run_id: str
    step: str
    attempt: int
    error: str


class BatchCommitted(Event, frozen=True):
    changes: int


class StoreTroubled(Event, frozen=True):
    """A store call failed; it is made again."""

    message: str


class LeaseWasLost(Event, frozen=True):
    owner: str
    dropped: int


class RunsRescued(Event, frozen=True):
    run_ids: tuple[str, ...]


class RunsPruned(Event, frozen=True):
    count: int


class DutyFailed(Event, frozen=True):
    """A background duty raised; it is tried again."""

    duty: str
    message: str


class PartFailed(Event, frozen=True):
    """A part of this replica raised, by a fault of Holdfast itself. It has begun anew; please report it."""

    part: str
    message: str


Emit = Callable[[Event], None]


class Events:
    """Hands each event to every listener. A listener that raises is the listener's problem, not the engine's."""

    def __init__(self) -> None:
        self._listeners: tuple[Emit, ...] = ()

    def listen(self, listener: Emit) -> Callable[[], None]:
        """Add a listener; the answer removes it again."""
        self._listeners += (listener,)
        return lambda: self._forget(listener)

    def _forget(self, listener: Emit) -> None:
        self._listeners = tuple(each for each in self._listeners if each is not listener)

    def __call__(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:  # noqa: BLE001 - see above
                traceback.print_exc()
