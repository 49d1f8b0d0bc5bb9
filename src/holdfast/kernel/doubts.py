"""Doubts: a person says what came of a `once` effect, where nothing else can.

    what is said    what is recorded, with who said it
    ──────────────  ───────────────────────────────────────────────────────────
    returned        `performed`: the code gets the value
    failed          `gave_up`: the code gets the error
    not performed   `attempted`, to be repeated at once: it is called, for the first time as far as the world knows

Rules
- A step is in doubt if its run is blocked and the last that counts of its records is that it was about to be called.
- What was said is said: the same again changes nothing, another verdict is refused.
- If the step comes into doubt again, after it was called once more, that is another doubt.
"""

from __future__ import annotations

from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import NotAllowedNow
from holdfast.kernel import transitions
from holdfast.kernel.changes import Blob, Change
from holdfast.kernel.journal import (
    Attempted,
    ByHand,
    Entry,
    Failure,
    GaveUp,
    Intended,
    Performed,
    Value,
    void_positions,
)
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.times import Instant


class SaidReturned(Struct, frozen=True, gc=False):
    """It happened, and this is what it returned."""

    value: Value
    blobs: tuple[Blob, ...] = ()


class SaidFailed(Struct, frozen=True, gc=False):
    """It failed for good."""

    error: Failure


class SaidNotPerformed(Struct, frozen=True, gc=False):
    """It never happened, and shall be called. `error` says so in the journal."""

    error: Failure


Verdict = SaidReturned | SaidFailed | SaidNotPerformed


def in_doubt(run: Run, journal: tuple[Entry, ...]) -> dict[str, Intended]:
    """The steps of a run that a person may decide, by id."""
    if run.status is not Status.BLOCKED:
        return {}
    void, last = void_positions(journal), dict[str, Entry]()
    for position, entry in enumerate(journal, run.length - len(journal)):
        if position not in void and (step := getattr(entry, "step", "")):
            last[step] = entry
    return {step: entry for step, entry in last.items() if isinstance(entry, Intended)}


def decide(
    run: Run, journal: tuple[Entry, ...], step: str, verdict: Verdict, by_hand: ByHand, *, nonce: str, now_ms: Instant
) -> Change | None:
    """Record the verdict and let the run go on; None if the same was said before. Raises `NotAllowedNow`."""
    intended = in_doubt(run, journal).get(step)
    if intended is None:
        _check_said_before(run, journal, step, verdict)
        return None
    intent, attempt = intended.intent, intended.attempt
    match verdict:
        case SaidReturned(value=value):
            entry = Performed(now_ms, step, intent, attempt, value, by_hand)
        case SaidFailed(error=error):
            entry = GaveUp(now_ms, step, intent, attempt, error, by_hand)
        case SaidNotPerformed(error=error):
            entry = Attempted(now_ms, step, intent, attempt, error, now_ms, by_hand)
        case _:  # pragma: no cover
            assert_never(verdict)
    change = transitions.go_on(run, entry, now_ms=now_ms)
    # Two people may decide at the same length, or one retry it; each must know whose word was taken.
    change_id = f"{change.id}.decide.{nonce}"
    assert change.run is not None
    blobs = verdict.blobs if isinstance(verdict, SaidReturned) else ()
    return replace(change, id=change_id, run=replace(change.run, change_id=change_id), blobs=blobs)


def _check_said_before(run: Run, journal: tuple[Entry, ...], step: str, verdict: Verdict) -> None:
    said = [
        entry
        for entry in journal
        if isinstance(entry, Performed | GaveUp | Attempted) and entry.step == step and _is_decided(entry)
    ]
    if not said:
        raise NotAllowedNow(
            f"step {step!r} of run {run.id} is not in doubt: the run is {run.status}",
            hint="Only a step that blocks its run, since its outcome is not known, can be decided.",
        )
    if not _is_same(said[-1], verdict):
        raise NotAllowedNow(
            f"step {step!r} of run {run.id} was decided otherwise: {said[-1].what}",
            hint="A decision stands. Look at the journal; fork the run from a step before it.",
        )


def _is_decided(entry: Performed | GaveUp | Attempted) -> bool:
    return entry.by_hand is not None and not entry.by_hand.retry_now


def _is_same(entry: Performed | GaveUp | Attempted, verdict: Verdict) -> bool:
    match entry:
        case Performed(value=value):
            return isinstance(verdict, SaidReturned) and _content(value) == _content(verdict.value)
        case GaveUp(error=error):
            return isinstance(verdict, SaidFailed) and error.message == verdict.error.message
        case Attempted():
            return isinstance(verdict, SaidNotPerformed)
        case _:  # pragma: no cover
            assert_never(entry)


def _content(value: Value) -> bytes | str:
    return value.blob or bytes(value.json)  # pyright: ignore[reportArgumentType] - one of the two is there
