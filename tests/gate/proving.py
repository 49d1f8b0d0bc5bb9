"""Proves on one installation after the other that the gate finds each planted bug, and nothing where there is none.

python -m tests.gate.proving [bug ...]      all of them, or those named; exits with 1 if one was not found
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.adapters.machine import SystemClock
from holdfast.lab.cluster.local_cluster import Plan
from holdfast.lab.gate import installation, suite
from holdfast.lab.gate.cluster import REPLICAS, GateCluster, of_role
from holdfast.lab.gate.report import ScenarioResult
from holdfast.lab.gate.scenario import GateOptions
from tests.gate import planting
from tests.gate.planted import PLANTED

ROOT = Path(__file__).parents[2]
OPTIONS = GateOptions(
    runs=20, lease_ms=1_500, patience_ms=40_000
)  # most of the time is spent on waiting for leases to end
IMPATIENT = replace(OPTIONS, patience_ms=8_000)  # where a bug is planted, some runs never end
AGAIN_MAX = 2
PLANTED_SECONDS = 20.0
ON_SENTINEL = frozenset({"confirmations"})  # what a single Redis has nothing for
NOTHING = ""
_clock = SystemClock()


class Ground(NamedTuple):
    """An installation in which bugs can be planted."""

    cluster: GateCluster
    ledger: Path
    file: Path

    async def outcome(self, scenario: str, bug: str = NOTHING) -> ScenarioResult:
        """What the gate says of a scenario with this bug.

        If the scenario proves nothing, or does not find the bug, it is run again, and more patiently: on a busy machine
        a signal may not have met the end of a run, or no reader have seen one.
        """
        await self._planted(bug)
        try:
            outcome = await self._run(scenario, IMPATIENT if bug else OPTIONS)
            for _ in range(AGAIN_MAX):
                if outcome.verdict == "not proved" or (bug and PLANTED[bug].kind not in found(outcome)):
                    outcome = await self._run(scenario, OPTIONS)
        finally:
            await self._planted(NOTHING)
        return outcome

    async def _run(self, scenario: str, options: GateOptions) -> ScenarioResult:
        report = await suite.run(self.cluster, [scenario], ledger_file=self.ledger, options=options, tell=_silent)
        [outcome] = report.scenarios
        return outcome

    async def _planted(self, bug: str) -> None:
        """Returns when every replica has it."""
        self.file.write_text(bug)
        give_up_ms = _clock.steady_ms() + PLANTED_SECONDS * 1000
        pids = [self.cluster.members[name].pid for name in of_role(self.cluster, *REPLICAS)]
        while any(planting.acknowledged(self.file, pid) != bug for pid in pids):
            assert _clock.steady_ms() < give_up_ms, f"not every replica has planted {bug!r}"
            await _clock.pause(planting.LOOK_SECONDS)


@asynccontextmanager
async def ground(directory: Path, *, sentinel: bool = False) -> AsyncGenerator[Ground]:
    file = directory / "planted"
    file.write_text(NOTHING)
    plan = Plan(
        redis="sentinel" if sentinel else "single",
        packs=("tests.gate.planting",),
        environment={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", planting.FILE: str(file)},
    )
    async with installation.up(directory, plan, lease_ms=OPTIONS.lease_ms) as (cluster, ledger):
        yield Ground(cluster, ledger, file)


def found(outcome: ScenarioResult) -> set[str]:
    """The kinds of violations that were found."""
    return {violation.kind for violation in outcome.violations}


def scenarios_of(bugs: Iterable[str], *, sentinel: bool) -> list[str]:
    """The scenarios that these bugs need on one kind of installation."""
    wanted = dict.fromkeys(PLANTED[bug].scenario for bug in bugs)
    return [scenario for scenario in wanted if (scenario in ON_SENTINEL) is sentinel]


def _silent(_: object) -> None:
    pass


async def _prove(bugs: Sequence[str]) -> bool:
    """Every scenario without a bug, and every bug; says what became of each."""
    caught, sound = 0, True
    for sentinel in (False, True):
        scenarios = scenarios_of(bugs, sentinel=sentinel)
        if not scenarios:
            continue
        with tempfile.TemporaryDirectory(prefix="holdfast-planted-") as directory:
            async with ground(Path(directory), sentinel=sentinel) as here:
                for scenario in scenarios:
                    outcome = await here.outcome(scenario)
                    sound &= _told(outcome, "healthy", outcome.verdict == "passed")
                for bug in (bug for bug in bugs if PLANTED[bug].scenario in scenarios):
                    outcome = await here.outcome(PLANTED[bug].scenario, bug)
                    caught += _told(outcome, PLANTED[bug].words, PLANTED[bug].kind in found(outcome))
    print(f"{caught} of {len(bugs)} planted bugs were caught; the healthy system {'passes' if sound else 'FAILS'}.")
    return sound and caught == len(bugs)


def _told(outcome: ScenarioResult, words: str, is_right: bool) -> bool:
    seconds = (outcome.ended_at_ms - outcome.began_at_ms) / 1000
    kinds = ", ".join(sorted(found(outcome))) or "nothing"
    missing = "; ".join(f"{proof.what}: {proof.seen}" for proof in outcome.proofs if not proof.holds)
    mark = "ok " if is_right else "BAD"
    print(f"{mark} {outcome.name:14} {seconds:5.1f} s  {words}: {outcome.verdict}, {kinds} {missing}", flush=True)
    if not is_right:
        for violation in outcome.violations[:5]:
            print(f"      {violation.kind}: {violation.about}: {violation.detail}")
    return is_right


def main(names: Collection[str]) -> int:
    return 0 if asyncio.run(_prove(list(names or PLANTED))) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
