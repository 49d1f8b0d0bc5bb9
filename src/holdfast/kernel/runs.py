"""The life of a run.

                     claim                    let go
        ┌─────────┐ ────────▶ ┌─────────┐ ────────▶ ┌─────────┐
  ────▶ │ pending │           │ running │           │ waiting │
        └─────────┘ ◀──────── └─────────┘ ◀──────── └─────────┘
             ▲     leave, rescue  │  │     claim (timer due, message)
             │                    │  └───▶ completed · failed · cancelled
             │       stuck        ▼                     │
             ├────────────── blocked                    │
             └──────────── retry (blocked, failed) ◀────┘

Rules
- Only the owner moves a running run, and only at its fence. Claiming, leaving and rescuing raise the epoch, so
  whoever held the run before is refused from then on. They are the store's own verbs, since they select.
- What an activation recorded travels in the same Change as what became of the run.
- A run that ends keeps its key for `retention_ms` more, counted from the end.
- A retry voids the record of the failure that ended the run, if an effect or a child caused it, and nothing else:
  what the code did about the failure stays recorded, and is not done again if it is asked for again.
"""

from __future__ import annotations

from typing import assert_never

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import NotAllowedNow
from holdfast.kernel.changes import Blob, Change, Run, Status
from holdfast.kernel.journal import (
    Attempted,
    Blocked,
    Cancelled,
    Completed,
    Entry,
    Failed,
    Failure,
    GaveUp,
    Intended,
    Joined,
    Retried,
    Value,
    void_positions,
)

_encode = msgspec.json.Encoder().encode


class Recorded(Struct, frozen=True, gc=False):
    """What an activation has to record: entries, the large values among them, the messages they came from."""

    entries: tuple[Entry, ...] = ()
    blobs: tuple[Blob, ...] = ()
    read: tuple[str, ...] = ()


NOTHING = Recorded()


class Progressed(Struct, frozen=True, gc=False):
    """It goes on; there is something to record."""


class LetGo(Struct, frozen=True, gc=False):
    """It only waits, and costs nothing while it does. `wake_ms` is the first of its timers, if it has any."""

    wake_ms: int | None


class Returned(Struct, frozen=True, gc=False):
    output: Value


class Raised(Struct, frozen=True, gc=False):
    error: Failure


class CancelledItself(Struct, frozen=True, gc=False):
    """The workflow ended in its own cancellation."""


class Stuck(Struct, frozen=True, gc=False):
    """It cannot go on without a person."""

    code: str
    message: str


Event = Progressed | LetGo | Returned | Raised | CancelledItself | Stuck


def decide(run: Run, event: Event, *, recorded: Recorded = NOTHING, now_ms: int) -> Change:
    """What becomes of a running run when `event` reaches it."""
    assert run.status is Status.RUNNING, run
    match event:
        case Progressed():
            return _change(run, run, recorded)
        case LetGo(wake_ms):
            return _change(run, _unowned(run, Status.WAITING, wake_ms=wake_ms), recorded)
        case Returned(output):
            after = _ended(run, Status.COMPLETED, now_ms=now_ms, output=_encode(output))
            return _change(run, after, recorded, Completed(now_ms))
        case Raised(error):
            after = _ended(run, Status.FAILED, now_ms=now_ms, error=_encode(error))
            return _change(run, after, recorded, Failed(now_ms, error))
        case CancelledItself():
            return _change(run, _ended(run, Status.CANCELLED, now_ms=now_ms), recorded, Cancelled(now_ms))
        case Stuck(code, message):
            after = replace(_unowned(run, Status.BLOCKED, wake_ms=None), error=_encode(Failure(code, message)))
            return _change(run, after, recorded, Blocked(now_ms, code, message))
        case _:  # pragma: no cover
            assert_never(event)


def retry(run: Run, journal: tuple[Entry, ...], *, now_ms: int) -> Change:
    """Try a failed or blocked run again from its last record."""
    if run.status not in {Status.FAILED, Status.BLOCKED}:
        raise NotAllowedNow(f"run {run.id} is {run.status}", hint="Only a failed or a blocked run can be retried.")
    if run.key is not None and not run.holds_key:
        raise NotAllowedNow(
            f"run {run.id} no longer holds its key {run.key!r}",
            hint="A later run has taken the key over; look at that one.",
        )
    after = replace(
        run,
        status=Status.PENDING,
        epoch=run.epoch + 1,
        nonce="",
        wake_ms=now_ms,
        finished_ms=None,
        expires_ms=None,
        error=None,
    )
    return _change(run, after, NOTHING, Retried(now_ms, _void(journal)))


def _void(journal: tuple[Entry, ...]) -> tuple[int, ...]:
    """The positions of the records that led to the failure: the failed step's, so that it starts afresh."""
    failures = [entry for entry in journal if isinstance(entry, Failed)]
    step = failures[-1].error.step if failures else ""
    if not step or not isinstance(journal[-1], Failed):
        return ()
    already = void_positions(journal)
    return tuple(
        position
        for position, entry in enumerate(journal)
        if isinstance(entry, Intended | Attempted | GaveUp | Joined) and entry.step == step and position not in already
    )


def _unowned(run: Run, status: Status, *, wake_ms: int | None) -> Run:
    return replace(run, status=status, owner=None, wake_ms=wake_ms)


def _ended(run: Run, status: Status, *, now_ms: int, output: bytes | None = None, error: bytes | None = None) -> Run:
    return replace(
        run,
        status=status,
        owner=None,
        wake_ms=None,
        finished_ms=now_ms,
        expires_ms=now_ms + run.retention_ms,
        output=output,
        error=error,
    )


def _change(before: Run, after: Run, recorded: Recorded, *last: Entry) -> Change:
    entries = recorded.entries + last
    length = before.length + len(entries)
    # Unique without chance: a run reaches each (epoch, length, status) at most once, and a retried
    # commit of the very same decision must carry the very same id.
    change_id = f"{before.id}/{before.epoch}.{length}.{after.status}"
    after = replace(after, length=length, change_id=change_id)
    return Change(change_id, before.fence, after, entries, recorded.blobs, read=recorded.read)
