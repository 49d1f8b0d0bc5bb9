"""Rules about signals: what was accepted is received once, in the order of its sender."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from holdfast.kernel import hooks, ids
from holdfast.kernel.journal import Received
from holdfast.kernel.runs import ENDED
from holdfast.testing.histories.history import HistoryViolation, OperationCalled
from holdfast.testing.histories.seen import Operation, Seen

_Scope = tuple[str, ...]  # where the id of a signal counts: a run, a key or a token


def ids_of(called: OperationCalled) -> tuple[str, ...]:
    """The id of the signal that a client sends, as the journal will show it; none if the client does not know it."""
    if called.message:
        return (called.message,)
    dedupe = called.dedupe or (called.request if called.verb == "start" else "")
    if not called.hook or not dedupe:
        return ()
    named = hooks.key_signal_id if called.verb == "start" else hooks.signal_id
    return (named(called.hook, dedupe),)


def lost_or_twice(seen: Seen) -> Iterator[HistoryViolation]:
    """An accepted signal is received by one run, once; a refused one by none."""
    received = _received(seen)
    for (scope, message), operations in _by_signal(seen).items():
        outcomes = {each.outcome for each in operations}
        runs = {
            run: received[run].count(message)
            for run in received
            if message in received[run] and _is_in(seen, scope, run)
        }
        # A run hands what it has not taken to the one that follows it under the key, and both have recorded it.
        # With a run that is removed, what it had received is forgotten.
        last = [run for run in runs if ids.derived_beside(run, "successor") not in runs and run not in seen.pruned]
        if len(last) > 1 or any(count > 1 for count in runs.values()):
            detail = f"{message} was received {sum(runs.values())} times, by {', '.join(sorted(runs))}"
            yield HistoryViolation("I7", "signal_twice", scope[-1], detail)
        if not runs and "ok" in outcomes and not _may_be_unread(seen, scope, operations):
            yield HistoryViolation("I7", "signal_lost", scope[-1], f"{message} was accepted, and no run has it")
        if runs and outcomes == {"refused"}:
            yield HistoryViolation("I7", "signal_refused", scope[-1], f"{message} was refused, and received")


def out_of_order(seen: Seen) -> Iterator[HistoryViolation]:
    """Signals that a sender sent one after the other are received in that order by each run."""
    received = _received(seen)
    sent: dict[tuple[_Scope, str], list[Operation]] = defaultdict(list)
    for (scope, _), operations in _by_signal(seen).items():
        accepted = [each for each in operations if each.outcome == "ok" and each.called.sender]
        if accepted:
            sent[scope, accepted[0].called.sender].append(min(accepted, key=lambda each: each.called.number))
    for (scope, sender), operations in sent.items():
        ordered = sorted(operations, key=lambda each: each.called.number)
        for run in (run for run in received if _is_in(seen, scope, run)):
            places = {message: at for at, message in enumerate(received[run])}
            found = [(each, places[name]) for each in ordered for name in ids_of(each.called) if name in places]
            for (earlier, place), (later, next_place) in pairwise(found):
                if next_place < place and earlier.ended < later.began:
                    numbers = f"{later.called.number} before {earlier.called.number}"
                    yield HistoryViolation("I7", "signal_order", run, f"{sender} sent them in order: {numbers}")


def _received(seen: Seen) -> dict[str, list[str]]:
    """The ids of the signals that each run has recorded, in order.

    What was read by the very write that began the next generation was recorded in the last one, which is gone.
    """
    received = {
        run: [each.entry.id for each in entries if isinstance(each.entry, Received)]
        for run, entries in seen.durable.items()
    }
    for _, write in seen.writes:
        if write.replaces_journal:
            received.setdefault(write.run, []).extend(write.read)
    return received


def _by_signal(seen: Seen) -> dict[tuple[_Scope, str], list[Operation]]:
    found: dict[tuple[_Scope, str], list[Operation]] = defaultdict(list)
    for each in seen.operations:
        for message in ids_of(each.called):
            found[_scope(each.called, message), message].append(each)
    return found


def _scope(called: OperationCalled, message: str) -> _Scope:
    if (token := hooks.token_of(message)) is not None:
        return (called.namespace, token)
    return (called.run,) if called.run else (called.namespace, called.workflow, called.key)


def _is_in(seen: Seen, scope: _Scope, run: str) -> bool:
    match scope:
        case (named,):
            return run == named
        case (_, _, _):
            return seen.places.get(run) == scope
        case _:
            return True


def _may_be_unread(seen: Seen, scope: _Scope, operations: list[Operation]) -> bool:
    """Whether a run that may have the signal is gone, has lost earlier generations, or cannot read: it is blocked."""
    runs = {each.run for each in operations} | {scope[0]} if len(scope) == 1 else {each.run for each in operations}
    runs |= {run for run in seen.durable if len(scope) != 1 and _is_in(seen, scope, run)}
    known = [seen.finals[run] for run in runs if run in seen.finals]
    if not known or any(run in seen.pruned for run in runs):
        return True
    return any(
        not seen.has_whole_journal(final.run) or (final.status not in ENDED and final.unread > 0) for final in known
    )
