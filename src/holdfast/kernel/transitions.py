"""The life of a run.

                     claim                    let go
        ┌─────────┐ ────────▶ ┌─────────┐ ────────▶ ┌─────────┐
  ────▶ │ pending │           │ running │           │ waiting │
        └─────────┘ ◀──────── └─────────┘ ◀──────── └─────────┘
             ▲     leave, rescue  │  │     claim (timer due, message)
             │                    │  └───▶ completed · failed · cancelled
             │       stuck        ▼                     │
             ├────────────── blocked                    │
             └─── retry (blocked, failed), resume (cancelled) ◀────┘

Rules
- Only the owner moves a running run, and only at its fence. Claiming, leaving and rescuing raise the epoch, so
  a former holder of the run is refused from then on. They are the store's own verbs, since they select.
- What an activation recorded travels in the same Change as what became of the run.
- A worker that may not execute a run now gives it back as pending, see `takeovers`.
- A worker whose code does not fit hands the run over to another worker: it stays running, under that worker's name. A
  blocked one that is taken up goes the same way. See `handovers`.
- A run that ends keeps its key for `retention_ms` more, counted from the end.
- A run that continues as new stays what it is, with its key, its inbox and its owner; only its journal begins again.
- A caller that ends a run that is not its own (a deadline passed, or no code needs to run) raises its epoch.
- A retry voids the record of the failure that ended the run, if an effect or a child caused it, and nothing else:
  what the code did about the failure stays recorded, and is not done again if it is asked for again. A run that was
  undone when it failed cannot be retried.
"""

from __future__ import annotations

from typing import assert_never

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import NotAllowedNow
from holdfast.kernel import batches, cancels, lanes, starts
from holdfast.kernel.changes import Alive, Blob, Change, HandedOver, HookOpen, Shown
from holdfast.kernel.journal import (
    Attempted,
    Blocked,
    CancelAsked,
    Cancelled,
    Completed,
    Continued,
    Entry,
    Failed,
    Failure,
    GaveUp,
    Intended,
    Joined,
    KeyReleased,
    Received,
    Resumed,
    Retried,
    Started,
    Stopped,
    Value,
    void_positions,
)
from holdfast.kernel.messages import Envelope, KeyTaken, SignalMessage
from holdfast.kernel.runs import COMPLETED, ENDED, NOT_BEGUN, RUNNING, Fenced, Run, Status
from holdfast.kernel.starts import Hand
from holdfast.kernel.times import Instant

_encode = msgspec.json.Encoder().encode
TAKEN_UP = "a worker with other code has joined"


class Recorded(Struct, frozen=True, gc=False):
    """What an activation has to record: entries, the large values among them, the messages they came from.

    Besides, what the run shows, if that has changed, and the hooks that it opened and closed.
    """

    entries: tuple[Entry, ...] = ()
    blobs: tuple[Blob, ...] = ()
    read: tuple[str, ...] = ()
    shown: Shown | None = None
    opens: tuple[HookOpen, ...] = ()
    closes: tuple[HookOpen, ...] = ()


NOTHING = Recorded()


class Progressed(Struct, frozen=True, gc=False):
    """It goes on; there is something to record."""


class LetGo(Struct, frozen=True, gc=False):
    """It only waits, and costs nothing while it does. `wake_at_ms` is the first of its timers, if it has any."""

    wake_at_ms: Instant | None
    waits: bytes = b"[]"


class Postponed(Struct, frozen=True, gc=False):
    """It is given back before anything of it was executed, to be claimed again from then on."""

    wake_at_ms: Instant


class ContinuedAsNew(Struct, frozen=True, gc=False):
    """It continues as new. `unheard` are the signals that the code has not taken yet: they go along."""

    first: Continued
    unheard: tuple[Received, ...] = ()


class RunReturned(Struct, frozen=True, gc=False):
    """It returned. `unheard` are signals to its key that it did not take: a successor begins with them.

    `unread` are the ids of those that are not even recorded. `first` is the entry that its journal begins with, and
    `blobs` what belongs to it.
    """

    output: Value
    first: Started | Continued | None = None
    unheard: tuple[SignalMessage, ...] = ()
    unread: tuple[str, ...] = ()
    blobs: tuple[Blob, ...] = ()


class RunRaised(Struct, frozen=True, gc=False):
    error: Failure


class CancelledItself(Struct, frozen=True, gc=False):
    """The workflow ended in its own cancellation."""


class Stuck(Struct, frozen=True, gc=False):
    """It cannot go on without a person. If it steps aside, it gives up its place in its lane until it goes on."""

    code: str
    message: str
    steps_aside: bool = False


Event = Progressed | LetGo | Postponed | ContinuedAsNew | RunReturned | RunRaised | CancelledItself | Stuck


def decide(run: Run, event: Event, *, recorded: Recorded = NOTHING, now_ms: Instant) -> Change:
    """What becomes of a running run when `event` reaches it."""
    assert run.status is RUNNING, run
    if isinstance(event, RunReturned):  # as nearly every run ends: a pattern would take it apart the slow way
        return _complete(run, event, recorded, now_ms=now_ms)
    match event:
        case Progressed():
            return progress(run, recorded)
        case LetGo(wake_at_ms, waits):
            after = replace(_unowned(run, Status.WAITING, wake_at_ms=wake_at_ms), waits=waits)
            return _change(run, after, recorded)
        case Postponed(wake_at_ms):
            # Nothing of it was begun here: whether something may be under way for it is as before. The first claim
            # alone has the first epoch: nothing was begun before that one.
            as_before = NOT_BEGUN if run.epoch == 1 else run.waits
            after = replace(_unowned(run, Status.PENDING, wake_at_ms=wake_at_ms), waits=as_before)
            return _change(run, after, recorded)
        case ContinuedAsNew(first, unheard):
            after = replace(run, markers=b"", input=first.input)
            kept = replace(recorded, entries=(first, *unheard))
            return replace(_change(run, after, kept), replaces_journal=True)
        case RunRaised(error):
            after = _ended(run, Status.FAILED, now_ms=now_ms, error=_encode(error))
            return _change(run, after, recorded, Failed(now_ms, error))
        case CancelledItself():
            return _change(run, _ended(run, Status.CANCELLED, now_ms=now_ms), recorded, Cancelled(now_ms))
        case Stuck(code, message, steps_aside):
            after = replace(_unowned(run, Status.BLOCKED, wake_at_ms=None), error=_encode(Failure(code, message)))
            after = replace(after, aside=steps_aside and bool(run.lane))
            return _change(run, after, recorded, Blocked(now_ms, code, message))
        case _:  # pragma: no cover
            assert_never(event)


def _complete(run: Run, event: RunReturned, recorded: Recorded, *, now_ms: Instant) -> Change:
    """It has returned; a successor takes over what was sent to its key and it has not taken."""
    after = _ended(run, COMPLETED, now_ms=now_ms, output=_encode(event.output))
    change = _change(run, after, recorded, Completed(now_ms))
    if event.first is None or not (event.unheard or event.unread):
        return change
    then = starts.successor(after, event.first, event.unheard, blobs=event.blobs, now_ms=now_ms)
    return replace(change, then=then, moves=event.unread)


def progress(run: Run, recorded: Recorded) -> Change:
    """A running run goes on, and this is recorded. Nearly all that becomes of runs is this."""
    return _change(run, run, recorded)


def step(run: Run, entry: Entry) -> Change:
    """A running run goes on, and all there is to record is this entry."""
    length = run.length + 1
    change_id = _change_id(run, length, run.status)
    guard = Fenced(run.id, run.epoch, run.nonce)
    return Change(change_id, guard, replace(run, length=length, change_id=change_id), (entry,))


def wake(run: Run, *, now_ms: Instant) -> Change:
    """Let a run that waits be claimed now, unless it has changed hands since: what its effect waited for is there."""
    assert run.status is Status.WAITING, run
    change = _change(run, replace(run, wake_at_ms=now_ms), NOTHING)
    return _renamed(change, f"{change.id}.wake.{now_ms}")


def hand_over(run: Run, hand: Hand) -> Change:
    """Give a running run, of which nothing has been begun under its present fence, to another worker."""
    assert run.status is Status.RUNNING, run
    return _handed(run, hand)


def take_up(run: Run, hand: Hand, *, now_ms: Instant) -> Change:
    """Give a blocked run to a worker whose code may fit it. One that has stepped aside has to wait for its turn."""
    assert run.status is Status.BLOCKED, run
    if run.aside:
        change = go_on(run, Retried(now_ms, reason=TAKEN_UP), now_ms=now_ms)
        return _renamed(change, f"{change.id}.to.{hand.nonce}")
    after = replace(run, status=Status.RUNNING, wake_at_ms=None, error=None)
    return _handed(run, hand, after, Retried(now_ms, reason=TAKEN_UP))


def _handed(run: Run, hand: Hand, after: Run | None = None, *entries: Entry) -> Change:
    owned = replace(after or run, owner=hand.owner, nonce=hand.nonce, epoch=run.epoch + 1)
    change = _change(run, owned, NOTHING, *entries)
    # A holder may have brought the run to this length and status by a change of its own.
    change_id = f"{change.id}.to.{hand.nonce}"
    assert change.run is not None
    return replace(change, id=change_id, guard=HandedOver(run.fence), run=replace(change.run, change_id=change_id))


def retry(run: Run, journal: tuple[Entry, ...], *, now_ms: Instant, bulk: str = "") -> Change:
    """Try a failed or blocked run again from its last record."""
    if run.status not in {Status.FAILED, Status.BLOCKED}:
        raise NotAllowedNow(f"run {run.id} is {run.status}", hint="Only a failed or a blocked run can be retried.")
    stops = cancels.check_not_undone(run, journal) if run.status is Status.FAILED else ()
    return _in_bulk(go_on(run, Retried(now_ms, (*_void(run, journal), *stops), bulk), now_ms=now_ms), bulk)


def was_taken_up(journal: tuple[Entry, ...]) -> bool:
    """Whether a worker has taken up the run by itself, so that there is nothing left to be retried."""
    stood = [entry for entry in journal if isinstance(entry, Blocked | Failed | Retried | CancelAsked)]
    return bool(stood) and isinstance(stood[-1], Retried) and stood[-1].reason == TAKEN_UP


def resume(run: Run, journal: tuple[Entry, ...], *, now_ms: Instant, bulk: str = "") -> Change:
    """Let a cancelled run go on as if it had not been cancelled."""
    return _in_bulk(go_on(run, Resumed(now_ms, cancels.taken_back(run, journal), bulk), now_ms=now_ms), bulk)


def _in_bulk(change: Change, bulk: str) -> Change:
    """Another may move the run at the same length; a bulk run must know whether it was itself."""
    return _renamed(change, f"{change.id}.{bulk}") if bulk else change


def go_on(run: Run, why: Entry, *, now_ms: Instant) -> Change:
    """A run that stands still goes on, and this is recorded as the reason."""
    if run.key is not None and not run.holds_key and not batches.is_batch(run):
        raise NotAllowedNow(
            f"run {run.id} no longer holds its key {run.key!r}",
            hint="A later run has taken the key over; look at that one, or fork this one under another key.",
        )
    after = replace(
        run,
        status=Status.PENDING,
        epoch=run.epoch + 1,
        nonce="",
        wake_at_ms=now_ms,
        finished_at_ms=None,
        expires_at_ms=None,
        error=None,
        aside=False,
    )
    change = _change(run, after, NOTHING, why)
    return replace(change, enters=lanes.again(run)) if run.lane else change


def stop(
    run: Run,
    journal: tuple[Entry, ...],
    *,
    reason: str,
    late: bool,
    recorded: Recorded,
    now_ms: Instant,
    error: Failure | None = None,
) -> Change:
    """End a live run without its owner: nothing more is run for it, and its holder is refused from now on.

    It is cancelled, or it fails with `error`. `late` says that the deadline of a request has passed; `recorded` is what
    lies unread in its inbox: if it is resumed some day, it will see its signals.
    """
    assert run.status not in ENDED, run
    asked = cancels.request_in(run, journal) is not None
    request = () if asked else (CancelAsked(now_ms, now_ms, reason, error=error),)
    stopped = Stopped(now_ms, by_deadline=late, unsure=cancels.is_unsure(run))
    if error is None:
        after, end = _ended(run, Status.CANCELLED, now_ms=now_ms), Cancelled(now_ms)
    else:
        after, end = _ended(run, Status.FAILED, now_ms=now_ms, error=_encode(error)), Failed(now_ms, error)
    change = _change(run, replace(after, epoch=run.epoch + 1, nonce=""), recorded, *request, stopped, end)
    # Its owner may end it at the same length; each must know whose end it was.
    return _renamed(change, f"{change.id}.stop")


def _renamed(change: Change, change_id: str) -> Change:
    return replace(change, id=change_id, run=None if change.run is None else replace(change.run, change_id=change_id))


def release_key(run: Run, *, reason: str, nonce: str, now_ms: Instant) -> Change:
    """Take the key from a run. An ended one records it at once, a live one by its owner."""
    if run.key is None or not run.holds_key:
        raise NotAllowedNow(f"run {run.id} holds no key", hint="There is nothing to release.")
    if run.status in ENDED:
        after = replace(run, holds_key=False, epoch=run.epoch + 1)
        return replace(_change(run, after, NOTHING, KeyReleased(now_ms, reason)), takes_key=True)
    message = KeyTaken(f"key_taken/{nonce}", reason)
    return Change(f"{run.id}/{message.id}", Alive(run.id), envelopes=(Envelope(run.id, message),), takes_key=True)


def _void(run: Run, journal: tuple[Entry, ...]) -> tuple[int, ...]:
    """The positions of the records that led to the failure: the failed step's, so that it starts afresh."""
    failures = [entry for entry in journal if isinstance(entry, Failed)]
    step = failures[-1].error.step if failures else ""
    if not step or not isinstance(journal[-1], Failed):
        return ()
    already = void_positions(journal)
    return tuple(
        position
        for position, entry in enumerate(journal, run.length - len(journal))
        if isinstance(entry, Intended | Attempted | GaveUp | Joined) and entry.step == step and position not in already
    )


def _unowned(run: Run, status: Status, *, wake_at_ms: Instant | None) -> Run:
    return replace(run, status=status, owner=None, wake_at_ms=wake_at_ms, waits=None)


def _ended(
    run: Run, status: Status, *, now_ms: Instant, output: bytes | None = None, error: bytes | None = None
) -> Run:
    return replace(
        run,
        status=status,
        owner=None,
        wake_at_ms=None,
        finished_at_ms=now_ms,
        expires_at_ms=now_ms + run.retention_ms,
        output=output,
        error=error,
        waits=None,
        aside=False,
    )


def _change_id(before: Run, length: int, status: Status) -> str:
    # Unique without chance: a holder brings a run to each (length, status) at most once, and a retried
    # commit of the very same decision must carry the very same id. The epoch alone does not name the holder: a failover
    # of the store may forget a claim and issue its epoch again. Without the nonce, the second of the two holders
    # would be told that its own change is stored, although it is the other's.
    return f"{before.id}/{before.epoch}.{before.nonce}.{length}.{status}"


def _change(before: Run, after: Run, recorded: Recorded, *last: Entry) -> Change:
    entries = recorded.entries + last
    length = before.length + len(entries)
    change_id = _change_id(before, length, after.status)
    after = replace(after, length=length, change_id=change_id)
    if recorded.shown is not None:
        after = replace(after, attributes=recorded.shown.attributes, markers=recorded.shown.markers)
    return Change(
        change_id,
        before.fence,
        after,
        entries,
        recorded.blobs,
        read=recorded.read,
        shown=recorded.shown,
        opens=recorded.opens,
        closes=recorded.closes,
    )
