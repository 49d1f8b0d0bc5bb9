"""Rules about what the store accepted: fences, lengths, messages, terms, and what was acknowledged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from holdfast.kernel.runs import ENDED
from holdfast.testing.histories.history import (
    FaultApplied,
    FenceSeen,
    HistoryViolation,
    LeaderActed,
    MessageDelivered,
    RunMoved,
    StoreWrite,
)
from holdfast.testing.histories.seen import Operation, Seen
from holdfast.testing.histories.signal_rules import ids_of


def stale_writes(seen: Seen) -> Iterator[HistoryViolation]:
    """A write that presents a fence is accepted at that fence only. What was forgotten takes its fences with it."""
    fences: dict[str, FenceSeen] = {}
    accepted = {at for at, _ in seen.writes}
    for at, record in enumerate(seen.history):
        match record:
            case FaultApplied(fault="forgot", runs=runs):
                for run in runs or tuple(fences):
                    fences.pop(run, None)
            case RunMoved(run=run, fence=FenceSeen() as fence):
                fences[run] = fence
            case StoreWrite(run=run, presented=presented) if at in accepted:
                known = fences.get(run)
                if presented is not None and known is not None and _is_behind(presented, known):
                    detail = f"{record.write} by {record.host} at {_words(presented)}, though it is at {_words(known)}"
                    yield HistoryViolation("I6", "stale_write_accepted", run, detail)
                if record.fence is not None:
                    fences[run] = record.fence
            case _:
                pass


def lengths(seen: Seen) -> Iterator[HistoryViolation]:
    """Entries follow the end of the journal that their writer knew."""
    known: dict[str, int] = {}
    for _, write in seen.writes:
        if write.length is None or write.length_before is None:
            continue
        before = known.get(write.run, write.length_before)
        if write.length_before != before or write.length != before + len(write.entries):
            detail = f"{write.write}: {len(write.entries)} entries take it from {before} to {write.length}"
            yield HistoryViolation("I6", "length_not_checked", write.run, detail)
        known[write.run] = write.length


def acknowledged_early(seen: Seen) -> Iterator[HistoryViolation]:
    """Nothing is acknowledged before the store has it."""
    if not seen.of(StoreWrite):
        return
    taken = [(at, write) for at, write in seen.of(StoreWrite) if write.outcome != "refused"]
    by_run: dict[str, list[tuple[int, StoreWrite]]] = defaultdict(list)
    by_message: dict[str, int] = {}
    lost_key: dict[str, int] = {}
    for at, write in taken:
        by_run[write.run].append((at, write))
        lost_key.setdefault(write.took_key_from, at)
        for message in write.messages:
            by_message.setdefault(message.id, at)
    for each in seen.operations:
        if each.outcome == "ok" and not _is_durable(each, by_run, by_message, lost_key):
            detail = f"{each.called.verb} {each.called.op} was acknowledged, and the store did not have it"
            yield HistoryViolation("I5", "acknowledged_early", each.run or each.called.run, detail)


def _is_durable(
    each: Operation,
    by_run: dict[str, list[tuple[int, StoreWrite]]],
    by_message: dict[str, int],
    lost_key: dict[str, int],
) -> bool:
    never, called = each.ended, each.called
    created = called.verb == "start" and each.returned is not None and each.returned.created
    if created and not any(at < each.ended for at, _ in by_run.get(each.run, ())):
        return False
    if called.verb == "signal" or called.hook:
        ids = ids_of(called)
        return not ids or any(by_message.get(message, never) < each.ended for message in ids)
    if called.verb == "release":
        return lost_key.get(called.run, never) < each.ended
    if called.verb == "cancel":
        return any(at < each.ended and write.status in ENDED for at, write in by_run.get(called.run, ()))
    return True


def terms(seen: Seen) -> Iterator[HistoryViolation]:
    """A term of a duty has one leader, and terms grow, unless the store was harmed and may have forgotten one."""
    last: dict[str, LeaderActed] = {}
    for each in seen.history:
        if isinstance(each, FaultApplied) and each.fault in {"forgot", "store down"}:
            last.clear()
        if not isinstance(each, LeaderActed) or each.how != "elected":
            continue
        before = last.get(each.duty)
        if before is not None and each.term <= before.term:
            detail = f"{each.host} was elected for term {each.term} after {before.host} for term {before.term}"
            yield HistoryViolation("I8", "two_leaders", each.duty, detail)
        last[each.duty] = each


def messages(seen: Seen) -> Iterator[HistoryViolation]:
    """What a committed write sent arrives, unless its run has ended; what a refused one would have sent does not."""
    delivered = {(each.run, each.id) for _, each in seen.of(MessageDelivered) if each.what == "message"}
    if not delivered:
        return
    sent = {(each.run, each.id) for _, write in seen.writes for each in write.messages}
    refused = {
        (each.run, each.id) for _, write in seen.of(StoreWrite) if write.outcome == "refused" for each in write.messages
    }
    for run, message in sorted(sent - delivered):
        final = seen.finals.get(run)
        if final is not None and final.status not in ENDED:
            yield HistoryViolation("I10", "message_lost", run, f"{message} was committed, and never delivered")
    # What was forgotten later had been sent.
    ever = {
        (each.run, each.id) for _, write in seen.of(StoreWrite) if write.outcome != "refused" for each in write.messages
    }
    for run, message in sorted((refused - ever) & delivered):
        yield HistoryViolation("I10", "message_invented", run, f"{message} was delivered, and its write was refused")


def _is_behind(presented: FenceSeen, known: FenceSeen) -> bool:
    return presented.epoch < known.epoch or (presented.epoch == known.epoch and presented.nonce != known.nonce)


def _words(fence: FenceSeen) -> str:
    return f"{fence.epoch}/{fence.nonce[:8]}"
