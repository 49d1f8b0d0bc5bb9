"""Cancellation: how it is asked for, and the receipt that says what it left behind.

    status of the run                   what a cancellation does
    ──────────────────────────────────  ─────────────────────────────────────────────────────────
    ended                               nothing: the receipt says how it ended
    pending, never begun; blocked       ends it at once: no code needs to run, or none can. Workers that only gave it
                                        back, as they do not serve its version, have begun nothing
    running, waiting, begun before      asks: its owner cancels the code, waits for effects under
                                        way, and undoes what can be undone, until the deadline

    what the journal shows                         outcome
    ─────────────────────────────────────────────  ───────────────
    it completed                                   completed_first
    an effect that may or may not have happened    unknown
    no effect performed                            no_effects
    every effect performed and undone              compensated
    effects left, and the code stands where it was, by declaration   resumable
    effects left                                   partial

Rules
- A run that failed without being told has a receipt by the same table: what its effects and its children show. If its
  workflow undoes on failure, it has been unwound as a cancelled one is.
- A receipt is read off the journal, never remembered: asked for again, it is the same.
- An effect that was interrupted, or did not answer within its timeout, counts as unknown until it has been undone; so
  does one whose undoing was cut short.
- A run that no live code can go on with, as all code contradicts its journal, is ended where it stands. Nothing of it
  is undone then, and each effect that is left says so.
- What a run did before it last continued as new is not in its journal: its receipt never says more than `partial`.
- A cancelled run may be resumed if the code did nothing about the cancellation and nothing was undone.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Literal, NamedTuple, Self, get_args

import msgspec
from msgspec import Struct

from holdfast.errors import NotAllowedNow, WaitsForNothing
from holdfast.kernel.changes import Alive, Change
from holdfast.kernel.journal import (
    TIMED_OUT,
    Attempted,
    CancelAsked,
    Cancelled,
    Closed,
    Continued,
    Dropped,
    Elapsed,
    Entry,
    Failure,
    Forked,
    GaveUp,
    Intended,
    IntentEntry,
    Joined,
    Late,
    Marked,
    Opened,
    Patched,
    Performed,
    Spawned,
    Stopped,
    Tagged,
    step_of,
    void_positions,
)
from holdfast.kernel.messages import CancelRequest, Envelope
from holdfast.kernel.runs import ENDED, NOT_BEGUN, Run, Status
from holdfast.kernel.times import Instant

Outcome = Literal["no_effects", "partial", "resumable", "compensated", "completed_first", "unknown"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
State = Literal["performed", "undone", "unknown"]
UNDO = "undo:"
STOP = "stop:"
NO_CODE_TO_UNDO = "not undone: the run was ended where it stood, as no live code could go on with it"
_DONE_ABOUT_IT = (
    Performed | GaveUp | Joined | Spawned | Attempted | Intended | Opened | Marked | Tagged | Closed | Patched
)
_OF_A_CANCELLATION = CancelAsked | Stopped | Cancelled | Dropped | Late | Elapsed
_decode_failure = msgspec.json.Decoder(Failure).decode


class Left(str):
    """The key of an effect that was begun. It knows what became of it."""

    name: str
    step: str
    state: State
    problem: str  # why it could not be undone

    __slots__ = ("name", "problem", "state", "step")

    def __new__(cls, key: str, *, name: str, step: str, state: State, problem: str = "") -> Self:
        left = super().__new__(cls, key)
        left.name, left.step, left.state, left.problem = name, step, state, problem
        return left

    def __repr__(self) -> str:
        return f"<{str(self)!r} {self.state}{f': {self.problem}' if self.problem else ''}>"


class ChildLeft(Struct, frozen=True):
    """A child run, and what its own receipt says; `unknown` if it had not ended when its parent did."""

    run_id: str
    workflow: str
    outcome: Outcome
    is_empty: bool = False  # neither it nor its own children have performed anything


class Receipt(Struct, frozen=True):
    """What a cancelled or failed run left behind. `stopped` says that the deadline cut its cleanup short."""

    run_id: str
    outcome: Outcome
    effects: tuple[Left, ...] = ()
    children: tuple[ChildLeft, ...] = ()
    reason: str = ""
    stopped: bool = False


class Way(Enum):
    """How a run is cancelled."""

    ENDED = "ended"
    AT_ONCE = "at once"
    BY_ITS_OWNER = "by its owner"


def way(run: Run) -> Way:
    if run.status in ENDED:
        return Way.ENDED
    if run.status is Status.BLOCKED or _never_began(run):
        return Way.AT_ONCE
    return Way.BY_ITS_OWNER


def _never_began(run: Run) -> bool:
    """Whether no worker has had it yet, or only such as do not serve the version that it is pinned to."""
    return run.status is Status.PENDING and (run.epoch == 0 or run.waits == NOT_BEGUN)


def request(run_id: str, *, nonce: str, reason: str, deadline_at_ms: Instant, error: Failure | None = None) -> Change:
    """Ask the owner of a live run to cancel it; or, with an error, to let it fail with that."""
    message = CancelRequest(f"cancel/{nonce}", deadline_at_ms, reason, error)
    return Change(f"{run_id}/{message.id}", Alive(run_id), envelopes=(Envelope(run_id, message),))


def request_in(run: Run, journal: tuple[Entry, ...]) -> CancelAsked | None:
    """The request in the journal that still counts, if there is one."""
    if not any(isinstance(entry, CancelAsked) for entry in journal):
        return None
    void, first = void_positions(journal), run.length - len(journal)
    counting = (entry for position, entry in enumerate(journal, first) if position not in void)
    return next((entry for entry in counting if isinstance(entry, CancelAsked)), None)


def failure_in(run: Run, journal: tuple[Entry, ...]) -> Stopped | None:
    """The record that the code failed and is being undone, or has been, if it still counts."""
    if not any(isinstance(entry, Stopped) and entry.error is not None for entry in journal):
        return None
    void, first = void_positions(journal), run.length - len(journal)
    counting = (entry for position, entry in enumerate(journal, first) if position not in void)
    return next((entry for entry in counting if isinstance(entry, Stopped) and entry.error is not None), None)


def still_asked(run: Run, journal: tuple[Entry, ...], unread: Iterable[str], nonce: str) -> bool:
    """Whether a request to end the run still counts: not read yet, in the journal, or taken by a run that is undone."""
    if f"cancel/{nonce}" in unread:
        return True
    return request_in(run, journal) is not None or failure_in(run, journal) is not None


def is_unsure(run: Run) -> bool:
    """Whether something may be under way for the run that its journal does not show."""
    if run.epoch == 0 or run.status is Status.WAITING:
        return False
    if run.status is Status.PENDING and run.waits is not None:
        return False  # it stood still, and was only given back since
    if run.status is Status.BLOCKED and run.error is not None:
        return _decode_failure(run.error).type != WaitsForNothing.code
    return True


def receipt(run: Run, journal: tuple[Entry, ...], children: tuple[ChildLeft, ...] = ()) -> Receipt:
    """What the journal of an ended run says about its cancellation."""
    first = run.length - len(journal)
    void = void_positions(journal)
    asked = request_in(run, journal)
    stops = [entry for at, entry in enumerate(journal, first) if isinstance(entry, Stopped) and at not in void]
    # A resumption takes a cancellation back, but not what had happened in the world by then.
    effects = _effects([e for at, e in enumerate(journal, first) if at not in void or isinstance(e, Late | Dropped)])
    if any(stop.unsure and not (stop.by_deadline or stop.paused) for stop in stops):
        effects = tuple(each if each.state == "undone" else _as_it_stood(each) for each in effects)
    outcome = _outcome(run, effects, children, stops)
    if isinstance(journal[0], Continued) and outcome in {"no_effects", "compensated"}:
        outcome = "partial"  # what earlier generations did is not in the journal any more
    late = any(stop.by_deadline for stop in stops)
    named = children if asked or run.status is Status.FAILED else ()
    return Receipt(run.id, outcome, effects, named, asked.reason if asked else "", late)


def _outcome(run: Run, effects: tuple[Left, ...], children: tuple[ChildLeft, ...], stops: list[Stopped]) -> Outcome:
    if run.status is Status.COMPLETED:
        return "completed_first"
    states = {effect.state for effect in effects}
    of_children = {child.outcome for child in children if not child.is_empty} - {"no_effects"}
    paused = any(stop.paused for stop in stops)
    if not paused and ("unknown" in states or "unknown" in of_children):
        return "unknown"
    if any(stop.unsure for stop in stops):
        return "unknown"
    if not states and not of_children:
        return "no_effects"
    if paused:
        return "resumable"
    return "compensated" if states <= {"undone"} and of_children <= {"compensated"} else "partial"


def _effects(entries: list[Entry]) -> tuple[Left, ...]:
    """Every effect that was begun, in the order of its record; what failed for good did not happen."""
    left: dict[str, Left] = {}
    cut_short: dict[str, bool] = {}  # calls that may have happened, whatever comes of the next; whether one timed out
    for entry in entries:
        if isinstance(entry, Forked) and entry.beside:
            left.clear()  # that was the work of the run it was forked from
        elif isinstance(entry, IntentEntry) and entry.intent.kind == "undo":
            _learn_of_undo(entry, left)
        elif isinstance(entry, IntentEntry) and entry.intent.kind == "effect":
            _learn_of_effect(entry, left, cut_short)
    return tuple(left.values())


def _learn_of_effect(entry: IntentEntry, left: dict[str, Left], cut_short: dict[str, bool]) -> None:
    step, intent = entry.step, entry.intent
    unknown = Left(intent.key, name=intent.name, step=step, state="unknown")
    match entry:
        case Late(error=Failure()):
            if not cut_short.get(step, False):  # it says what came of the last call, not of one that timed out before
                cut_short.pop(step, None)
                left.pop(step, None)
        case Performed() | Late():
            left[step] = Left(intent.key, name=intent.name, step=step, state="performed")
        case Dropped():
            cut_short.setdefault(step, False)
            left.setdefault(step, unknown)
        case GaveUp(error=error) | Attempted(error=error) if error.type == TIMED_OUT:
            cut_short[step] = True
            left.setdefault(step, unknown)
        case Intended():
            left.setdefault(step, unknown)
        case GaveUp() | Attempted() if step not in cut_short:
            left.pop(step, None)
        case _:
            pass


def _learn_of_undo(entry: IntentEntry, left: dict[str, Left]) -> None:
    effect = left.get(entry.step.removeprefix(UNDO))
    if effect is None:
        return
    match entry:
        case Performed() | Late(error=None):
            left[effect.step] = _with(effect, "undone")
        case GaveUp(error=error) | Late(error=Failure() as error):
            left[effect.step] = _with(effect, effect.state, f"{error.type}: {error.message}")
        case Dropped():
            left[effect.step] = _with(effect, "unknown", "undoing it was cut short")
        case _:
            pass


def _with(effect: Left, state: State, problem: str = "") -> Left:
    return Left(str(effect), name=effect.name, step=effect.step, state=state, problem=problem)


def _as_it_stood(effect: Left) -> Left:
    return effect if effect.problem else _with(effect, effect.state, NO_CODE_TO_UNDO)


class Child(NamedTuple):
    """A child run as its parent's journal knows it."""

    run_id: str
    workflow: str
    has_ended: bool


def children_of(journal: tuple[Entry, ...]) -> tuple[Child, ...]:
    """The child runs that are this run's own: it created them, and did not let them go."""
    ended = {entry.run_id for entry in journal if isinstance(entry, Joined)}
    inherited = journal[0].children if isinstance(journal[0], Continued) else ()
    return tuple(Child(each.run_id, each.workflow, each.run_id in ended) for each in inherited) + tuple(
        Child(entry.run_id, entry.intent.name, entry.run_id in ended)
        for entry in journal
        if (isinstance(entry, Spawned) and entry.created and not entry.detached)
        or (isinstance(entry, Late) and entry.run_id)
    )


def children_left(journal: tuple[Entry, ...]) -> tuple[Child, ...]:
    """Those of its children that count for its receipt: if it stands still, only those that have ended."""
    paused = is_paused(journal)
    return tuple(child for child in children_of(journal) if child.has_ended or not paused)


def performed_nothing(receipt: Receipt, journal: tuple[Entry, ...], children: Iterable[ChildLeft]) -> bool:
    """Whether neither the run nor any run below it has performed anything.

    The children are given: the receipt of a run that was never asked to stop names none, whatever they have done. And
    what earlier generations did is not in the journal any more.
    """
    is_whole = not isinstance(journal[0], Continued)
    return is_whole and not receipt.effects and all(child.is_empty for child in children)


def check_not_undone(run: Run, journal: tuple[Entry, ...]) -> tuple[int, ...]:
    """The positions of the records that its code failed and was unwound, which a retry takes back.

    Raises `NotAllowedNow` if something was undone, or may have been: the code would go on as if it were still there.
    """
    first, void = run.length - len(journal), void_positions(journal)
    counting = [(at, entry) for at, entry in enumerate(journal, first) if at not in void]
    failed_at = next((at for at, each in counting if isinstance(each, CancelAsked | Stopped) and each.error), None)
    if failed_at is None:
        return ()
    since = [(at, entry) for at, entry in counting if at >= failed_at]
    begun = [entry for _, entry in since if step_of(entry).startswith((UNDO, STOP))]
    if begun:
        ended = next((each for each in begun if isinstance(each, Performed | Joined)), None)
        told = (
            f"may have been undone since it failed: an undo was begun, and did not return: {_told(begun[-1])}"
            if ended is None
            else f"has been undone since it failed: {_told(ended)}"
        )
        raise NotAllowedNow(
            f"run {run.id} {told}",
            hint="Start it again, under another key or in its place: start(..., replace=run). "
            "Or fork it from a step before what was undone.",
        )
    return tuple(at for at, entry in since if isinstance(entry, CancelAsked | Stopped))


def _told(entry: Entry) -> str:
    return f"{entry.what.replace('_', ' ')} {step_of(entry)}"


def is_paused(journal: tuple[Entry, ...]) -> bool:
    """Whether the run stands still, to be resumed: then its children go on."""
    return any(isinstance(entry, Stopped) and entry.paused for entry in journal)


def taken_back(run: Run, journal: tuple[Entry, ...]) -> tuple[int, ...]:
    """The positions of what a resumption takes back: all that follows the request. Raises `NotAllowedNow`."""
    if run.status is not Status.CANCELLED:
        raise NotAllowedNow(f"run {run.id} is {run.status}", hint="Only a cancelled run can be resumed.")
    first, void = run.length - len(journal), void_positions(journal)
    positions = [position for position in range(first, run.length) if position not in void]
    asked = next((at for at in positions if isinstance(journal[at - first], CancelAsked)), None)
    if asked is None:
        raise NotAllowedNow(f"run {run.id} cancelled itself", hint="Fork it from a step before that.")
    since = [(at, journal[at - first]) for at in positions if at >= asked]
    if not any(isinstance(entry, Stopped) and entry.paused for _, entry in since):
        _check_nothing_was_done([entry for _, entry in since], run)
    return tuple(at for at, entry in since if isinstance(entry, _OF_A_CANCELLATION))


def _check_nothing_was_done(since: list[Entry], run: Run) -> None:
    """Raises `NotAllowedNow` if code or engine did something about the cancellation, or may have."""
    for entry in since:
        undoing = isinstance(entry, Dropped) and entry.intent.kind == "undo"
        blind = isinstance(entry, Stopped) and entry.unsure and entry.at_ms != since[0].at_ms
        if isinstance(entry, _DONE_ABOUT_IT) or undoing or blind:
            what = "may have been going on" if blind else f"{entry.what} {getattr(entry, 'step', '')}".rstrip()
            raise NotAllowedNow(
                f"run {run.id} went on after it was cancelled: {what}", hint="Fork it from a step before that."
            )
