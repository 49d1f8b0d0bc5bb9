"""Changes of the store as a proof sees them: which of them are boundaries, and what they commit, in words."""

from __future__ import annotations

from holdfast.kernel.changes import Alive, Change, KeyFree, KeyHeldBy, TokenHeldBy
from holdfast.kernel.journal import IntentEntry, StepEntry


def is_boundary(change: Change) -> bool:
    """Whether a crash before it and one after it differ: not for one that only keeps a heartbeat."""
    return bool(change.entries or change.run is not None or change.envelopes or change.opens)


def described(change: Change) -> str:
    """What a change commits, in words."""
    if change.entries:
        words: list[str] = []
        for entry in change.entries:
            what = entry.what.replace("_", " ")
            words.append(
                f"{entry.step} is recorded as {what}" if isinstance(entry, StepEntry) else f"'{what}' is recorded"
            )
        return ", ".join(words)
    match change.guard:
        case KeyFree() | KeyHeldBy():
            return "the run is admitted"
        case Alive() | TokenHeldBy():
            return "a message is sent to the run"
        case _ if change.run is not None:
            return f"the run is written as {change.run.status.value}"
        case _:
            return "a write"


def line_in(change: Change) -> str:
    """The line of the user's code that the first intent of a change names."""
    return next(
        (entry.intent.line for entry in change.entries if isinstance(entry, IntentEntry) and entry.intent.line), ""
    )


def step_in(change: Change) -> str:
    """The first step that a change records something of."""
    return next((entry.step for entry in change.entries if isinstance(entry, StepEntry)), "")
