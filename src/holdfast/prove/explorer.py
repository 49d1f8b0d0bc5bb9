"""Which worlds there are, in which order, and what became of them.

    1  the clean run, twice: a world that differs from itself is not worth another look
    2  each start and signal twice in sequence, together, late
    3  each fault at each boundary of the clean run
    4  a crash at each boundary that a world reaches after a cancellation, or after a first crash; worlds that go on
       alike from there count once

What the budget does not reach of 3 and 4 is sampled by the seed; 1 and 2 are always lived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random  # noqa: TID251 - seeded

from msgspec import Struct

from holdfast.prove.cases import Case
from holdfast.prove.reads import CURES, reads_noted
from holdfast.prove.report import ProofVerdict, blocked_in_words
from holdfast.prove.rules.clean_runs import unexpected_end
from holdfast.prove.rules.declarations import Declarations
from holdfast.prove.rules.judge import Judge
from holdfast.prove.schedules import CLEAN, FAULTS, Boundary, PlannedFault, Schedule
from holdfast.prove.worlds.faults import PAST_LEASE
from holdfast.prove.worlds.outcomes import WorldOutcome
from holdfast.prove.worlds.proved_world import LEASE_SECONDS_MIN, ProvedWorld
from holdfast.prove.worlds.trace import BrokenRule

LEASE_FACTOR = 16
LEASE_TRIES = 6
LEASES_MAX = 20  # that a clean run lasts, if it lasts long: nothing but renewals happens in most of them
SLOWER_SECONDS = 0.1
FOUND_MAX = 5  # different violations of one case, then it is enough


class Found(Struct, frozen=True, kw_only=True):
    """A world that went wrong, and what is wrong with it."""

    schedule: Schedule
    violations: list[BrokenRule]
    outcome: WorldOutcome


class Explored(Struct, kw_only=True):
    """What became of one case."""

    case: Case
    clean: WorldOutcome | None = None
    problem: str = ""  # why nothing could be proved
    worlds: int = 0
    worlds_known: int = 0  # that there are, as far as they were enumerated
    planned: int = 1  # as far as is known by now
    boundaries: int = 0
    found: list[Found] = []
    lease_seconds: float = LEASE_SECONDS_MIN
    seconds_lived: float = 0.0  # of virtual time, in all worlds

    @property
    def verdict(self) -> ProofVerdict:
        if self.found:
            return "failed"
        return "not proved" if self.problem else "proved"


class Explorer:
    """Lives the worlds of one case."""

    def __init__(
        self,
        case: Case,
        *,
        seed: int,
        budget: int,
        tell: Callable[[Explored], None] = lambda _: None,
        lease_seconds: float | None = None,
        live: Callable[[ProvedWorld, Schedule], WorldOutcome] = lambda world, _: world.live(),
    ) -> None:
        self._case = case
        self._seed = seed
        self._budget = budget
        self._tell = tell
        self._live_world = live
        self._declared = Declarations(case.packs)
        self._out = Explored(case=case, found=[], lease_seconds=lease_seconds or LEASE_SECONDS_MIN)
        self._is_repeated = lease_seconds is not None
        self._left = 0

    def explore(self) -> Explored:
        """Live worlds until the budget is spent, or enough is wrong."""
        out = self._out
        clean = self._clean_world()
        if clean is None:
            return out
        clean.slower = [self.live(CLEAN, slower_seconds=each) for each in self._slower_seconds()]
        judge = Judge(clean, self._declared)
        for schedule in (CLEAN, *self._deliveries(clean)):
            self._try(judge, schedule)
        singles = [Schedule((fault,)) for fault in _faults_of(clean.boundaries)]
        out.planned = out.worlds + len(singles)
        later: list[Schedule] = []
        suffixes: set[tuple[tuple[str, str, str], ...]] = set()
        for schedule in self._within_budget(singles):
            outcome = self._try(judge, schedule)
            later += self._second_faults(schedule, outcome, suffixes)
        out.planned = out.worlds + len(later)
        for schedule in self._sampled(later):
            self._try(judge, schedule)
        out.worlds_known = out.worlds + max(0, self._left)
        return out

    def _slower_seconds(self) -> tuple[float, ...]:
        """A little, and as much as a fault takes."""
        return SLOWER_SECONDS, self._out.lease_seconds * PAST_LEASE + SLOWER_SECONDS

    def live(self, schedule: Schedule, *, slower_seconds: float = 0.0) -> WorldOutcome:
        """One world."""
        world = ProvedWorld(
            self._case,
            schedule,
            seed=self._seed,
            lease_seconds=self._out.lease_seconds,
            slower_seconds=slower_seconds,
        )
        outcome = self._live_world(world, schedule)
        self._out.seconds_lived += outcome.lasted_seconds
        return outcome

    def judged(self, schedule: Schedule) -> Found | None:
        """One world, compared with the clean one."""
        clean = self._clean_world()
        if clean is None:
            return None
        clean.slower = [self.live(CLEAN, slower_seconds=each) for each in self._slower_seconds()]
        outcome = self.live(schedule)
        return self._found(Judge(clean, self._declared), schedule, outcome)

    def _clean_world(self) -> WorldOutcome | None:
        """The clean run, with a lease that suits how long it takes."""
        out = self._out
        lives = [outcome := self.live(CLEAN)]
        for _ in range(LEASE_TRIES):
            if outcome.is_over:
                break
            out.lease_seconds *= LEASE_FACTOR
            lives.append(outcome := self.live(CLEAN))
        if not outcome.is_over:
            out.problem = "the clean run does not come to an end"
            return None
        fitting = max(LEASE_SECONDS_MIN, outcome.lasted_seconds / LEASES_MAX)
        if fitting != out.lease_seconds and not self._is_repeated:
            out.lease_seconds = fitting
            lives.append(outcome := self.live(CLEAN))
        outcome.earlier = lives[:-1]
        run = outcome.root_run
        if run is None or run.status.value == "blocked":
            out.problem = blocked_in_words(run.error if run else None)
            return None
        out.problem = unexpected_end(run, self._case.fails)
        if out.problem:
            return None
        out.clean, out.boundaries = outcome, len(outcome.boundaries)
        return outcome

    def _deliveries(self, clean: WorldOutcome) -> Iterator[Schedule]:
        has_signals = any("a message" in boundary.about for boundary in clean.boundaries)
        for repeat in self._case.deliver:
            yield Schedule(start=repeat)
            if has_signals:
                yield Schedule(signals=repeat)

    def _second_faults(
        self, schedule: Schedule, outcome: WorldOutcome, suffixes: set[tuple[tuple[str, str, str], ...]]
    ) -> Iterator[Schedule]:
        if len(schedule.faults) != 1 or not outcome.faults_met:
            return
        first = schedule.faults[0]
        if first.what not in {"cancel", "crash"}:
            return
        after = [boundary for boundary in outcome.boundaries if boundary.number > first.at]
        suffix = (("", first.what, ""), *(boundary.place for boundary in after))
        if suffix in suffixes:
            return  # another one went on in just the same way
        suffixes.add(suffix)
        for boundary in after:
            if "crash" in FAULTS[boundary.kind, boundary.phase]:
                yield Schedule((first, PlannedFault(boundary.number, "crash")))

    def _within_budget(self, schedules: list[Schedule]) -> Iterable[Schedule]:
        room = self._budget - self._out.worlds
        if len(schedules) <= room:
            return schedules
        self._left = len(schedules) - room
        return sorted(
            Random(self._seed).sample(schedules, max(0, room)),
            key=lambda each: (each.faults[0].at, each.faults[0].what),
        )

    def _sampled(self, schedules: list[Schedule]) -> Iterable[Schedule]:
        """Those that undo something first: they are the fewest and the most telling. Of the others, what fits."""
        room = self._budget - self._out.worlds
        if len(schedules) <= room:
            return schedules
        self._left += len(schedules) - max(0, room)
        cancelled = [each for each in schedules if each.faults[0].what == "cancel"]
        others = [each for each in schedules if each.faults[0].what != "cancel"]
        chance = Random(self._seed)
        chance.shuffle(cancelled)
        chance.shuffle(others)
        half = max(0, room // 2)
        taken = cancelled[: max(half, room - len(others))]
        return taken + others[: max(0, room - len(taken))]

    def _try(self, judge: Judge, schedule: Schedule) -> WorldOutcome:
        outcome = self.live(schedule)
        self._out.worlds += 1
        found = self._found(judge, schedule, outcome)
        if found is not None:
            self._keep(found)
        self._tell(self._out)
        return outcome

    def _found(self, judge: Judge, schedule: Schedule, outcome: WorldOutcome) -> Found | None:
        violations = judge.judge(outcome)
        if schedule == CLEAN:
            violations = [*self._reads(), *violations]
        return Found(schedule=schedule, violations=violations, outcome=outcome) if violations else None

    def _reads(self) -> list[BrokenRule]:
        """What the workflow reads that no journal records: it shows in the clean run, if one looks."""
        noted: dict[tuple[str, str], None] = {}
        with reads_noted(lambda what, line: noted.setdefault((what, line)), packages=self._declared.packages):
            self.live(CLEAN)
        return [
            BrokenRule(
                rule="it reads what is not recorded",
                what=f"the workflow reads {what}, which is another one when it is replayed; use {CURES[what]}",
                line=line,
            )
            for what, line in noted
        ]

    def _keep(self, found: Found) -> None:
        """Of worlds that show the same, the one with the fewest faults."""
        known = self._out.found
        for at, other in enumerate(known):
            if (
                other.violations[0].rule == found.violations[0].rule
                and other.violations[0].step == found.violations[0].step
            ):
                if found.schedule.size < other.schedule.size:
                    known[at] = found
                return
        if len(known) < FOUND_MAX:
            known.append(found)


def _faults_of(boundaries: list[Boundary]) -> Iterator[PlannedFault]:
    for boundary in boundaries:
        for what in FAULTS[boundary.kind, boundary.phase]:
            yield PlannedFault(boundary.number, what)
