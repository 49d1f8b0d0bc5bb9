"""Records made of what a store model has at hand: changes, rows, receipts."""

from __future__ import annotations

from holdfast.kernel import waits
from holdfast.kernel.cancels import Receipt
from holdfast.kernel.changes import (
    Alive,
    Answer,
    Change,
    Gathering,
    Guard,
    HandedOver,
    HolderOf,
    KeyFree,
    KeyHeldBy,
    Known,
    NotBegun,
    Refused,
    TokenFree,
    TokenHeldBy,
)
from holdfast.kernel.journal import Entry
from holdfast.kernel.runs import ENDED, Fenced, Run, Status
from holdfast.kernel.times import Instant
from holdfast.testing.histories.history import (
    FenceSeen,
    FinalRun,
    ReceiptSeen,
    SentMessage,
    StoreWrite,
    WriteOutcome,
)


def store_write(
    change: Change, outcome: WriteOutcome, *, at_ms: Instant, host: str, before: Run | None, after: Run | None
) -> StoreWrite:
    """A change as a store decided it. `before` and `after` are the row of the run that it is about.

    That run is `run_of(change)`. If a successor was admitted with it, `change.then` is a write of its own.
    """
    accepted = outcome == "accepted"
    row = after if accepted else before
    guard = change.guard
    return StoreWrite(
        at_ms=at_ms,
        host=host,
        write=change.id,
        run=run_of(change),
        outcome=outcome,
        admits=accepted and before is None and after is not None,
        namespace=row.namespace if row else "",
        workflow=row.workflow if row else "",
        key=(row.key or "") if row else "",
        presented=_fence_of(guard),
        fence=fence_seen(row) if row else None,
        status=row.status if row else "",
        holds_key=row is not None and row.key is not None and row.holds_key,
        length_before=before.length if before else 0,
        length=row.length if row else 0,
        replaces_journal=change.replaces_journal,
        entries=change.entries,
        read=change.read,
        messages=tuple(
            SentMessage(each.run_id, each.message.id, str(each.message.__struct_config__.tag))
            for each in change.envelopes
        ),
        took_key_from=_loser_of(change) if accepted else "",
    )


def outcome_of(change: Change, answer: Answer, *, before: Run | None, after: Run | None) -> WriteOutcome:
    """What a store did with a change: a repeated one is confirmed, and leaves the row as it was."""
    if isinstance(answer, Refused):
        return "refused"
    moves = change.run is not None or change.envelopes
    return "repeated" if moves and before == after else "accepted"


def run_of(change: Change) -> str:
    """The run that a change is about."""
    if change.run is not None:
        return change.run.id
    match change.guard:
        case Known(run_id) | Alive(run_id) | KeyHeldBy(run_id) | TokenHeldBy(run_id) | Fenced(run_id):
            return run_id
        case HandedOver(fence) | TokenFree(fence) | NotBegun(fence):
            return fence.run_id
        case Gathering(run_id):
            return run_id
        case KeyFree() | HolderOf():
            return ""


def fence_seen(run: Run) -> FenceSeen:
    return FenceSeen(run.epoch, run.nonce)


def receipt_seen(receipt: Receipt) -> ReceiptSeen:
    """The keys of a receipt, by what became of the effects."""
    of = {state: tuple(str(left) for left in receipt.effects if left.state == state) for state in _STATES}
    return ReceiptSeen(receipt.outcome, of["performed"], of["undone"], of["unknown"])


def final_run(
    run: Run, journal: tuple[Entry, ...], *, at_ms: Instant, result: str = "", receipt: Receipt | None = None
) -> FinalRun:
    """A run as it is found when everything is quiet. `at_ms` is the store's now."""
    ready = run.status is Status.WAITING and (
        run.unread > 0 or (run.wake_at_ms is not None and run.wake_at_ms <= at_ms)
    )
    is_parked = waits.may_be_parked(run)
    under_way = run.status is Status.RUNNING or (
        run.status is Status.PENDING and not is_parked and (run.wake_at_ms is None or run.wake_at_ms <= at_ms)
    )
    return FinalRun(
        at_ms=at_ms,
        run=run.id,
        workflow=run.workflow,
        status=run.status,
        namespace=run.namespace,
        key=run.key or "",
        holds_key=run.key is not None and run.holds_key,
        due=ready or under_way,
        unread=run.unread,
        length=run.length,
        retention_ms=run.retention_ms,
        waits=waits.decode(run.waits) if run.status is Status.WAITING and run.waits else (),
        lane=run.lane,
        parked=is_parked,
        journal=journal,
        result=result,
        receipt=None if receipt is None or run.status not in ENDED else receipt_seen(receipt),
    )


_STATES = ("performed", "undone", "unknown")


def _fence_of(guard: Guard) -> FenceSeen | None:
    """The fence that the run must still be at. That of a former holder of a key is about another run."""
    match guard:
        case Fenced(_, epoch, nonce) | HandedOver(Fenced(_, epoch, nonce)) | TokenFree(Fenced(_, epoch, nonce)):
            return FenceSeen(epoch, nonce)
        case _:
            return None


def _loser_of(change: Change) -> str:
    if isinstance(change.guard, KeyHeldBy):
        return change.guard.run_id
    return run_of(change) if change.takes_key else ""
