"""The account of one unit of work: what was counted and sampled of it, for Holdfast and for the sketch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from bench.profile.causes import ACCOUNT, ASYNCIO, BENCHMARK, OTHER, UPKEEP
from bench.profile.counts import Frame, by_cause, by_place
from bench.profile.samples import Times

ACCOUNTED = {cause.name for cause in ACCOUNT}
# Frames from which Holdfast is entered: the benchmark, the event loop of the process, the start of a thread.
OUTSIDE = {BENCHMARK.name, ASYNCIO.name, OTHER.name}


class Account(msgspec.Struct):
    """What a run of W1, or an effect of W2, costs. All counts are of the whole load, which has `size` units."""

    workload: str
    unit: str
    size: int
    tree: Frame
    tree_of_sketch: Frame
    times: Times
    machine: dict[str, float] | None = None  # per unit, by part
    machine_of_sketch: float | None = None  # per unit

    @property
    def named(self) -> str:
        return f"an {self.unit}" if self.unit[0] in "aeiou" else f"a {self.unit}"

    def instructions(self) -> dict[str, float]:
        """Bytecode instructions per unit, by cause, in the order of the account."""
        counted = by_cause(self.tree)
        return {cause.name: counted[cause.name] / self.size for cause in ACCOUNT}

    def total(self) -> float:
        return sum(self.instructions().values())

    def total_of_sketch(self) -> float:
        counted = by_cause(self.tree_of_sketch)
        return sum(counted[name] for name in ACCOUNTED) / self.size

    def files(self) -> dict[tuple[str, str], float]:
        """Bytecode instructions per unit, by file and cause."""
        return {place: n / self.size for place, n in by_place(self.tree).items() if place[1] in ACCOUNTED}


def entry_points(tree: Frame) -> list[Frame]:
    """The functions of Holdfast that are reached from outside of it, with all below them. Upkeep is left out."""
    return merged(frame for frame in _entered(tree) if frame.cause != UPKEEP.name)


def _entered(frame: Frame) -> Iterator[Frame]:
    for below in frame.below:
        if below.cause in OUTSIDE:
            yield from _entered(below)
        else:
            yield below


def merged(frames: Iterable[Frame]) -> list[Frame]:
    """The same function reached by several ways becomes one; the largest comes first."""
    together: dict[tuple[str, str], list[Frame]] = {}
    for frame in frames:
        together.setdefault((frame.place, frame.function), []).append(frame)
    result = [
        Frame(
            *place,
            same[0].cause,
            sum(each.instructions for each in same),
            sum(each.calls for each in same),
            merged(below for each in same for below in each.below),
        )
        for place, same in together.items()
    ]
    return sorted(result, key=weight, reverse=True)


def weight(frame: Frame) -> int:
    """The instructions of a function and of all that it called."""
    return sum(each.instructions for each in frame.walk())
