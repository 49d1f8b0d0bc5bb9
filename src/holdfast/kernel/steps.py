"""The life of a step: what follows when something happens to what the code of a run has asked for.

    asked ──▶ intended ──▶ called ──▶ performed · gave up
                 ▲            │
                 └─ attempted ┘        dropped ──▶ late

    what happened             the code waits for it                                      it does not any more
    ────────────────────────  ─────────────────────────────────────────────────────────  ─────────────────────
    ToBegin                   a `once` effect: record `intended` first; any other: call
      intended before         remote: call (that joins its task); else reconcile;
                              without a way to do so: block
    Returned, Confirmed       record `performed`                                         record `late`
    Raised                    as the retry policy decides: `attempted` or `gave_up`      record `late`
      once, and out of time   reconcile; without a way to do so: block                   record `late`
      interrupted, not begun  nothing: it is asked for again when the run goes on        nothing
    Denied                    call: it never happened                                    nothing
    Undecided                 block                                                      nothing
    Expired                   record `gave_up`                                           nothing
    Interrupted               record `dropped` if it had begun                           nothing
    ChildAdmitted             record `spawned`                                           record `late`, if it is new
                                                                                         and the run's own
    NotAdmitted               record `gave_up`                                           nothing
    TokenClaimed              record `opened`                                            close the hook, if it has it
    Watching                  nothing: a message will tell                               nothing
    AwaitedRunEnded           record `joined`                                            nothing
    Repeated                  record the same entry, with the time of now                record `late`, if it happened
    CodeLeft                                                                             record `dropped` if begun
    RunLeft                   record `dropped` if begun and not intended                 as CodeLeft recorded it
    Stopping                  interrupt it, if it is under way here                      the same; or find out what a
                                                                                         former holder has begun

Rules
- Whatever has happened in the world is recorded: it reaches the code if the code waits for it, and is noted as late if
  not. So a retry, a resumption or an undoing knows of it.
- A `once` effect is called only by the process that has recorded its intent, or that knows that it never happened.
- Where only a person can say whether a `once` effect happened, the run is blocked.
- What came of an attempt is recorded with how long it took, if it began later than the entry that the code asked for it
  after. If not, that entry says when it began, and nothing is added to what most runs record.
- What a former holder of the run may have begun is found out: a remote task is taken back, a child is admitted again,
  which finds the one that exists.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol, assert_never

from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import NotPerformed, TimedOut, UnknownOutcome
from holdfast.kernel import retries
from holdfast.kernel.journal import (
    Attempted,
    Dropped,
    Failure,
    GaveUp,
    Intended,
    Intent,
    Joined,
    Late,
    Opened,
    Other,
    Performed,
    Spawned,
    Value,
)
from holdfast.kernel.retries import Retry
from holdfast.kernel.times import EPOCH, NO_TIME, Instant, Millis

AT_ONCE_MS = 20  # a step that begins so soon after it was asked for has begun then, as far as a timeline shows


class StepPolicy(Protocol):
    """How the effect of a step is carried out."""

    @property
    def retry(self) -> Retry: ...
    @property
    def safety(self) -> str: ...
    @property
    def reconcile(self) -> object | None: ...


class Step(Struct, frozen=True, gc=False):
    """What is known of a step.

    waited     whether the code waits for it; what else comes of it is late
    intended   of a `once` effect: whether the intent to call it is recorded
    may_call   whether this process has recorded that, or knows that the effect never happened
    begun      whether the world may have been touched, here or by a former holder of the run
    under_way  whether something is being done for it here
    in_doubt   whether a former holder of the run may have begun it, and no record says what came of that
    told_at_ms when it was asked for, as far as the journal tells: the entry before is from then
    took_ms    how long the attempt took that has come to its end, by the clock of this process
    """

    id: str
    intent: Intent
    asked_at_ms: Instant = EPOCH
    failures: int = 0
    waited: bool = True
    intended: bool = False
    may_call: bool = False
    remote: bool = False
    detached: bool = False
    begun: bool = False
    under_way: bool = False
    in_doubt: bool = False
    told_at_ms: Instant = EPOCH
    took_ms: float | None = None

    @property
    def is_effect(self) -> bool:
        return self.intent.kind in {"effect", "undo"}

    @property
    def admits_a_run(self) -> bool:
        return self.intent.kind in {"child", "spawn"}


# -- events


class ToBegin(Struct, frozen=True, gc=False):
    """The code has asked for it, or its next attempt is due."""


class Returned(Struct, frozen=True, gc=False):
    """An attempt of the effect returned."""

    value: Value


class Raised(Struct, frozen=True):
    """An attempt of the effect raised. `interrupted`: the engine had dropped it while the code still waited."""

    error: BaseException
    failure: Failure
    interrupted: bool = False


class Confirmed(Struct, frozen=True, gc=False):
    """The world was asked about a `once` effect, and it has happened."""

    value: Value


class Denied(Struct, frozen=True, gc=False):
    """The world was asked about a `once` effect, and it has not happened."""


class Undecided(Struct, frozen=True, gc=False):
    """The world was asked about a `once` effect, and could not tell."""

    why: str


class Expired(Struct, frozen=True, gc=False):
    """The deadline of the effect was over before an attempt could begin."""

    failure: Failure


class Interrupted(Struct, frozen=True, gc=False):
    """It was dropped and has stopped. If it had begun, what it has done is not known."""

    begun: bool


class ChildAdmitted(Struct, frozen=True, gc=False):
    """A child run exists. `created`: it is a new one."""

    run_id: str
    key: str
    created: bool


class NotAdmitted(Struct, frozen=True, gc=False):
    """A child run cannot exist, or cannot be found."""

    failure: Failure


class Watching(Struct, frozen=True, gc=False):
    """The end of another run will be told as a message."""


class TokenClaimed(Struct, frozen=True, gc=False):
    """A hook has its token, or another run holds it."""

    holder: Other | None


class AwaitedRunEnded(Struct, frozen=True, gc=False):
    """A run that the code waits for has ended, in a value or in a failure."""

    run_id: str
    value: Value | None = None
    error: Failure | None = None


class Repeated(Struct, frozen=True, gc=False):
    """It was recorded in a change that the store has refused, since mail came first."""

    entry: Performed | GaveUp | Attempted | Spawned | Opened | Late


class CodeLeft(Struct, frozen=True, gc=False):
    """The code has stopped waiting for it."""


class RunLeft(Struct, frozen=True, gc=False):
    """The run is left where it stands."""


class Stopping(Struct, frozen=True, gc=False):
    """No more is to be done for it: the code does not wait any more, or the run is to be left."""


Event = (
    ToBegin
    | Returned
    | Raised
    | Confirmed
    | Denied
    | Undecided
    | Expired
    | Interrupted
    | ChildAdmitted
    | NotAdmitted
    | Watching
    | TokenClaimed
    | AwaitedRunEnded
    | Repeated
    | CodeLeft
    | RunLeft
    | Stopping
)

TO_BEGIN, CODE_LEFT, RUN_LEFT, STOPPING = ToBegin(), CodeLeft(), RunLeft(), Stopping()
DENIED, WATCHING = Denied(), Watching()


# -- decisions


class Act(Enum):
    """Something to be done for a step."""

    CALL = "call"
    RECONCILE = "reconcile"
    INTERRUPT = "interrupt"
    TAKE_BACK = "take back"  # a remote task that may be out
    ADMIT = "admit"  # a child that may exist: admitting it again finds it
    CLOSE_HOOK = "close hook"


class Block(Struct, frozen=True, gc=False):
    """The run cannot go on without a person."""

    code: str
    message: str


Recordable = Intended | Attempted | Performed | GaveUp | Spawned | Joined | Opened | Dropped | Late
Decision = Recordable | Act | Block | None


def decide(step: Step, event: Event, policy: StepPolicy | None, *, now_ms: Instant, chance: float = 0.0) -> Decision:
    """What follows for the step: an entry to record, something to do, a reason to block the run, or nothing.

    Only an effect has a policy. `chance` is drawn from [0, 1) and used where an attempt is repeated.
    """
    match event:  # the most frequent first
        case Returned() if step.waited:
            return _perform(step, event.value, now_ms)
        case ToBegin():
            return _begin(step, policy, now_ms)
        case Repeated(entry=entry):
            return _repeat(step, entry, now_ms)
        case CodeLeft():
            return Dropped(now_ms, step.id, step.intent) if step.begun and step.is_effect else None
        case RunLeft():
            unknown = step.begun and step.is_effect and not step.intended  # the intent says as much
            return Dropped(now_ms, step.id, step.intent) if unknown else None
        case Stopping():
            return _stop(step)
        case _:
            return _complete(step, event, policy, now_ms, chance) if step.waited else _note_late(step, event, now_ms)


def perform(
    step_id: str,
    intent: Intent,
    failures: int,
    value: Value,
    *,
    now_ms: Instant,
    told_at_ms: Instant,
    took_ms: float | None,
) -> Performed:
    """What follows if an attempt returns that the code waits for. Nearly all that happens to steps is this."""
    if took_ms is None or now_ms - took_ms - told_at_ms <= AT_ONCE_MS:
        return Performed(now_ms, step_id, intent, failures + 1, value)
    return Performed(now_ms, step_id, intent, failures + 1, value, took_ms=_took(took_ms))


def _perform(step: Step, value: Value, now_ms: Instant) -> Performed:
    told_at_ms, took_ms = step.told_at_ms, step.took_ms
    return perform(step.id, step.intent, step.failures, value, now_ms=now_ms, told_at_ms=told_at_ms, took_ms=took_ms)


def _took(took_ms: float) -> Millis:
    return Millis(max(1, round(took_ms)))


def _took_if_later(step: Step, now_ms: Instant) -> Millis:
    """How long the attempt took, if it began later than the journal tells."""
    if step.took_ms is None or now_ms - step.took_ms - step.told_at_ms <= AT_ONCE_MS:
        return NO_TIME
    return _took(step.took_ms)


def may_call_at_once(policy: StepPolicy, *, intended: bool) -> bool:
    """Whether an effect may be called without a record, since calling it twice is no harm: it is not `once`.

    An intent counts whatever the code of today declares: it was `once` when it was begun.
    """
    return policy.safety != "once" and not intended


_Completion = (
    Returned
    | Raised
    | Confirmed
    | Denied
    | Undecided
    | Expired
    | Interrupted
    | ChildAdmitted
    | NotAdmitted
    | Watching
    | TokenClaimed
    | AwaitedRunEnded
)


def _begin(step: Step, policy: StepPolicy | None, now_ms: Instant) -> Intended | Act | Block:
    if policy is None or step.may_call or may_call_at_once(policy, intended=step.intended):
        return Act.CALL
    if not step.intended:
        return Intended(now_ms, step.id, step.intent, step.failures + 1)
    # A process that has died since may have called it: it is not called again.
    if step.remote:
        return Act.CALL  # its task is there to be joined
    return _reconcile(step, policy, "the process died after it was begun")


def _reconcile(step: Step, policy: StepPolicy, why: str) -> Act | Block:
    return _unknown_outcome(step, why) if policy.reconcile is None else Act.RECONCILE


def _unknown_outcome(step: Step, why: str) -> Block:
    return Block(
        UnknownOutcome.code,
        f"effect {step.intent.name} ({step.id}, key {step.intent.key!r}) was begun and {why}; "
        "whether it happened is not known",
    )


def _complete(step: Step, event: _Completion, policy: StepPolicy | None, now_ms: Instant, chance: float) -> Decision:
    """Something has come of a step that the code waits for."""
    match event:
        case Returned(value=value) | Confirmed(value=value):
            return _perform(step, value, now_ms)
        case Raised():
            assert policy is not None, step
            return _fail(step, event, policy, now_ms, chance)
        case Denied():
            return Act.CALL
        case Undecided(why=why):
            return _unknown_outcome(step, why)
        case Expired(failure=failure):  # no attempt is begun after the deadline; one before it may have happened
            return GaveUp(now_ms, step.id, step.intent, step.failures, failure)
        case Interrupted(begun=begun):
            return Dropped(now_ms, step.id, step.intent) if begun else None
        case ChildAdmitted(run_id=run_id, key=key, created=created):
            return Spawned(now_ms, step.id, step.intent, run_id, key, created=created, detached=step.detached)
        case NotAdmitted(failure=failure):
            return GaveUp(now_ms, step.id, step.intent, 1, failure)
        case Watching():
            return None
        case TokenClaimed(holder=holder):
            return Opened(now_ms, step.id, step.intent, holder)
        case AwaitedRunEnded(run_id=run_id, value=value, error=error):
            return Joined(now_ms, step.id, run_id, value, error)
        case _:  # pragma: no cover
            assert_never(event)


def _fail(step: Step, event: Raised, policy: StepPolicy, now_ms: Instant, chance: float) -> Decision:
    """An attempt has failed."""
    if event.interrupted and isinstance(event.error, NotPerformed):
        return None  # the code was not told: it asks again when the run is resumed
    if policy.safety == "once" and isinstance(event.error, TimedOut):
        # It may be happening still. This is the case that `once` exists for.
        return _reconcile(step, policy, "it did not answer in time")
    attempt, took_ms = step.failures + 1, _took_if_later(step, now_ms)
    verdict = retries.decide(
        policy.retry, event.error, attempt=attempt, asked_at_ms=step.asked_at_ms, now_ms=now_ms, chance=chance
    )
    if isinstance(verdict, retries.GiveUp):
        return GaveUp(now_ms, step.id, step.intent, attempt, event.failure, took_ms=took_ms)
    retry_at_ms = now_ms + verdict.delay_ms
    return Attempted(now_ms, step.id, step.intent, attempt, event.failure, retry_at_ms, took_ms=took_ms)


def _note_late(step: Step, event: _Completion, now_ms: Instant) -> Late | Act | None:
    """Something has come of a step that the code does not wait for any more."""
    attempt = step.failures + 1
    match event:
        case Returned(value=value) | Confirmed(value=value):
            return Late(now_ms, step.id, step.intent, attempt, value)
        case Raised(error=error, interrupted=True) if isinstance(error, NotPerformed):
            return None
        case Raised(error=error, failure=failure) if isinstance(error, Exception):
            return Late(now_ms, step.id, step.intent, attempt, error=failure)
        case ChildAdmitted(run_id=run_id, created=True) if not step.detached:
            return Late(now_ms, step.id, step.intent, attempt, run_id=run_id)
        case TokenClaimed(holder=None):
            return Act.CLOSE_HOOK  # it was closed before it had its token
        case _:
            return None


def _repeat(
    step: Step, entry: Performed | GaveUp | Attempted | Spawned | Opened | Late, now_ms: Instant
) -> Performed | GaveUp | Attempted | Spawned | Opened | Late | None:
    """What was to be recorded, and was not: it has happened all the same."""
    match entry:
        case Late(attempt=attempt, value=Value() as value) if step.waited:
            return Performed(now_ms, step.id, step.intent, attempt, value)
        case Late():
            return replace(entry, at_ms=now_ms)
        case _ if step.waited:
            return replace(entry, at_ms=now_ms)
        case Performed(attempt=attempt, value=value):
            return Late(now_ms, step.id, step.intent, attempt, value)
        case GaveUp(attempt=attempt, error=error) | Attempted(attempt=attempt, error=error) if step.is_effect:
            return Late(now_ms, step.id, step.intent, attempt, error=error)
        case Spawned(run_id=run_id, created=True, detached=False):
            return Late(now_ms, step.id, step.intent, 1, run_id=run_id)
        case _:
            return None


def _stop(step: Step) -> Act | None:
    if step.under_way:
        return None if step.admits_a_run else Act.INTERRUPT  # an admission may have happened: it comes to its end
    if not step.in_doubt:
        return None
    if step.is_effect:
        return Act.TAKE_BACK if step.remote else None
    return Act.ADMIT if step.admits_a_run and not step.detached else None
