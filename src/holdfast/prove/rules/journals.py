"""Rules about journals: nothing is recorded twice, markers are legal, and the code does again what each prefix says.

rule                                   what it compares
─────────────────────────────────────  ──────────────────────────────────────────────────────────────────
recorded twice                         the journal
an illegal marker                      the journal with the markers that the workflow declares
it does not replay                     every prefix of each journal with the code
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from holdfast.engine.replay_check import divergence_of
from holdfast.kernel.journal import Entry, GaveUp, IntentEntry, Marked, Performed, void_positions
from holdfast.kernel.runs import Run
from holdfast.prove.rules.declarations import Declarations
from holdfast.prove.rules.wording import of_times
from holdfast.prove.samples import CODEC
from holdfast.prove.worlds.outcomes import WorldOutcome
from holdfast.prove.worlds.trace import BrokenRule


def broken_by_records(world: WorldOutcome, declared: Declarations) -> Iterator[BrokenRule]:
    """What is wrong with the journals of a world by themselves."""
    for run in world.runs:
        journal = world.journals[run.id]
        first = run.length - len(journal)
        if first < 0:
            yield BrokenRule(rule="recorded twice", what=f"the journal is longer than the run says by {-first}")
            continue
        void = void_positions(journal)
        ended = Counter(
            entry.step
            for at, entry in enumerate(journal, first)
            if isinstance(entry, Performed | GaveUp) and at not in void
        )
        for step, count in ended.items():
            if count > 1:
                yield BrokenRule(rule="recorded twice", what=f"{step} is recorded {of_times(count)}", step=step)
        yield from _illegal_markers(run, journal, declared)


def _illegal_markers(run: Run, journal: tuple[Entry, ...], declared: Declarations) -> Iterator[BrokenRule]:
    legal = declared.workflow(run.workflow).markers
    reached = [entry.marker for entry in journal if isinstance(entry, Marked)]
    for before, after in pairwise(reached):
        if before in legal and after not in legal[before] and before != after:
            yield BrokenRule(rule="an illegal marker", what=f"{after!r} after {before!r}")


class PrefixReplays:
    """Replays every prefix of each journal. One that has replayed before, in whatever world, is not replayed again."""

    def __init__(self, declared: Declarations) -> None:
        self._declared = declared
        self._replayed: set[int] = set()

    def broken_by(self, world: WorldOutcome) -> Iterator[BrokenRule]:
        """The first prefix of each journal that the code contradicts."""
        for run in world.runs:
            journal = world.journals[run.id]
            first = run.length - len(journal)
            for count in range(1, len(journal) + 1):
                told = self._divergence(world, run, journal[:count], length=first + count)
                if told:
                    last = journal[count - 1]
                    step = last.step if isinstance(last, IntentEntry) else ""
                    what = f"its code does not do again what its journal says: {told.strip()}"
                    yield BrokenRule(rule="it does not replay", what=what, step=step)
                    break

    def _divergence(self, world: WorldOutcome, run: Run, prefix: tuple[Entry, ...], *, length: int) -> str:
        digest = hash((run.workflow, tuple(map(_timeless, prefix))))
        if digest in self._replayed:
            return ""
        row, blobs = replace(run, length=length), world.blobs[run.id]
        told = divergence_of(row, prefix, blobs, registry=self._declared.registry, codec=CODEC)
        if not told:
            self._replayed.add(digest)
        return told


def _timeless(entry: Entry) -> bytes:
    """An entry without its time: journals that differ in nothing else replay alike."""
    return msgspec.json.encode(replace(entry, at_ms=0))
