"""A small campaign: no violation, nothing vacuous, and worlds that are the same each time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.testing.histories.history import FaultApplied
from tests.simulation.campaigns import SOMETIMES, Tally, run_seeds, shrink
from tests.simulation.judging import Judged
from tests.simulation.plans import Fault, draw
from tests.simulation.plants import planted
from tests.simulation.seeds import HAPPENS_IN
from tests.simulation.worlds import simulate

ROOT = Path(__file__).parents[2]
PART = 20
DIGEST = """
from tests.simulation.plans import draw
from tests.simulation.worlds import simulate
print(simulate(draw(7)).digest)
"""


@pytest.mark.parametrize("first", range(0, 200, PART))
def test_worlds_under_faults_violate_nothing(first: int) -> None:
    tally = run_seeds(range(first, first + PART))
    assert not tally.wrong, tally.wrong
    assert not tally.undecided


def test_whose_writes_a_lost_primary_took_along_is_on_record() -> None:
    """Or a worker that could not record an effect for a while seems to have repeated it for nothing: seed 18633."""
    plan = replace(draw(0), faults=(Fault(at=0.5, kind="failover", seconds=2.0),))
    faults = [each.fault for each in simulate(plan).history if isinstance(each, FaultApplied)]
    assert "reply lost" in faults


def test_what_must_sometimes_happen_does() -> None:
    for label in SOMETIMES:
        assert label in simulate(draw(HAPPENS_IN[label])).sometimes


def test_a_campaign_in_which_something_never_happened_has_not_passed() -> None:
    tally = Tally(seeds=200, sometimes=Counter(dict.fromkeys(SOMETIMES, 2)))
    assert tally.has_passed
    tally.sometimes["lease stolen"] = 1
    assert tally.vacuous == ("lease stolen",)
    assert not tally.has_passed


def test_a_world_does_not_depend_on_the_order_of_sets() -> None:
    digests = [
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert digests[0] == digests[1]
    assert digests[0].strip() == simulate(draw(7)).digest


def test_a_failing_seed_is_shrunk_to_what_it_takes() -> None:
    with planted("key freed at the end"):
        plan = draw(0)
        kinds = Judged(simulate(plan)).kinds
        shorter = shrink(plan, kinds, tries_max=60)
        assert len(shorter.acts) < len(plan.acts)
        assert len(shorter.faults) <= len(plan.faults)
        assert set(Judged(simulate(shorter)).kinds) & set(kinds)
