"""Every planted bug is found: by a seed that is known to find it, which finds nothing without it."""

from __future__ import annotations

import pytest

from tests.simulation.campaigns import look_at
from tests.simulation.plants import PLANTS, planted
from tests.simulation.seeds import FOUND_BY


def test_there_are_twenty_planted_bugs_at_least() -> None:
    assert len(PLANTS) >= 20
    assert FOUND_BY.keys() == PLANTS.keys()


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_planted_bug_is_found(name: str) -> None:
    seed = FOUND_BY[name]
    with planted(name):
        assert look_at(seed) is not None
    assert look_at(seed) is None
