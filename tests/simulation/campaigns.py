"""Campaigns: many seeds, what happened in them, and what was wrong. A failing seed is shrunk to a short schedule."""

from __future__ import annotations

import contextlib
import gc
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from holdfast.testing.histories.history import EffectObserved, OperationReturned, StoreWrite
from tests.simulation.judging import Judged
from tests.simulation.plans import Plan, draw
from tests.simulation.worlds import simulate

T = TypeVar("T")
TWICE_EVERY = 50
SHARE_MIN = 0.01
COLLECT_EVERY = 20
SOMETIMES = (
    "lease stolen",
    "late write refused",
    "effect repeated",
    "key taken over",
    "cancel met end",
    "unknown applied",
    "unknown lost",
    "outbox relayed",
)


class Wrong(Struct, frozen=True):
    """A seed that failed, and why."""

    seed: int
    kinds: tuple[str, ...]
    details: tuple[str, ...]


class Tally(Struct):
    """What came of the seeds so far. Tallies of several processes are added up."""

    seeds: int = 0
    twice: int = 0  # seeds that ran a second time, with an equal digest
    undecided: int = 0
    virtual_seconds: float = 0.0
    cpu_seconds: float = 0.0  # of whichever processes ran them
    sometimes: Counter[str] = field(default_factory=Counter)  # in how many seeds
    operations: Counter[str] = field(default_factory=Counter)
    effects: int = 0
    writes: int = 0
    wrong: list[Wrong] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.seeds += other.seeds
        self.twice += other.twice
        self.undecided += other.undecided
        self.virtual_seconds += other.virtual_seconds
        self.cpu_seconds += other.cpu_seconds
        self.sometimes += other.sometimes
        self.operations += other.operations
        self.effects += other.effects
        self.writes += other.writes
        self.wrong += other.wrong

    @property
    def vacuous(self) -> tuple[str, ...]:
        """What happened in too few seeds for the campaign to mean anything."""
        return tuple(label for label in SOMETIMES if self.sometimes[label] < SHARE_MIN * self.seeds)

    @property
    def has_passed(self) -> bool:
        return not self.wrong and not self.vacuous


@contextlib.contextmanager
def collecting_by_hand() -> Generator[None]:
    """While a process does nothing but worlds: what is there already is not looked through again, and what worlds leave
    behind only now and then, see `run_seed`.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def run_seed(seed: int) -> Tally:
    """Let the world of a seed happen, and judge it; each 50th one happens twice."""
    began = time.process_time()
    simulated = simulate(draw(seed))
    judged = Judged(simulated)
    tally = Tally(
        seeds=1,
        undecided=bool(judged.undecided),
        virtual_seconds=simulated.seconds,
        sometimes=Counter(dict.fromkeys(simulated.sometimes, 1)),
        operations=Counter(each.outcome for each in simulated.history if isinstance(each, OperationReturned)),
        effects=sum(isinstance(each, EffectObserved) and each.phase == "began" for each in simulated.history),
        writes=sum(isinstance(each, StoreWrite) for each in simulated.history),
    )
    if (wrong := _wrong(judged, seed)) is not None:
        tally.wrong.append(wrong)
    if seed % TWICE_EVERY == 0:
        tally.twice = 1
        if simulate(draw(seed)).digest != simulated.digest:
            tally.wrong.append(Wrong(seed, ("not deterministic",), ("the second time another history came of it",)))
    if seed % COLLECT_EVERY == 0:
        gc.collect()
    tally.cpu_seconds = time.process_time() - began
    return tally


def look_at(seed: int) -> Wrong | None:
    """What is wrong with the world of a seed, and nothing else; None if nothing is."""
    if seed % COLLECT_EVERY == 0:
        gc.collect()
    return _wrong(Judged(simulate(draw(seed))), seed)


def _wrong(judged: Judged, seed: int) -> Wrong | None:
    if not judged.violations:
        return None
    details = tuple(f"{each.invariant} {each.kind}: {each.about}: {each.detail}" for each in judged.violations)
    return Wrong(seed, judged.kinds, details)


def run_seeds(seeds: Iterable[int]) -> Tally:
    """Run one seed after the other."""
    tally = Tally()
    for seed in seeds:
        tally.add(run_seed(seed))
    return tally


# -- a failing seed


def shrink(plan: Plan, kinds: Sequence[str], *, tries_max: int = 150) -> Plan:
    """A plan with fewer faults and acts that fails in one of the same ways."""
    tries = [tries_max]

    def fails(shorter: Plan) -> bool:
        if tries[0] <= 0:
            return False
        tries[0] -= 1
        return bool(set(Judged(simulate(shorter)).kinds) & set(kinds))

    faults = _fewest(plan.faults, lambda kept: fails(replace(plan, faults=kept)))
    plan = replace(plan, faults=faults)
    acts = _fewest(plan.acts, lambda kept: fails(replace(plan, acts=kept)))
    plan = replace(plan, acts=acts)
    for simpler in (replace(plan, bus_faults=()), replace(plan, shards=1), replace(plan, inside=())):
        if simpler != plan and fails(simpler):
            plan = simpler
    return plan


def _fewest(things: tuple[T, ...], fails: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """As few of them as still fail: leave out halves, then quarters, then each one."""
    portion = max(1, len(things) // 2)
    while things:
        at = 0
        while at < len(things):
            fewer = things[:at] + things[at + portion :]
            if fails(fewer):
                things = fewer
            else:
                at += portion
        if portion == 1:
            break
        portion = max(1, portion // 2)
    return things
