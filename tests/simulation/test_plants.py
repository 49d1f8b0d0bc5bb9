"""Every planted bug is found: by a seed that is known to find it, which finds nothing without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.campaigns import look_at
from tests.simulation.plants import PLANTS, planted
from tests.simulation.seeds import FOUND_BY


def test_there_are_twenty_planted_bugs_at_least() -> None:
    assert len(PLANTS) >= 20
    assert FOUND_BY.keys() == PLANTS.keys()


def test_the_page_shows_how_many_seeds_each_takes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "internals" / "simulation.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines() if line.startswith("| ")]
    shown = {row[1]: row[3] for row in rows if row[1] in PLANTS}
    assert shown == {name: f"{seed + 1:,}" for name, seed in FOUND_BY.items()}


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_planted_bug_is_found(name: str) -> None:
    seed = FOUND_BY[name]
    with planted(name):
        assert look_at(seed) is not None
    assert look_at(seed) is None
