"""Rules about runs: none is lost, all come to rest, and what they have recorded stays."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from holdfast.kernel import ids
from holdfast.kernel.journal import (
    Cancelled,
    Completed,
    Continued,
    Elapsed,
    Entry,
    Failed,
    Forked,
    GaveUp,
    Joined,
    KeyReleased,
    Opened,
    Performed,
    Received,
    Resumed,
    Retried,
    Spawned,
    Started,
    original_input,
    step_of,
)
from holdfast.kernel.runs import ENDED, SETTLED
from holdfast.kernel.waits import Wait
from holdfast.testing.histories.history import FaultApplied, FinalRun, HistoryViolation, OperationReturned
from holdfast.testing.histories.seen import Seen, counting

_BY_STEP = Performed | GaveUp | Elapsed | Spawned | Joined | Opened
_BACK_TO_LIFE = {Completed: (), Failed: (Retried,), Cancelled: (Resumed,)}
_TIMED = frozenset({"timer", "retry"})
_PROMISES = {"signal_twice": "I7"}

# -- none is lost


def lost(seen: Seen) -> Iterator[HistoryViolation]:
    """A run that a client or a parent was given is there in the end, unless its retention was over."""
    given = {each.run for each in seen.operations if each.outcome == "ok" and each.called.verb in {"start", "fork"}}
    there = seen.finals.keys() | seen.pruned | {""}
    for run in sorted((given | seen.children) - there) if seen.finals else ():
        yield HistoryViolation("I2", "lost", run, "a client or a parent was given this run, and it is not there")


def unasked(seen: Seen) -> Iterator[HistoryViolation]:
    """In = done + pending: a run was asked for by a start, a parent, a fork, or is a successor.

    A parent that is stopped may leave a child that its journal does not show: workflows of children are left out.
    """
    starts = [each for each in seen.operations if each.called.verb == "start"]
    by_key = {each.place for each in starts if each.called.key}
    given = {each.run for each in seen.operations if each.outcome == "ok"}
    of_parents = {final.workflow for final in seen.finals.values() if final.run in seen.children}
    born = seen.children | {ids.derived_beside(run, "successor") for run in seen.durable}
    may_be = Counter((each.called.namespace, each.called.workflow) for each in starts if each.outcome == "unknown")
    started = {each.called.workflow for each in starts}
    for final in seen.finals.values():
        place = (final.namespace, final.workflow, final.key)
        is_known = final.run in given or final.run in born or (final.key != "" and place in by_key)
        # A fork that continues as new has a journal that does not show it any more; its writes do.
        is_forked = final.run in seen.forks or any(isinstance(entry, Forked) for entry in final.journal)
        if is_known or is_forked or final.workflow in of_parents or final.workflow not in started:
            continue
        may_be[place[:2]] -= not final.key
        if final.key or may_be[place[:2]] < 0:
            yield HistoryViolation("I11", "unasked", final.run, f"no client asked for {final.workflow} {final.key}")


def restless(seen: Seen) -> Iterator[HistoryViolation]:
    """In the end every run has ended, or waits for something that has not come."""
    healed = [fault.at_ms for _, fault in seen.of(FaultApplied) if fault.fault == "healed"]
    for final in seen.finals.values():
        due = [f"{wait.kind} {wait.name or wait.step}" for wait in final.waits if _has_come(seen, final, wait)]
        if final.due or due:
            drained = bool(healed) and seen.head.drain_ms and final.at_ms >= healed[-1] + seen.head.drain_ms
            detail = f"{final.workflow} {final.key} is {final.status}; {', '.join(due) or 'it could go on'}"
            yield HistoryViolation("I15" if drained else "I2", "never_ended", final.run, detail)


def _has_come(seen: Seen, final: FinalRun, wait: Wait) -> bool:
    if wait.kind in _TIMED and wait.until_ms is not None:
        return wait.until_ms + seen.head.slack_ms <= final.at_ms
    return wait.kind == "child" and seen.has_ended(wait.name)


def cancel_lost(seen: Seen) -> Iterator[HistoryViolation]:
    """A cancellation that was acknowledged has ended its run. One that came with a successor may have blocked it.

    The end that was read may be one that the store forgot: no client can know that of what it reads.
    """
    forgotten = {write.run for _, write in seen.forgotten if write.status in ENDED}
    for each in seen.operations:
        cancelled = each.called.run if each.called.verb == "cancel" else each.called.replaces
        final = seen.finals.get(cancelled)
        at_rest = ENDED if each.called.verb == "cancel" else SETTLED
        if each.outcome != "ok" or final is None or final.status in at_rest or cancelled in forgotten:
            continue
        again = any(isinstance(entry.entry, Resumed | Retried) for entry in seen.durable.get(cancelled, ()))
        if not again:
            detail = f"{each.called.verb} {each.called.op} was acknowledged, and the run is {final.status}"
            yield HistoryViolation("I2", "cancel_lost", cancelled, detail)


def other_namespaces(seen: Seen) -> Iterator[HistoryViolation]:
    """A client of one namespace is given no run of another, and no effect of a run is called for another."""
    of_run = {final.run: final.namespace for final in seen.finals.values()}
    of_run |= {write.run: write.namespace for _, write in seen.writes if write.namespace}
    for each in seen.operations:
        if each.outcome == "ok" and of_run.get(each.run, each.called.namespace) != each.called.namespace:
            detail = f"{each.called.verb} in {each.called.namespace} returned a run of {of_run[each.run]}"
            yield HistoryViolation("I13", "other_namespace", each.run, detail)
    for _, call in seen.begun:
        if of_run.get(call.run, call.namespace) != call.namespace:
            yield HistoryViolation("I13", "other_namespace", call.run, f"{call.step} was called in {call.namespace}")


# -- what is recorded stays


def rewritten(seen: Seen) -> Iterator[HistoryViolation]:
    """An entry is what it was when the store accepted it; a result is what it was when a client was first told."""
    for run, entries in seen.durable.items():
        known: dict[int, Entry] = {}
        for each in entries:
            if known.setdefault(each.position, each.entry) != each.entry:
                yield HistoryViolation("I3", "rewritten", run, f"entry {each.position}, {each.entry.what}")
        final = seen.finals.get(run)
        for at, entry in enumerate(final.journal, final.length - len(final.journal)) if final else ():
            if known.get(at, entry) != entry:
                yield HistoryViolation("I3", "rewritten", run, f"entry {at}: {known[at].what} is {entry.what} now")
    results: dict[str, set[str]] = defaultdict(set)
    for final in seen.finals.values():
        results[final.run].add(final.result)
    for _, returned in seen.of(OperationReturned):
        results[returned.run].add(returned.result)
    for run, of_run in results.items():
        if run and len(of_run - {""}) > 1:
            yield HistoryViolation("I3", "rewritten", run, f"it returned {' and '.join(sorted(of_run - {''}))}")


def unrecorded(seen: Seen) -> Iterator[HistoryViolation]:
    """What the store accepted is in the journal in the end."""
    for run, entries in seen.durable.items():
        final = seen.finals.get(run)
        if final is not None and entries and entries[-1].at is not None and final.length <= entries[-1].position:
            detail = f"{entries[-1].entry.what} was accepted as entry {entries[-1].position} of {final.length}"
            yield HistoryViolation("I3", "unrecorded", run, detail)


def recorded_twice(seen: Seen) -> Iterator[HistoryViolation]:
    """A step is performed, a timer fires, a child is joined, a hook is opened and a signal is received once."""
    for final in seen.finals.values():
        entries = [entry for _, entry in counting(final)]
        kinds = [(entry.what, step_of(entry)) for entry in entries if isinstance(entry, _BY_STEP)]
        kinds += [(entry.what, entry.id) for entry in entries if isinstance(entry, Received)]
        for (what, step), count in Counter(kinds).items():
            if count > 1:
                kind = {"elapsed": "timer_twice", "received": "signal_twice"}.get(what, "recorded_twice")
                yield HistoryViolation(_PROMISES.get(kind, "I3"), kind, final.run, f"{what} {step}, {count} times")


def after_the_end(seen: Seen) -> Iterator[HistoryViolation]:
    """Nothing follows an end but what takes it back, or the loss of the key."""
    for final in seen.finals.values():
        end: Entry | None = None
        for entry in final.journal:
            if end is None or isinstance(entry, KeyReleased):
                end = entry if isinstance(entry, Completed | Failed | Cancelled) else end
            elif isinstance(entry, _BACK_TO_LIFE[type(end)]):
                end = None
            else:
                yield HistoryViolation("I3", "after_the_end", final.run, f"{end.what}, and then {entry.what}")
                break
        if (end is not None) != (final.status in ENDED) and final.journal:
            detail = f"it is {final.status}, and its journal ends with {final.journal[-1].what}"
            yield HistoryViolation("I3", "after_the_end", final.run, detail)


def broken_chains(seen: Seen) -> Iterator[HistoryViolation]:
    """Generations follow each other, each with the first input of all."""
    for run, entries in seen.durable.items():
        first: Started | Continued | None = None
        for each in entries:
            if not isinstance(each.entry, Started | Continued):
                continue
            if first is not None and isinstance(each.entry, Continued):
                expected = first.generation + 1 if isinstance(first, Continued) else 1
                if each.entry.generation != expected or original_input(each.entry) != original_input(first):
                    detail = f"generation {each.entry.generation} instead of {expected}, or with another first input"
                    yield HistoryViolation("I3", "chain_broken", run, detail)
            elif first is not None:
                yield HistoryViolation("I3", "chain_broken", run, "it was started twice")
            first = each.entry


# -- timers


def early(seen: Seen) -> Iterator[HistoryViolation]:
    """No timer fires, and no delayed run begins, before its time."""
    slack_ms = seen.head.slack_ms
    for run, entries in seen.durable.items():
        for each in entries:
            if isinstance(each.entry, Elapsed) and each.at_ms + slack_ms < each.entry.due_at_ms:
                detail = f"{each.entry.step} fired {each.entry.due_at_ms - each.at_ms} ms early"
                yield HistoryViolation("I9", "timer_early", run, detail)
    first = {call.run: call.at_ms for _, call in reversed(seen.begun)}
    for each in seen.operations:
        if each.called.delay_ms and each.returned and each.returned.created and each.run in first:
            if seen.went_on(each.run):  # a person did not want to wait
                continue
            early_ms = each.called.at_ms + each.called.delay_ms - first[each.run]
            if early_ms > slack_ms:
                yield HistoryViolation("I9", "timer_early", each.run, f"it began {early_ms} ms early")
