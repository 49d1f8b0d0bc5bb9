"""Replay: bring the code of a run to where its journal ends."""

from __future__ import annotations

from holdfast.engine.machine import Machine
from holdfast.kernel.changes import Run
from holdfast.kernel.journal import Continued, Entry, input_of, to_replay
from holdfast.kernel.replay import last_delivery


def replay(machine: Machine, run: Run, journal: tuple[Entry, ...]) -> None:
    """Deliver every entry that counts, in order. Raises `ReplayDiverged` where the code contradicts one."""
    first = input_of(journal)
    began_ms = first.at_ms if isinstance(first, Continued) else run.started_ms or run.created_ms
    entries = to_replay(journal, first=run.length - len(journal))
    last = last_delivery(entries)
    machine.notes.is_replaying = last >= 0
    machine.start(first, at_ms=began_ms)
    for n, (position, entry, strict) in enumerate(entries):
        machine.notes.is_replaying = n < last
        machine.apply(entry, position, strict=strict)
