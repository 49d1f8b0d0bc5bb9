"""The story of a run: its journal in words, why it waits, and what may be done now."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple, assert_never

import msgspec
from msgspec import Struct

from holdfast.errors import NotAllowedNow
from holdfast.kernel import attributes, cancels, doubts, retry_requests, timeouts, waits
from holdfast.kernel.journal import (
    Attempted,
    AttemptEntry,
    Blocked,
    ByHand,
    CancelAsked,
    Cancelled,
    Closed,
    Completed,
    Continued,
    Dropped,
    Elapsed,
    Entry,
    Failed,
    Failure,
    Forked,
    GaveUp,
    Ignored,
    Intended,
    Joined,
    KeyReleased,
    Late,
    Marked,
    Opened,
    Patched,
    Performed,
    Received,
    Resumed,
    Retried,
    Spawned,
    Started,
    Stopped,
    Tagged,
    void_positions,
)
from holdfast.kernel.runs import ENDED, Run, Status
from holdfast.kernel.times import EPOCH, Instant
from holdfast.kernel.units import utc_of
from holdfast.kernel.waits import Wait


class Line(NamedTuple):
    """One entry of the journal, in words."""

    position: int
    at: datetime
    text: str
    counts: bool  # False: a retry or a resumption has taken it back
    traceback: str = ""  # of what was raised: the frames of your code


class Story(Struct, frozen=True):
    """What happened to a run, why it waits, and what may be done about it."""

    run_id: str
    headline: str
    waiting_on: tuple[Wait, ...]
    next_actions: tuple[str, ...]
    lines: tuple[Line, ...]

    def __str__(self) -> str:
        text, shown = [self.headline], self.last_failure
        for line in self.lines:
            mark = " " if line.counts else "~"
            text.append(f"{mark}{line.position:>4}  {line.at.isoformat(timespec='milliseconds')}  {line.text}")
            if line is shown:
                text += [f"      {each}" for each in line.traceback.splitlines()]
        text += [f"it waits for {wait}" for wait in self.waiting_on]
        text.append(f"possible now: {', '.join(self.next_actions)}")
        return "\n".join(text)

    @property
    def last_failure(self) -> Line | None:
        """The last line that counts and has a traceback: the one to be shown."""
        return next((line for line in reversed(self.lines) if line.traceback and line.counts), None)


def story(
    run: Run, journal: tuple[Entry, ...], *, waiting_on: tuple[Wait, ...], next_actions: tuple[str, ...]
) -> Story:
    """The story of `run`."""
    void, first = void_positions(journal), run.length - len(journal)
    lines = tuple(
        Line(
            position,
            utc_of(entry.at_ms),
            f"{worded(entry)}{_by_hand(entry)}",
            position not in void,
            traceback=_traceback_in(entry),
        )
        for position, entry in enumerate(journal, first)
    )
    return Story(run.id, _headline(run), waiting_on, next_actions, lines)


def under_way(run: Run, journal: tuple[Entry, ...]) -> tuple[Wait, ...]:
    """The `once` effects of a running run that were begun, as far as their outcomes are not recorded."""
    void, first = void_positions(journal), run.length - len(journal)
    begun: dict[str, Wait] = {}
    for position, entry in enumerate(journal, first):
        if isinstance(entry, Intended) and position not in void:
            begun[entry.step] = Wait("outcome", entry.intent.name, step=entry.step)
        elif isinstance(entry, Attempted | Performed | GaveUp | Dropped):
            begun.pop(entry.step, None)
    return tuple(begun.values()) if run.status is Status.RUNNING else ()


def next_actions(run: Run, journal: tuple[Entry, ...], *, now_ms: Instant = EPOCH) -> tuple[str, ...]:
    """The verbs that may be used on the run, as exactly as its journal can tell."""
    verbs = waits.next_actions(run)
    if isinstance(journal[0], Continued):  # the part that a fork would copy is gone
        verbs = tuple(verb for verb in verbs if verb != "fork")
    if "resume" in verbs:
        try:
            cancels.taken_back(run, journal)
        except NotAllowedNow:
            return tuple(verb for verb in verbs if verb != "resume")
    if "retry" in verbs and run.status is Status.FAILED:
        try:
            cancels.check_not_undone(run, journal)
        except NotAllowedNow:
            return tuple(verb for verb in verbs if verb != "retry")
    if "retry" in verbs and doubts.in_doubt(run, journal):  # a retry alone would block again
        return ("decide", *verbs)
    if retry_requests.not_due(run, journal, now_ms=now_ms):
        return ("retry_now", *verbs)
    return verbs


def _headline(run: Run) -> str:
    key = "without a key" if run.key is None else f"under key {run.key!r}"
    held = "" if run.key is None or run.holds_key else ", which it has lost since"
    ended = f", ended {utc_of(run.finished_at_ms).isoformat(timespec='milliseconds')}" if run.finished_at_ms else ""
    owns = run.key is not None and run.holds_key and run.status not in ENDED
    joined = "; starts under this key join it" if owns else ""
    limit = "" if run.status in ENDED else _time_limit(run)
    return f"run {run.id} of {run.workflow} {key}{held}: {run.status}{ended}{joined}{limit}"


def _time_limit(run: Run) -> str:
    at = timeouts.shown_by(attributes.decode(run.attributes))
    return "" if at is None else f"; its time limit is {at.isoformat(timespec='milliseconds')}"


def worded(entry: Entry) -> str:  # noqa: C901, PLR0911, PLR0912 - a table, as long as its subject
    """One entry in words."""
    match entry:
        case Started():
            return "was admitted"
        case Continued(generation=generation):
            return f"continued as new, for the {generation}. time"
        case Intended(step=step, attempt=attempt):
            return f"was about to call {step}, attempt {attempt}"
        case Attempted(step=step, attempt=attempt, by_hand=ByHand(retry_now=True)):
            return f"attempt {attempt + 1} of {step} was to begin at once"
        case Attempted(step=step, attempt=attempt, error=error, retry_at_ms=retry_at_ms):
            again = utc_of(retry_at_ms).isoformat(timespec="milliseconds")
            began = f"{_began(entry)}," if entry.took_ms else ""
            return f"attempt {attempt} of {step}{began} failed with {_failure(error)}; to be tried again at {again}"
        case Performed(step=step, intent=intent, attempt=attempt):
            did = f"undid {step.removeprefix(cancels.UNDO)}" if intent.kind == "undo" else f"performed {step}"
            return f"{did} under key {intent.key!r}, in attempt {attempt}{_began(entry)}"
        case GaveUp(step=step, attempt=attempt, error=error):
            when = f"after attempt {attempt}" if attempt else "before the first attempt"
            return f"gave up on {step} {when}{_began(entry)}: {_failure(error)}"
        case Elapsed(step=step):
            return f"timer {step} elapsed"
        case Spawned(step=step, run_id=run_id, created=created):
            return f"{'started' if created else 'joined'} child run {run_id} as {step}"
        case Joined(step=step, run_id=run_id, error=error):
            return f"child run {run_id} ({step}) ended" + (f" with {_failure(error)}" if error else "")
        case Received(hook=hook, left=True):
            return f"ended with a signal to hook {hook!r} left unread"
        case Received(hook=hook):
            return f"received a signal to hook {hook!r}"
        case Opened(intent=intent, holder=None):
            return f"opened hook {intent.name!r} with token {intent.key!r}"
        case Opened(intent=intent, holder=holder):
            taken = "" if holder is None else holder.run_id
            return f"could not open hook {intent.name!r}: token {intent.key!r} is held by run {taken}"
        case CancelAsked(error=Failure() as error):
            return f"has taken too long, and is to fail with {_failure(error)}"
        case CancelAsked(reason=reason):
            return "was asked to cancel" + (f": {reason}" if reason else "")
        case Stopped(by_deadline=True):
            return "was stopped by the deadline, without further cleanup"
        case Stopped(paused=True):
            return "stands still, to be resumed"
        case Stopped(unsure=True):
            return "was ended where it stood: no live code could go on with it, and nothing more is undone"
        case Stopped(error=Failure() as error):
            return f"its code has failed with {_failure(error)}; what it left behind is being undone"
        case Stopped(kept=True):
            return "its code has ended; what it left behind stays"
        case Stopped():
            return "its code has ended; what it left behind is being undone"
        case Resumed(bulk=bulk):
            return f"was resumed{_by(bulk)}; the cancellation no longer counts"
        case Retried(reason=reason) if reason:
            return f"was taken up again: {reason}"
        case Retried(bulk=bulk):
            return f"was retried{_by(bulk)}"
        case Completed():
            return "completed"
        case Failed(error=error):
            return f"failed with {_failure(error)}"
        case Cancelled():
            return "was cancelled"
        case Blocked(code=code, message=message):
            return f"is blocked ({code}): {message}"
        case Marked(marker=marker):
            return f"reached marker {marker!r}"
        case Tagged(attributes=changes):
            return f"set attributes {msgspec.json.decode(changes)}"
        case Closed(hook=hook):
            return f"closed hook {hook!r}"
        case Patched(name=name):
            return f"took the new way at patch {name!r}"
        case Ignored(hook=hook, why=why):
            return f"passed over a payload for hook {hook!r}: {why}"
        case Dropped(step=step):
            return f"stopped waiting for {step}, which may have happened"
        case Late(step=step, error=error, run_id=run_id):
            if run_id:
                return f"{step} still started child run {run_id}"
            return f"{step} still " + (f"failed with {_failure(error)}" if error else "returned")
        case Forked(from_run=from_run, before=before):
            return f"up to here it is a fork of run {from_run}, which differs from step {before} on"
        case KeyReleased(reason=reason):
            return "lost its key" + (f": {reason}" if reason else "")
        case _:  # pragma: no cover
            assert_never(entry)


def _began(entry: AttemptEntry) -> str:
    """When the attempt began, if the entry before does not tell."""
    return "" if entry.began_at is None else f", which began at {entry.began_at.isoformat(timespec='milliseconds')}"


def _by(bulk: str) -> str:
    return f" by bulk run {bulk}" if bulk else ""


def _by_hand(entry: Entry) -> str:
    """Who has decided what came of a step in doubt, and why they know; or who has asked for an attempt, and why."""
    said = entry.by_hand if isinstance(entry, Performed | GaveUp | Attempted) else None
    if said is None:
        return ""
    verb = "asked for" if said.retry_now else "decided"
    return f"; {verb} by {said.by or 'hand'}{f', since {said.reason}' if said.reason else ''}"


def _traceback_in(entry: Entry) -> str:
    """The frames that led to what an entry says was raised; of a group, those of its members too."""
    failure = entry.error if isinstance(entry, Attempted | GaveUp | Joined | Late | Failed) else None
    if isinstance(entry, Attempted) and entry.by_hand is not None and entry.by_hand.retry_now:
        return ""  # the entry of that attempt has it
    return "" if failure is None else "".join(_frames(failure))


def _frames(failure: Failure) -> Iterator[str]:
    if failure.traceback:
        yield f"{failure.traceback.rstrip()}\n"
    for member in failure.members[:MEMBERS_SHOWN]:
        if frames := "".join(_frames(member)):
            yield f"{member.type}: {member.message[:MESSAGE_SHOWN]}\n{frames}"


MEMBERS_SHOWN = 10
MESSAGE_SHOWN = 200  # of a member, above its frames


def _failure(failure: Failure) -> str:
    """A failure in words; of a group, also its members."""
    words = f"{failure.type}: {failure.message}"
    if not failure.members:
        return words
    shown = [_failure(each) for each in failure.members[:MEMBERS_SHOWN]]
    more = len(failure.members) - len(shown)
    return f"{words} [{'; '.join(shown)}{f'; and {more} more' if more else ''}]"
