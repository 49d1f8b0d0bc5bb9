"""Replay: bring the code of a run to where its journal ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.engine.code.machine import Machine, exhaust
from holdfast.kernel.journal import Continued, Entry, ReplayedEntry, Started, input_of, to_replay
from holdfast.kernel.replay import last_delivery
from holdfast.kernel.runs import Run
from holdfast.kernel.times import Instant

ENTRIES_AT_ONCE = 100  # some ten milliseconds


def replay(machine: Machine, run: Run, journal: tuple[Entry, ...]) -> None:
    """Deliver every entry that counts, in order. Raises `ReplayDiverged` where the code contradicts one."""
    exhaust(replaying(machine, run, journal))


def replaying(machine: Machine, run: Run, journal: tuple[Entry, ...]) -> Iterable[None]:
    """The same in pieces: a long journal must not keep this process from anything else, its lease least of all."""
    first = input_of(journal)
    began_at_ms = first.at_ms if type(first) is Continued else run.started_at_ms or run.created_at_ms
    if len(journal) == 1:
        return machine.starting(first, at_ms=began_at_ms)
    entries = to_replay(journal, first=run.length - len(journal))
    return _replaying(machine, first, began_at_ms, entries)


def _replaying(
    machine: Machine, first: Started | Continued, began_at_ms: Instant, entries: list[ReplayedEntry]
) -> Iterator[None]:
    last = last_delivery(entries)
    machine.notes.is_replaying = last >= 0
    if len(entries) > ENTRIES_AT_ONCE:
        yield
    yield from machine.starting(first, at_ms=began_at_ms)
    for n, (position, entry, strict) in enumerate(entries):
        machine.notes.is_replaying = n < last
        yield from machine.applying(entry, position, strict=strict)
        if n % ENTRIES_AT_ONCE == ENTRIES_AT_ONCE - 1:
            yield
