"""The gate on an installation in which bugs are planted: it has to find each, and nothing where there is none.

Here are the quickest of each family; `make planted` plants all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gate.planted import PLANTED, table
from tests.gate.proving import ON_SENTINEL, found, ground

pytestmark = pytest.mark.faults
PAGE = Path(__file__).parents[2] / "docs" / "internals" / "gate.md"
CORE = [name for name, bug in PLANTED.items() if bug.core]
# Each has an installation of its own, and they may run side by side.
GROUPS = (
    ("zombies", "streams"),
    ("timers", "departures"),
    ("crossings", "revocations", "limits"),
    ("talks", "leaders"),
    ("confirmations",),
)


@pytest.mark.slow
@pytest.mark.timeout(600)  # whole clusters come up and are broken, several times each: a busy machine needs minutes
@pytest.mark.parametrize("scenarios", GROUPS, ids="-".join)
async def test_the_gate_passes_a_healthy_system_and_finds_every_planted_bug(scenarios, tmp_path) -> None:
    async with ground(tmp_path, sentinel=not ON_SENTINEL.isdisjoint(scenarios)) as here:
        for scenario in scenarios:
            outcome = await here.outcome(scenario)
            assert outcome.verdict == "passed", (outcome.proofs, outcome.violations)
        for name in (name for name in CORE if PLANTED[name].scenario in scenarios):
            outcome = await here.outcome(PLANTED[name].scenario, name)
            assert outcome.verdict == "failed", (name, outcome.proofs)
            assert PLANTED[name].kind in found(outcome), (name, outcome.violations)


@pytest.mark.parametrize("bug", PLANTED)
def test_every_bug_can_still_be_planted(bug) -> None:
    """What it changes is there under that name; `make planted` shows that each is found."""
    with PLANTED[bug].plant():
        pass


def test_every_bug_of_the_core_is_planted_in_some_group() -> None:
    assert {PLANTED[name].scenario for name in CORE} == {scenario for group in GROUPS for scenario in group}


def test_the_table_of_the_documentation_is_the_one_that_is_planted() -> None:
    assert table() in PAGE.read_text()
