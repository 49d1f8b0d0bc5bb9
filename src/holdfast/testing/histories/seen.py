"""A history, indexed for the rules: operations with their returns, entries with when they became durable."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import inf
from typing import NamedTuple, TypeVar, cast

from msgspec.structs import replace

from holdfast.kernel.cancels import UNDO
from holdfast.kernel.journal import (
    Continued,
    EffectEntry,
    Entry,
    Forked,
    Joined,
    Late,
    Received,
    Resumed,
    Retried,
    Spawned,
    void_positions,
)
from holdfast.kernel.runs import ENDED
from holdfast.kernel.times import NO_TIME, Instant
from holdfast.testing.histories.history import (
    EffectObserved,
    FaultApplied,
    FinalKey,
    FinalRun,
    HistoryHead,
    OperationCalled,
    OperationOutcome,
    OperationReturned,
    Record,
    RunMoved,
    StoreWrite,
)

R = TypeVar("R")
Place = tuple[str, str, str]  # namespace, workflow, key


class Operation(NamedTuple):
    """What a client asked for, and what it was told. `began` and `ended` are places in the history."""

    called: OperationCalled
    returned: OperationReturned | None
    began: int
    ended: float

    @property
    def outcome(self) -> OperationOutcome:
        return "unknown" if self.returned is None else self.returned.outcome

    @property
    def run(self) -> str:
        """The run that was returned."""
        return "" if self.returned is None else self.returned.run

    @property
    def place(self) -> Place:
        return self.called.namespace, self.called.workflow, self.called.key


class Durable(NamedTuple):
    """A journal entry that the store has accepted. `at` is a place in the history; None if only a journal shows it."""

    at: int | None
    at_ms: Instant
    position: int
    entry: Entry
    epoch: int | None = None


class Seen:
    """All records of a history by kind. What a store forgot later counts as never written."""

    def __init__(self, history: Sequence[Record]) -> None:
        self.history = history
        self._by_kind: dict[type[Record], list[tuple[int, Record]]] = defaultdict(list)
        for at, record in enumerate(history):
            self._by_kind[type(record)].append((at, record))
        heads = self.of(HistoryHead)
        self.head = heads[0][1] if heads else HistoryHead(source="", lease_ms=NO_TIME)
        self.finals = {final.run: final for _, final in self.of(FinalRun)}
        self.pruned = {moved.run for _, moved in self.of(RunMoved) if moved.how == "pruned"}
        self.forks = {
            record.run
            for record in history
            if (isinstance(record, StoreWrite) and any(isinstance(each, Forked) for each in record.entries))
            or (isinstance(record, FinalRun) and any(isinstance(each, Forked) for each in record.journal))
        }
        self.operations = list(self._operations())
        # What was offered again since, under the same id, is there.
        lost = {write: at for at, fault in self.of(FaultApplied) if fault.fault == "forgot" for write in fault.lost}
        accepted = [(at, write) for at, write in self.of(StoreWrite) if write.outcome == "accepted"]
        self.writes = [(at, write) for at, write in accepted if at > lost.get(write.write, -1)]
        self.forgotten = [(at, write) for at, write in accepted if at <= lost.get(write.write, -1)]
        self.durable: dict[str, list[Durable]] = defaultdict(list)
        self._collect_durable()
        self.ever = self._ever_durable()
        self.begun: list[tuple[int, EffectObserved]] = []
        self.ended: dict[str, list[tuple[int, EffectObserved]]] = defaultdict(list)  # by run
        self._collect_calls()
        # A child that was awaited shows when it is joined, one that was spawned at once.
        self.children = {
            each.entry.run_id
            for of_run in self.durable.values()
            for each in of_run
            if isinstance(each.entry, Joined | Late) or (isinstance(each.entry, Spawned) and each.entry.created)
        }
        self.places: dict[str, Place] = {
            seen.run: (seen.namespace, seen.workflow, seen.key)
            for seen in (*(write for _, write in accepted), *(final for _, final in self.of(FinalRun)))
            if seen.key
        }
        for operation in self.operations:
            for run in filter(None, (operation.run, operation.called.replaces)):
                if operation.called.verb in {"start", "find"} and operation.called.key:
                    self.places.setdefault(run, operation.place)

    def of(self, kind: type[R]) -> list[tuple[int, R]]:
        """All records of this kind with their places in the history."""
        return cast("list[tuple[int, R]]", self._by_kind[kind])  # pyright: ignore[reportArgumentType]

    @property
    def keys(self) -> list[FinalKey]:
        return [key for _, key in self.of(FinalKey)]

    def has_whole_journal(self, run: str) -> bool:
        """Whether all that the run ever recorded is known. Without writes, earlier generations are not."""
        final = self.finals.get(run)
        is_written = any(each.at is not None for each in self.durable.get(run, ())[:1])
        return is_written or (final is not None and not any(isinstance(each, Continued) for each in final.journal[:1]))

    def may_have_changed(self, run: str) -> bool:
        """Whether what was read of it may have been true then and not be so now: it went on, or the store forgot it."""
        forgot = (fault for _, fault in self.of(FaultApplied) if fault.fault == "forgot")
        return self.went_on(run) or any(not fault.runs or run in fault.runs for fault in forgot)

    def went_on(self, run: str) -> bool:
        """Whether a person has let it go on after it had ended."""
        return any(isinstance(each.entry, Resumed | Retried) for each in self.durable.get(run, ()))

    def has_ended(self, run: str) -> bool:
        return run in self.finals and self.finals[run].status in ENDED

    def _operations(self) -> Iterator[Operation]:
        returns = {returned.op: (at, returned) for at, returned in reversed(self.of(OperationReturned))}
        for at, called in self.of(OperationCalled):
            ended, returned = returns.get(called.op, (inf, None))
            is_known = returned is not None and returned.outcome != "unknown"
            yield Operation(called, returned, at, ended if is_known else inf)

    def _collect_durable(self) -> None:
        """From the writes, where there are any: then earlier generations are seen too. Otherwise from the journals."""
        for at, write in self.writes:
            self.durable[write.run] += _durable(at, write)
        for final in self.finals.values():
            if final.run not in self.durable:
                first = max(0, final.length - len(final.journal))
                own = _own(final.journal, first)
                self.durable[final.run] = [Durable(None, entry.at_ms, position, entry) for position, entry in own]

    def _ever_durable(self) -> dict[str, list[Durable]]:
        """The same, and what the store has forgotten since: hosts may have acted on it before."""
        if not self.forgotten:
            return self.durable
        ever = {run: list(entries) for run, entries in self.durable.items()}
        for at, write in self.forgotten:
            ever.setdefault(write.run, []).extend(_durable(at, write))
        return {
            run: sorted(entries, key=lambda each: -1 if each.at is None else each.at) for run, entries in ever.items()
        }

    def _collect_calls(self) -> None:
        steps = {
            (run, each.entry.intent.key): each.entry.step
            for run, entries in self.ever.items()
            for each in entries
            if isinstance(each.entry, EffectEntry)
        }
        for at, call in self.of(EffectObserved):
            step = call.step or steps.get((call.run, call.key), call.key)
            known = replace(call, step=step, undo=call.undo or step.startswith(UNDO))
            if call.phase == "began":
                self.begun.append((at, known))
            else:
                self.ended[call.run].append((at, known))


def counting(final: FinalRun) -> Iterator[tuple[int, Entry]]:
    """The entries of a journal that have not been taken back, with their positions."""
    void, first = void_positions(final.journal), max(0, final.length - len(final.journal))
    return ((at, entry) for at, entry in enumerate(final.journal, first) if at not in void)


def _durable(at: int, write: StoreWrite) -> Iterator[Durable]:
    """The entries that a write has recorded."""
    first = (write.length or 0) - len(write.entries)
    epoch = None if write.presented is None else write.presented.epoch
    for position, entry in _own(write.entries, first, is_continued=write.replaces_journal):
        yield Durable(at, write.at_ms, position, entry, epoch)


def _own(entries: tuple[Entry, ...], first: int, *, is_continued: bool = False) -> Iterator[tuple[int, Entry]]:
    """The entries that are the run's own: not those copied by a fork, nor signals carried to the next generation."""
    copied = max((at for at, entry in enumerate(entries) if isinstance(entry, Forked)), default=-1)
    for at, entry in enumerate(entries):
        if at > copied and not (is_continued and isinstance(entry, Received)):
            yield first + at, entry
