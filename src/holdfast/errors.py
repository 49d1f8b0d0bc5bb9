"""Every error that Holdfast raises on purpose.

    HoldfastError                 code, message, hint
    ├── UsageError                the caller's mistake: fix the call          (HTTP 4xx, exit 2)
    │   ├── InvalidConfig         a URL, file or option that cannot work
    │   ├── UnknownRun            no run has this id or key
    │   ├── UnknownWorkflow       no pack given here defines this workflow
    │   ├── UnknownHook           no live run holds this token
    │   ├── InputMismatch         the key is taken by another input
    │   ├── Overtaken             the key has moved on to another run meanwhile
    │   ├── HookTaken             another live run holds the token
    │   ├── PayloadRefused        a payload does not fit the hook's type
    │   ├── NotAllowedNow         the run's status does not permit this
    │   ├── PayloadTooLarge       one value is over the limit
    │   └── NotSerializable       a value that cannot be stored
    ├── RunError                  what the workflow or one of its effects did
    │   ├── RunFailed             it raised
    │   ├── RunCancelled          it was cancelled
    │   ├── EffectFailed          an effect raised something this process cannot rebuild
    │   ├── ReplayDiverged        the code contradicts the journal
    │   ├── UnknownOutcome        a `once` effect may or may not have happened
    │   ├── WaitsForNothing       the code waits for what nothing can deliver
    │   ├── UndeclaredOutcome     a cancellation ended in a way that the workflow does not declare
    │   └── EngineFault           Holdfast itself failed while it drove the run
    └── TransientError            nothing was decided: try again               (HTTP 503, exit 75)
        ├── StoreUnavailable      locked, full, unreachable
        ├── LeaseLost             somebody else took this work over
        └── TimedOut              no answer within the time given

A message says what happened and to which thing; the hint says what to do now.

`Permanent` and `RetryAfter` stand apart: effects raise them to steer their own retries. So does
`NotPerformed`, with which a `reconcile` function says that the effect never happened.
"""

from __future__ import annotations

from typing import ClassVar


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
            hint=f"Pass its pack in Holdfast(packs=[...]). Known workflows: {listed}.",
        )


class InputMismatch(UsageError):
    """A live key names one piece of work; this one is taken by another input."""

    code = "input_mismatch"
    hint = "Start it under another key, or pass the input that the first start had."

    def __init__(self, workflow: str, key: str, run_id: str, run: object = None) -> None:
        super().__init__(f"key {key!r} of workflow {workflow!r} belongs to run {run_id}, which has a different input")
        self.workflow = workflow
        self.key = key
        self.run_id = run_id
        self.run = run


class UnknownHook(UsageError):
    """No live run holds this token."""

    code = "unknown_hook"
    hint = "Check the token and the namespace; a token is free again as soon as its run has ended."

    def __init__(self, token: str) -> None:
        super().__init__(f"no live run has a hook with the token {token!r}")
        self.token = token


class Overtaken(UsageError):
    """The run that was to be replaced no longer holds its key: somebody else was first."""

    code = "overtaken"
    hint = "Look at the run that holds the key now, and decide again."

    def __init__(self, workflow: str, key: str, run_id: str, run: object = None) -> None:
        super().__init__(f"key {key!r} of workflow {workflow!r} has moved on to run {run_id}")
        self.workflow = workflow
        self.key = key
        self.run_id = run_id
        self.run = run


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
    """The workflow raised. The original exception, rebuilt, is the `__cause__`."""

    code = "run_failed"

    def __init__(self, run_id: str, error_type: str, error_message: str) -> None:
        super().__init__(f"run {run_id} failed with {error_type}: {error_message}")
        self.run_id = run_id
        self.error_type = error_type
        self.error_message = error_message


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
    hint = "Deploy code that matches the journal, then call run.retry()."


class UnknownOutcome(RunError):
    """An effect declared `once` was started; whether it happened is not known."""

    code = "unknown_outcome"
    hint = "Give the effect a reconcile= function that finds out by key, deploy it, then call run.retry()."


class WaitsForNothing(RunError):
    """The code waits for something that nothing in its run can deliver: a deadlock."""

    code = "waits_for_nothing"
    hint = "Deploy code that waits for an effect, a timer, a hook or a child, then call run.retry()."


class UndeclaredOutcome(RunError):
    """A cancellation ended in a way that the workflow does not declare. The receipt is there all the same."""

    code = "undeclared_outcome"
    hint = "Add it to outcomes=(...) of the workflow, or see to it that it cannot happen."

    def __init__(self, workflow: str, receipt: object, outcome: str) -> None:
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


class LeaseLost(TransientError):
    """This process held the work too long without renewing; somebody else has it now."""

    code = "lease_lost"


class TimedOut(TransientError, TimeoutError):  # pyright: ignore[reportUnsafeMultipleInheritance] - so that `except TimeoutError` sees it
    """No answer within the time given."""

    code = "timed_out"


class Permanent(Exception):
    """Raised by an effect: trying again cannot help."""


class RetryAfter(Exception):
    """Raised by an effect: try again, but not before this many seconds have passed."""

    def __init__(self, seconds: float, message: str = "") -> None:
        super().__init__(message or f"retry after {seconds:g} s")
        # A date in the past gives a negative number; nonsense counts as no wish at all.
        self.seconds = min(max(0.0, seconds), 365 * 86_400.0) if seconds == seconds else 0.0  # noqa: PLR0124 - NaN


class NotPerformed(Exception):
    """Raised by a `reconcile` function: the effect never happened, so it may be called."""
