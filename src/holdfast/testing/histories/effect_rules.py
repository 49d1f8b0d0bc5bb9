"""Rules about effects: their keys, their calls held against the record, and what is undone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from holdfast.kernel.cancels import UNDO
from holdfast.kernel.journal import (
    TIMED_OUT,
    Attempted,
    Dropped,
    EffectEntry,
    Entry,
    Forked,
    GaveUp,
    Late,
    Performed,
    Resumed,
    Retried,
)
from holdfast.testing.histories.explained import ExplainedCalls
from holdfast.testing.histories.history import EffectObserved, FinalRun, HistoryViolation, ReceiptSeen
from holdfast.testing.histories.seen import Durable, Seen, counting

_Step = tuple[str, str]


def other_keys(seen: Seen) -> Iterator[HistoryViolation]:
    """One key per step, over all attempts, hosts and records."""
    keys: dict[_Step, set[str]] = defaultdict(set)
    for _, call in seen.begun:
        keys[call.run, call.step].add(call.key)
    for run, entries in seen.durable.items():
        for durable in entries:
            if isinstance(durable.entry, EffectEntry) and durable.entry.intent.kind in {"effect", "undo"}:
                keys[run, durable.entry.step].add(durable.entry.intent.key)
    for (run, step), of_step in keys.items():
        if len(of_step) > 1:
            yield HistoryViolation("I4", "another_key", run, f"{step} under {', '.join(sorted(of_step))}")


def shared_keys(seen: Seen) -> Iterator[HistoryViolation]:
    """A key that names a run and a step stands for one step. One that an effect declares may stand for more."""
    steps: dict[str, set[_Step]] = defaultdict(set)
    for _, call in seen.begun:
        if call.key.removeprefix(UNDO).startswith(f"{call.run}/"):
            steps[call.key].add((call.run, call.step))
    for key, of_key in steps.items():
        if len(of_key) > 1:
            yield HistoryViolation("I4", "shared_key", key, f"it stands for {sorted(of_key)}")


def repeated_for_nothing(seen: Seen) -> Iterator[HistoryViolation]:
    """A step was called again, and neither a fault nor a record says why."""
    explained = ExplainedCalls(seen)
    calls: dict[_Step, list[tuple[int, EffectObserved]]] = defaultdict(list)
    for at, call in seen.begun:
        calls[call.run, call.step].append((at, call))
    for (run, step), of_step in calls.items():
        for (earlier_at, earlier), (later_at, later) in pairwise(of_step):
            is_over = any(
                earlier_at < at < later_at and (end.host, end.step) == (earlier.host, step)
                for at, end in seen.ended.get(run, ())
            )
            if explained.explains_repeat(earlier, later, is_over=is_over):
                continue
            if not any(_lets_repeat(each, step, earlier, later, seen) for each in seen.ever.get(run, ())):
                detail = f"{step} under {later.key}, by {later.host}, though {earlier.host} was well"
                yield HistoryViolation("I4", "repeated_for_nothing", run, detail)


def called_after_record(seen: Seen) -> Iterator[HistoryViolation]:
    """A step was called though its result was durable, by a host that could have known.

    A host that has the run at the fence of the record, or at a later one, has read it. One that is behind may be in a
    spell.
    """
    explained = ExplainedCalls(seen)
    performed: dict[_Step, list[Durable]] = defaultdict(list)
    for run, entries in seen.durable.items():
        for each in entries:
            if isinstance(each.entry, Performed):
                performed[run, each.entry.step].append(each)
    for at, call in seen.begun:
        for record in performed.get((call.run, call.step), ()):
            if not _is_before(record, at, call, seen):
                continue
            knew = None not in {call.epoch, record.epoch} and (call.epoch or 0) >= (record.epoch or 0)
            if knew or not explained.explains_late(call):
                detail = f"{call.step} under {call.key}, by {call.host}"
                yield HistoryViolation("I3", "called_after_record", call.run, detail)


def attempts(seen: Seen) -> Iterator[HistoryViolation]:
    """Attempts are counted on, over takeovers too, and none is used up without a record of its failure."""
    for run, final in seen.finals.items():
        failures: dict[str, int] = defaultdict(int)
        # What failed late counts if the code has asked for it again since.
        late = {each.step: each.attempt for each in final.journal if isinstance(each, Late) and each.error is not None}
        for _, entry in counting(final):
            if not isinstance(entry, Attempted | Performed):
                continue
            before = failures[entry.step]
            if entry.by_hand is None and not before < entry.attempt <= max(before, late.get(entry.step, 0)) + 1:
                detail = f"{entry.step} has attempt {entry.attempt} after {before} failed ones"
                yield HistoryViolation("I3", "attempts_miscounted", run, detail)
            if isinstance(entry, Attempted):
                failures[entry.step] = max(before, entry.attempt)
    failed = {
        (run, entry.step, entry.attempt)
        for run, entries in seen.ever.items()
        for entry in (each.entry for each in entries)
        if isinstance(entry, Attempted | Late | GaveUp)
    }
    for _, call in seen.begun:
        known = call.attempt == 1 or (call.run, call.step, call.attempt - 1) in failed
        # The failures may be those of the run that it was forked from.
        if not known and call.run not in seen.forks and seen.has_whole_journal(call.run):
            detail = f"{call.step} was called as attempt {call.attempt}, and no failure of the one before is recorded"
            yield HistoryViolation("I3", "attempts_miscounted", call.run, detail)


# -- undo


def undone_wrongly(seen: Seen) -> Iterator[HistoryViolation]:
    """What may have happened is undone, the last one first; nothing else is, and nothing before it happened."""
    for run, final in seen.finals.items():
        done: dict[str, None] = {}
        undoing: list[str] = []
        for entry in final.journal:
            if not isinstance(entry, EffectEntry) or entry.intent.kind != "undo":
                _learn(done, entry)
            elif (step := entry.step.removeprefix(UNDO)) not in undoing:
                if step not in done:
                    yield HistoryViolation("I3", "undone_for_nothing", run, f"{step} is undone, and never happened")
                undoing.append(step)
        order = [step for step in reversed(done) if step in undoing]
        if order != [step for step in undoing if step in done]:
            detail = f"{', '.join(undoing)} instead of {', '.join(order)}"
            yield HistoryViolation("I3", "undo_order", run, detail)
    first: dict[_Step, int] = {}
    for at, call in seen.begun:
        first.setdefault((call.run, call.step), at)
    for (run, step), at in first.items():
        if step.startswith(UNDO) and first.get((run, step.removeprefix(UNDO)), -1) > at:
            yield HistoryViolation("I3", "undone_for_nothing", run, f"{step} was called before what it undoes")


def receipts(seen: Seen) -> Iterator[HistoryViolation]:
    """A receipt names what the world saw: all of it unless it says that something is unknown, and nothing else."""
    explained = ExplainedCalls(seen)
    told = [(final.run, final.receipt) for final in seen.finals.values() if final.receipt is not None]
    told += [
        (each.called.run, each.returned.receipt)
        for each in seen.operations
        if each.returned and each.returned.receipt and not seen.may_have_changed(each.called.run)
    ]
    called = {call.key for _, call in seen.begun}
    for run, receipt in dict(told).items():
        listed = {*receipt.performed, *receipt.undone, *receipt.unknown}
        final = seen.finals.get(run)
        if final is None or not seen.begun or _is_a_copy(final):
            continue
        for call in (call for _, call in seen.ended.get(run, ()) if call.returned and not call.undo):
            if call.key not in listed and receipt.outcome != "unknown" and not explained.explains_late(call):
                detail = f"{call.step} under {call.key} happened, and the receipt ({receipt.outcome}) does not name it"
                yield HistoryViolation("I3", "receipt_incomplete", run, detail)
        yield from _untrue(seen, run, receipt, called)


def _untrue(seen: Seen, run: str, receipt: ReceiptSeen, called: set[str]) -> Iterator[HistoryViolation]:
    undone = {call.step.removeprefix(UNDO) for _, call in seen.begun if call.run == run and call.undo}
    steps = {call.key: call.step for _, call in seen.begun if call.run == run and not call.undo}
    for key in (*receipt.performed, *receipt.undone):
        if key not in called:
            yield HistoryViolation("I3", "receipt_untrue", run, f"{key} was never called, and the receipt names it")
        elif key in receipt.undone and steps.get(key) not in undone:
            yield HistoryViolation("I3", "receipt_untrue", run, f"{key} is said to be undone, and no undo was called")


# -- what they share


def _is_before(record: Durable, at: int, call: EffectObserved, seen: Seen) -> bool:
    """Whether an entry was durable before a call."""
    if record.at is not None:
        return record.at < at
    return record.at_ms + seen.head.slack_ms < call.at_ms


def _lets_repeat(each: Durable, step: str, earlier: EffectObserved, later: EffectObserved, seen: Seen) -> bool:
    """Whether an entry between two calls says why there is a second one."""
    is_of_step = isinstance(each.entry, Attempted | Late | Dropped) and each.entry.step == step
    if not is_of_step and not isinstance(each.entry, Retried | Resumed):
        return False
    slack_ms = seen.head.slack_ms
    return earlier.at_ms - slack_ms <= each.at_ms <= later.at_ms + slack_ms


def _learn(done: dict[str, None], entry: Entry) -> None:
    """As the engine learns what is to be undone: what has happened, or may have."""
    match entry:
        case Performed(step=step) | Dropped(step=step) | Late(step=step, error=None):
            done.setdefault(step)
        case Attempted(step=step, error=error) | GaveUp(step=step, error=error) if error.type == TIMED_OUT:
            done.setdefault(step)
        case Late(step=step):
            done.pop(step, None)  # it failed in the end
        case Forked(beside=True):
            done.clear()  # that was the work of another run
        case _:
            pass


def _is_a_copy(final: FinalRun) -> bool:
    """Whether some of its work is that of another run, or of an earlier generation."""
    return any(entry.what in {"forked", "continued"} for entry in final.journal)
