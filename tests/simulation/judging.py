"""What is wrong with a world that has come to its end: the checker of histories, and what only the simulation knows.

kind            what it is
──────────────  ────────────────────────────────────────────────────────────────────────────
not drained     something has not come to rest, though everything healed long ago
result untrue   a run returned what its program cannot return
engine fault    a part of the engine raised what it should not, or a process ended by itself
slow to wake    in a world in which every notice arrives, a run that was due has waited for a poll
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from msgspec import UnsetType

from holdfast.kernel import attributes
from holdfast.kernel.journal import Completed, Continued, Elapsed, Forked, Intended, Performed, Started, Value
from holdfast.kernel.runs import ENDED
from holdfast.testing.histories.checker import examine_seen
from holdfast.testing.histories.history import (
    FaultApplied,
    FenceSeen,
    FinalRun,
    HistoryViolation,
    MessageDelivered,
    RunMoved,
    StoreWrite,
)
from holdfast.testing.histories.seen import Seen
from tests.simulation import programs
from tests.simulation.worlds import Simulated

STEPS_MAX = 20_000  # of the search for a legal order of a key


class Judged:
    """The verdict."""

    def __init__(self, simulated: Simulated) -> None:
        seen = Seen(simulated.history)
        examined = examine_seen(seen, steps_max=STEPS_MAX)
        self.violations = (*examined.violations, *_own(simulated, seen))
        self.undecided = examined.undecided

    @property
    def kinds(self) -> tuple[str, ...]:
        """What kinds of violation there are, each once."""
        return tuple(sorted({each.kind for each in self.violations}))


def _own(simulated: Simulated, seen: Seen) -> Iterator[HistoryViolation]:
    if not simulated.is_drained:
        yield HistoryViolation("I15", "not drained", simulated.restless, "it has not come to rest")
    for failure in simulated.failures:
        yield HistoryViolation("engine", "engine fault", failure.partition(":")[0], failure)
    yield from _untrue_results(seen)
    yield from _lost_messages(seen)
    yield from _same_fences(seen)
    yield from _strange_children(seen)
    yield from _repeated_once(seen)
    yield from _before_the_record(seen)


def _untrue_results(seen: Seen) -> Iterator[HistoryViolation]:
    for final in seen.finals.values():
        if not _is_true(final):
            yield HistoryViolation("I3", "result untrue", final.run, final.result)


def _lost_messages(seen: Seen) -> Iterator[HistoryViolation]:
    """What an accepted write sends is delivered, unless the run has ended before."""
    delivered = {(each.run, each.id) for _, each in seen.of(MessageDelivered)}
    ended: dict[str, int] = {}  # since when, in the history; a run that went on again is not looked at
    for at, write in seen.writes:
        if write.status in ENDED:
            ended.setdefault(write.run, at)
    for at, write in seen.writes:
        for each in write.messages:
            is_over = ended.get(each.run, at + 1) <= at or each.run in seen.pruned
            if (each.run, each.id) not in delivered and not is_over and each.run in seen.durable:
                final = seen.finals.get(each.run)
                if final is not None and not _has_received(seen, each.id):
                    yield HistoryViolation("I10", "message lost", each.run, f"{each.what} {each.id} of {write.write}")


def _has_received(seen: Seen, message: str) -> bool:
    """Whether another run has it: a message counts once under its key."""
    return any(each.id == message for _, each in seen.of(MessageDelivered))


def _same_fences(seen: Seen) -> Iterator[HistoryViolation]:
    epochs: dict[str, int] = {}
    for record in seen.history:
        match record:
            case FaultApplied(fault="forgot"):
                epochs.clear()
            case RunMoved(how="claimed" | "rescued" | "left", run=run, fence=FenceSeen(epoch, _)):
                if epochs.get(run, -1) >= epoch:
                    yield HistoryViolation("I6", "same fence", run, f"{record.how} at epoch {epoch}")
                epochs[run] = epoch
            case StoreWrite(outcome="accepted", run=run, fence=FenceSeen(epoch, _)):
                epochs[run] = max(epoch, epochs.get(run, 0))
            case _:
                pass


def _strange_children(seen: Seen) -> Iterator[HistoryViolation]:
    """The children of a run that has completed are those that its journal names.

    What it began just before it continued as new, or ceased to wait for, may be recorded nowhere: those are left out.
    """
    continued = {write.run for _, write in seen.writes if write.replaces_journal}
    for _, write in seen.writes:
        began = write.entries[0] if write.admits and write.entries else None
        if not isinstance(began, Started) or write.run in seen.forks or write.key:
            continue
        parent = seen.finals.get(_parent_of(began))
        if parent is None or parent.status != "completed" or parent.run in seen.forks | continued:
            continue
        if seen.went_on(parent.run) or any(isinstance(entry, Elapsed) for entry in parent.journal):
            continue
        if write.run not in seen.children:
            yield HistoryViolation("I3", "child twice", parent.run, f"{write.run} is not in its journal")


def _parent_of(began: Started) -> str:
    if isinstance(began.attributes, UnsetType):
        return ""
    return str(json.loads(bytes(began.attributes)).get(attributes.PARENT, ""))


def _repeated_once(seen: Seen) -> Iterator[HistoryViolation]:
    intended = {
        (run, each.entry.step): each.at or 0
        for run, entries in seen.durable.items()
        for each in reversed(entries)
        if isinstance(each.entry, Intended)
    }
    called: set[tuple[str, str]] = set()
    for at, call in seen.begun:
        name = call.step.rpartition("/")[2].partition("#")[0]
        if name not in {"once", "asked"} or call.undo or call.run in seen.forks:
            continue
        step = (call.run, call.step)
        if name == "once" and step in called:
            yield HistoryViolation("I3", "once twice", call.run, f"{call.step} was called again")
        if intended.get(step, at) >= at and call.run in seen.durable:
            yield HistoryViolation("I5", "once twice", call.run, f"{call.step} was called before its intent was kept")
        called.add(step)


def _before_the_record(seen: Seen) -> Iterator[HistoryViolation]:
    first: dict[tuple[str, str], int] = {}
    for at, call in seen.begun:
        first.setdefault((call.run, call.step), at)
    admitted = {write.run: at for at, write in reversed(seen.writes) if write.admits}
    for (run, step), at in first.items():
        if admitted.get(run, at) >= at:
            yield HistoryViolation("I5", "before record", run, f"{step} was called before the run was admitted")
    for run, entries in seen.durable.items():
        last: dict[str, tuple[str, int]] = {}  # by task: the step that was performed last, and when that was durable
        if run in seen.forks:
            continue
        for each in entries:
            if not isinstance(each.entry, Performed) or each.at is None or each.entry.intent.kind != "effect":
                continue
            task, step = each.entry.step.rpartition("/")[0], each.entry.step
            before = last.get(task)
            if before is not None and first.get((run, step), each.at) < before[1]:
                detail = f"{step} was called before {before[0]} was recorded"
                yield HistoryViolation("I5", "before record", run, detail)
            last[task] = (step, each.at)


def _is_true(final: FinalRun) -> bool:
    """Whether a completed run has returned what its program may return."""
    if not final.journal or not isinstance(final.journal[-1], Completed) or final.status != "completed":
        return True
    began = next(entry for entry in final.journal if isinstance(entry, Started | Continued))
    if any(isinstance(entry, Forked) for entry in final.journal):
        began = next(entry for entry in reversed(final.journal) if isinstance(entry, Started | Continued))
    program: Any = json.loads(json_of(began.input))["program"]
    return programs.fits(json.loads(program), json.loads(final.result))


def json_of(value: Value) -> bytes:
    """A value that is kept inline, as all are here."""
    return bytes(value.json)  # pyright: ignore[reportArgumentType]
