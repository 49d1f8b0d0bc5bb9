"""Every error that Holdfast raises on purpose.

    HoldfastError                 code, message, hint
    ├── UsageError                the caller's mistake: fix the call          (HTTP 4xx, exit 2)
    │   ├── InvalidConfig         a URL, file or option that cannot work
    │   ├── UnknownRun            no run has this id or key
    │   ├── UnknownWorkflow       no pack given here defines this workflow
    │   ├── UnknownHook           no live run holds this token
    │   ├── UnknownTask           there is no such task, or it ended long ago
    │   ├── UnknownApiKey         no API key has this id
    │   ├── UnknownBreaker        no breaker has this name
    │   ├── UnknownLane           no run has entered a lane of this name lately
    │   ├── InputRefused          an input does not fit the workflow's parameters
    │   ├── InputMismatch         the key is taken by another input
    │   ├── EffectKeyReused       an effect was awaited under a key that stands for another input in this run
    │   ├── ReservedKey           a key that only Holdfast makes
    │   ├── InFlight              the key is at work already, and the caller did not want to join
    │   ├── LaneBusy              the lane has runs, and the caller did not want to queue
    │   ├── LaneFull              as many runs wait in the lane as may
    │   ├── WaitsForItself        a child run in the lane of its own parent, which waits for it
    │   ├── Overtaken             the key has moved on to another run meanwhile
    │   ├── HookTaken             another live run holds the token
    │   ├── PayloadRefused        a payload does not fit the hook's type
    │   ├── NotAllowedNow         the run's status does not permit this
    │   ├── NotAuthenticated      no API key, or none that is known here
    │   ├── NotPermitted          the API key does not allow this
    │   ├── PayloadTooLarge       one value is over the limit
    │   └── NotSerializable       a value that cannot be stored
    ├── RunError                  what the workflow or one of its effects did
    │   ├── RunFailed             it raised
    │   │   └── RunTimedOut       it took longer than it may
    │   ├── RunCancelled          it was cancelled
    │   ├── EffectFailed          an effect raised something this process cannot rebuild
    │   ├── ReplayDiverged        the code contradicts the journal
    │   ├── UnknownOutcome        a `once` effect may or may not have happened
    │   ├── WaitsForNothing       the code waits for what nothing can deliver
    │   ├── KilledItsWorkers      its workers died one after the other, without progress
    │   ├── HeldUpItsWorker       its code computed for too long without an await
    │   ├── NeverAwaited          its code called an effect or a workflow, and did not await it (strict mode)
    │   ├── SealedPayload         a payload is sealed, and this process cannot open it
    │   ├── UndeclaredOutcome     a cancellation ended in a way that the workflow does not declare
    │   └── EngineFault           Holdfast itself failed while it drove the run
    └── TransientError            nothing was decided: try again               (HTTP 503, exit 75)
        ├── StoreUnavailable      locked, full, unreachable
        ├── BusUnavailable        NATS cannot be reached, or keeps nothing now
        ├── GatewayUnavailable    the gateway cannot be reached, or did not respond
        ├── GatewayFault          the gateway itself failed while it handled the request
        ├── TooBusy               too many requests wait here already
        ├── LimitExceeded         more requests than a limit of the gateway lets through
        ├── LeaseLost             another process took this work over
        └── TimedOut              nothing came within the time given

A message says what happened and to which thing; the hint says what to do now.

`Permanent` and `RetryAfter` stand apart: effects raise them to steer their own retries. So does
`NotPerformed`, with which a `reconcile` function says that the effect never happened.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.durations import FORMS, Duration, text_in_ms

if TYPE_CHECKING:  # what callers find in an error lies above; nothing here knows more of it than its name
    from holdfast.kernel.cancels import Receipt
    from holdfast.run import Run

__all__ = [
    "BusUnavailable",
    "EffectFailed",
    "EffectKeyReused",
    "EngineFault",
    "GatewayFault",
    "GatewayUnavailable",
    "HeldUpItsWorker",
    "HoldfastError",
    "HookTaken",
    "InFlight",
    "InputMismatch",
    "InputRefused",
    "InvalidConfig",
    "KilledItsWorkers",
    "LaneBusy",
    "LaneFull",
    "LeaseLost",
    "LimitExceeded",
    "NeverAwaited",
    "NotAllowedNow",
    "NotAuthenticated",
    "NotPerformed",
    "NotPermitted",
    "NotSerializable",
    "Overtaken",
    "PayloadRefused",
    "PayloadTooLarge",
    "Permanent",
    "ReplayDiverged",
    "ReservedKey",
    "RetryAfter",
    "RunCancelled",
    "RunError",
    "RunFailed",
    "RunTimedOut",
    "SealedPayload",
    "StoreUnavailable",
    "TimedOut",
    "TooBusy",
    "TransientError",
    "UndeclaredOutcome",
    "UnknownApiKey",
    "UnknownBreaker",
    "UnknownHook",
    "UnknownLane",
    "UnknownOutcome",
    "UnknownRun",
    "UnknownTask",
    "UnknownWorkflow",
    "UsageError",
    "WaitsForItself",
    "WaitsForNothing",
]


class HoldfastError(Exception):
    """The root: `except HoldfastError` catches everything Holdfast raises on purpose."""

    code: ClassVar[str] = "error"
    hint: str = ""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        if hint:
            self.hint = hint

    @property
    def message(self) -> str:
        """What happened, and to which thing."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message


class UsageError(HoldfastError):
    """The caller's mistake."""

    code = "usage"


class InvalidConfig(UsageError):
    """A URL, a file or an option that cannot work."""

    code = "invalid_config"


class UnknownRun(UsageError):
    """No run has this id or key."""

    code = "unknown_run"
    hint = "Check the id and the namespace; a finished run is removed when its retention is over."


class UnknownWorkflow(UsageError):
    """No pack given to this Holdfast defines the workflow."""

    code = "unknown_workflow"

    def __init__(self, name: str, known: tuple[str, ...] = ()) -> None:
        listed = ", ".join(known) or "none"
        super().__init__(
            f"workflow {name!r} is not defined by the packs of this Holdfast",
            hint=f"Known workflows: {listed}. The process that is asked needs its pack: --pack, Holdfast(packs=[...]).",
        )


class InputRefused(UsageError):
    """An input does not fit the parameters of the workflow. Nothing was started."""

    code = "input_refused"
    hint = "Correct the input and start again; the workflow's schema says what it takes."

    def __init__(self, workflow: str, why: str) -> None:
        super().__init__(f"the input of workflow {workflow!r} does not fit: {why}")
        self.workflow = workflow


class InFlight(UsageError):
    """The key is held by a run that has not ended, and the caller asked not to join it."""

    code = "in_flight"
    hint = "Try again later, or join it: that returns its result."

    def __init__(self, workflow: str, key: str, run_id: str) -> None:
        super().__init__(f"key {key!r} of workflow {workflow!r} is at work in run {run_id}")
        self.workflow = workflow
        self.key = key
        self.run_id = run_id


class LaneBusy(UsageError):
    """The lane has runs that have not ended, and the caller asked for a free one. Nothing was started."""

    code = "lane_busy"
    hint = "Try again later, or start it without if_free: then it queues behind them."

    def __init__(self, lane: str, run_id: str, run: Any = None) -> None:
        super().__init__(f"lane {lane!r} is not free: run {run_id} is first in it")
        self.lane = lane
        self.run_id = run_id
        self.run: Run[Any] = run


class LaneFull(UsageError):
    """As many runs wait in the lane as its workflow allows. Nothing was started, and no key was taken."""

    code = "lane_full"
    hint = "Try again later. How many may wait, the workflow declares by lane_max=."

    def __init__(self, lane: str, parked_max: int) -> None:
        super().__init__(f"lane {lane!r} is full: {parked_max:,} runs wait in it")
        self.lane = lane
        self.parked_max = parked_max


class WaitsForItself(UsageError):
    """A child would have entered the lane that its own parent, or a parent of that, holds: it would wait for itself."""

    code = "waits_for_itself"
    hint = "Give the child another lane, make the lane wider, or spawn it detached and do not wait for it."

    def __init__(self, lane: str, workflow: str, parent_id: str) -> None:
        super().__init__(
            f"a child run of {workflow!r} in lane {lane!r} would wait until its parent {parent_id} has left the lane"
        )
        self.lane = lane
        self.workflow = workflow


class InputMismatch(UsageError):
    """A live key names one piece of work; this one is taken by another input."""

    code = "input_mismatch"
    hint = "Start it under another key, or pass the input that the first start had."

    def __init__(self, workflow: str, key: str, run_id: str, run: Any = None) -> None:
        super().__init__(f"key {key!r} of workflow {workflow!r} belongs to run {run_id}, which has a different input")
        self.workflow = workflow
        self.key = key
        self.run_id = run_id
        self.run: Run[Any] = run


class EffectKeyReused(UsageError):
    """In one run, an effect was awaited under a key that stands for another input. It was not performed."""

    code = "effect_key_reused"
    hint = "Put what differs into the key of the effect: the other side would take the call for a repetition."

    def __init__(self, effect: str, key: str) -> None:
        super().__init__(f"effect {effect!r} was awaited with another input under the key {key!r} in the same run")
        self.effect = effect
        self.key = key


class ReservedKey(UsageError):
    """A caller's own key begins like those that Holdfast makes for requests with an `Idempotency-Key`."""

    code = "reserved_key"
    hint = "Begin it otherwise. With the header Idempotency-Key, the gateway makes such a key for its caller."

    def __init__(self, key: str, prefix: str) -> None:
        super().__init__(f"key {key[:60]!r} begins with {prefix!r}, and such keys belong to requests")
        self.key = key


class UnknownHook(UsageError):
    """No live run holds this token."""

    code = "unknown_hook"
    hint = "Check the token and the namespace; the run may not have come to its hook yet, or may have ended."

    def __init__(self, token: str) -> None:
        super().__init__(f"no live run has a hook with the token {token!r}")
        self.token = token


class UnknownApiKey(UsageError):
    """No API key of this namespace has this id."""

    code = "unknown_api_key"
    hint = "`holdfast keys list` shows those there are."


class UnknownBreaker(UsageError):
    """No breaker of this namespace has this name."""

    code = "unknown_breaker"
    hint = "`holdfast breakers list` shows those there are: each from the first time that an effect of it began."

    def __init__(self, name: str) -> None:
        super().__init__(f"no breaker has the name {name!r}")
        self.name = name


class UnknownLane(UsageError):
    """No run has entered a lane of this name lately, and it was not set by hand."""

    code = "unknown_lane"
    hint = "Check the name and the namespace; a lane is forgotten when no run has been in it for an hour."

    def __init__(self, name: str) -> None:
        super().__init__(f"no run has a place in a lane {name!r}, or has left one lately")
        self.lane = name


class UnknownTask(UsageError):
    """There is no such task, or it ended long ago."""

    code = "unknown_task"
    hint = "Use the id that a claim has returned; check the namespace of the API key."

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no task {name!r}")
        self.name = name


class Overtaken(UsageError):
    """The run that was to be replaced no longer holds its key: another start was first."""

    code = "overtaken"
    hint = "Look at the run that holds the key now, and decide again."

    def __init__(self, workflow: str, key: str, run_id: str, run: Any = None) -> None:
        super().__init__(f"key {key!r} of workflow {workflow!r} has moved on to run {run_id}")
        self.workflow = workflow
        self.key = key
        self.run_id = run_id
        self.run: Run[Any] = run


class HookTaken(UsageError):
    """A hook was awaited whose token belongs to another live run."""

    code = "hook_taken"
    hint = "Ask `await hook.conflict()` before waiting, or use another token."

    def __init__(self, token: str, run_id: str) -> None:
        super().__init__(f"token {token!r} is held by run {run_id}")
        self.token = token
        self.run_id = run_id


class PayloadRefused(UsageError):
    """A payload does not fit the type that the hook declares. Nothing was delivered."""

    code = "payload_refused"

    def __init__(self, hook: str, why: str) -> None:
        super().__init__(f"the payload for hook {hook!r} does not fit: {why}", hint="Correct it and send it again.")
        self.hook = hook


class NotAllowedNow(UsageError):
    """The run's status does not permit this."""

    code = "not_allowed_now"


class NotAuthenticated(UsageError):
    """The caller has shown no API key, or none that is known here."""

    code = "not_authenticated"
    hint = "Send `Authorization: Bearer <key>`; `holdfast keys create` makes one."


class NotPermitted(UsageError):
    """The API key is good, but not for this."""

    code = "not_permitted"
    hint = "Use a key of a higher scope: read, write or admin."


class PayloadTooLarge(UsageError):
    """One value is over the limit."""

    code = "payload_too_large"
    hint = "Store it elsewhere (a file, an object store) and pass a reference, or raise HOLDFAST_PAYLOAD_MAX."

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(f"{what} is {size:,} bytes long; the limit is {limit:,}")
        self.size = size
        self.limit = limit


class NotSerializable(UsageError):
    """A value that cannot be stored. The message names the path to it."""

    code = "not_serializable"
    hint = "Pass JSON types, dataclasses, msgspec Structs, pydantic models, datetime, Decimal, UUID, Enum or bytes."


class RunError(HoldfastError):
    """What a workflow or one of its effects did."""

    code = "run"


class RunFailed(RunError):
    """The workflow raised.

    The original exception, rebuilt, is the `__cause__`. `traceback` has the frames of your code where it was raised, as
    text; `line` is the last of them.
    """

    code = "run_failed"
    line: str = ""
    traceback: str = ""

    def __init__(
        self, run_id: str, error_type: str, error_message: str, *, line: str = "", traceback: str = ""
    ) -> None:
        super().__init__(f"run {run_id} failed with {error_type}: {error_message}")
        if line:
            self.line = line
        if traceback:
            self.traceback = traceback
            self.add_note(f"raised in the workflow:\n{traceback.rstrip()}")
        self.run_id = run_id
        self.error_type = error_type
        self.error_message = error_message


class RunTimedOut(RunFailed):
    """The run took longer than the timeout that it was started with, or that its workflow declares."""

    code = "run_timed_out"
    hint = (
        "A retry lets it go on from its last record, without a limit. One that was undone, or may have been, is started"
        " again instead: start(..., replace=run)."
    )

    def __init__(self, message: str, run_id: str = "") -> None:
        HoldfastError.__init__(self, message)
        self.run_id = run_id
        self.error_type = f"{RunTimedOut.__module__}.{RunTimedOut.__qualname__}"
        self.error_message = message


class RunCancelled(RunError):
    """The run was cancelled."""

    code = "run_cancelled"

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} was cancelled")
        self.run_id = run_id


class EffectFailed(RunError):
    """An effect (or a child) raised an exception whose class cannot be rebuilt in this process."""

    code = "effect_failed"

    def __init__(self, error_type: str, error_message: str) -> None:
        super().__init__(f"{error_type}: {error_message}")
        self.error_type = error_type
        self.error_message = error_message


class ReplayDiverged(RunError):
    """The code asks for something that the journal contradicts."""

    code = "replay_diverged"
    values = ""  # what is known of the values, for the record and not for the log: it may quote payloads

    @property
    def told(self) -> str:
        """The message, and what is known of the values."""
        return f"{self.message}. {self.values}" if self.values else self.message

    hint = (
        "Deploy code that matches the journal: a worker that has it takes the run up by itself. If it is not the code"
        " that has changed, but what the code depends on, mend that and call run.retry()."
    )


class UnknownOutcome(RunError):
    """An effect declared `once` was started; whether it happened is not known."""

    code = "unknown_outcome"
    hint = (
        "Find out by the key, then say it: run.decide(step, returned=... or failed=... or not_performed=True). Or give "
        "the effect a reconcile= function that finds out, deploy it, then call run.retry()."
    )


class WaitsForNothing(RunError):
    """The code waits for something that nothing in its run can deliver: a deadlock."""

    code = "waits_for_nothing"
    hint = "Deploy code that waits for an effect, a timer, a hook or a child, then call run.retry()."


class KilledItsWorkers(RunError):
    """Workers died one after the other while they executed the run, and nothing was recorded in between."""

    code = "killed_its_workers"
    hint = "Find out what ended the processes (exit code, memory, native code), mend it, then call run.retry()."


class HeldUpItsWorker(RunError):
    """The workflow's own code computed for too long without an await, and was interrupted: other runs had to wait."""

    code = "held_up_its_worker"
    hint = "Move what takes long into an effect (a sync one runs in a thread), deploy it, then call run.retry()."


class NeverAwaited(RunError):
    """The workflow's code called an effect or a workflow and did not await it. Only strict mode blocks a run for it."""

    code = "never_awaited"
    hint = (
        "Write `await` before the call, or `.close()` behind it if it is not wanted; deploy it; then call run.retry()."
    )


class SealedPayload(RunError):
    """A stored payload is sealed, and this process cannot open it. A run that needs it is blocked, and not failed."""

    code = "sealed_payload"
    hint = "Give this process a seal that has the key: Holdfast(seal=...), HOLDFAST_SEAL. Then retry what is blocked."


class UndeclaredOutcome(RunError):
    """A cancellation ended in a way that the workflow does not declare. The receipt is there all the same."""

    code = "undeclared_outcome"
    hint = "Add it to outcomes=(...) of the workflow, or see to it that it cannot happen."

    def __init__(self, workflow: str, receipt: Receipt, outcome: str) -> None:
        super().__init__(f"cancelling a run of {workflow!r} ended as {outcome!r}, which it does not declare")
        self.receipt = receipt


class EngineFault(RunError):
    """Holdfast itself failed while it drove the run. The run is set aside; everything recorded is safe."""

    code = "engine_fault"
    hint = "Please report it with the message; run.retry() continues the run from its last record."


class TransientError(HoldfastError):
    """Nothing was decided. The same call may be made again."""

    code = "transient"


class StoreUnavailable(TransientError):
    """The store is locked, full or out of reach."""

    code = "store_unavailable"
    hint = "Nothing was lost; try again when the store can be written."


class BusUnavailable(TransientError):
    """The bus cannot be reached, or does not keep what is published."""

    code = "bus_unavailable"
    hint = "Nothing was lost; try again under the same id."


class GatewayUnavailable(TransientError):
    """The gateway cannot be reached, or the connection broke before its response came."""

    code = "gateway_unavailable"
    hint = "Check the address, and whether it is running; the same call may be made again."


class GatewayFault(TransientError):
    """The gateway itself failed while it answered; what became of the request is not known."""

    code = "gateway_fault"
    hint = "Look before you try again. What happened is in the gateway's log; please report it."


class TooBusy(TransientError):
    """This process has as many waiting requests as it takes."""

    code = "too_busy"
    hint = "Try again in a moment, or ask another replica."


class LimitExceeded(TransientError):
    """More was asked of a gateway than one of its limits lets through. Nothing was done.

    After `retry_after` seconds as much may go.
    """

    code = "limit_exceeded"
    hint = "Come again when Retry-After says. `holdfast limits` shows what is left of which limit."
    retry_after: float = 1.0

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class LeaseLost(TransientError):
    """This process held the work too long without renewing; another process has it now."""

    code = "lease_lost"


class TimedOut(TransientError, TimeoutError):  # pyright: ignore[reportUnsafeMultipleInheritance] - so that `except TimeoutError` sees it
    """No answer within the time given."""

    code = "timed_out"


class Permanent(Exception):
    """Raised by an effect: trying again cannot help."""


class RetryAfter(Exception):
    """Raised by an effect: try again, but not before this time has passed. A number counts seconds.

    `seconds` is that time, at most a year. A date in the past gives a negative number, which is no wait at all.
    """

    def __init__(self, seconds: Duration, message: str = "") -> None:
        wished = _seconds_in(seconds)
        super().__init__(message or f"retry after {wished:g} s")
        # Nonsense that a server may say counts as no wish at all.
        self.seconds = min(max(0.0, wished), 365 * 86_400.0) if wished == wished else 0.0  # noqa: PLR0124 - NaN


def _seconds_in(duration: Duration) -> float:
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if not isinstance(duration, str):
        return duration
    read = text_in_ms(duration)
    if read is None:
        raise UsageError(f"RetryAfter({duration!r}) says no duration", hint=f"Use a {FORMS}.")
    return read / 1000


class NotPerformed(Exception):
    """Raised by a `reconcile` function: the effect never happened, so it may be called."""
