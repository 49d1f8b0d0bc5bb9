"""Every contender takes part, is compared and is on the page; and a target reads as it is meant."""

from __future__ import annotations

import pytest

from bench import wording
from bench.runner import plan
from bench.targets import COMPARISONS, Comparison, Sense
from tests.unit.repository.sources import ROOT

PAGE = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("contender", wording.NAMES)
def test_a_contender_is_a_program_is_compared_and_is_on_the_page(contender):
    program = (ROOT / "bench" / "contenders" / f"{contender}.py").read_text(encoding="utf-8")
    assert "contend(" in program
    assert any(contender in {each.ours, each.theirs, each.beyond} for each in COMPARISONS)
    family = contender.removesuffix("_everysec")  # "both also as `_everysec`"
    assert family in PAGE


def test_every_comparison_is_of_known_contenders():
    named = {name for each in COMPARISONS for name in (each.ours, each.theirs, each.beyond) if name}
    assert named <= wording.NAMES.keys()


def test_the_sketch_takes_part_only_where_it_can():
    jobs = plan(["W1", "W2", "W3", "W4", "W5", "W6", "crowded"], ["sketch"], repetitions=1, quick=True)
    assert [job.workload for job in jobs] == ["W1", "W2", "W3", "W4"]


def test_of_the_sketch_six_tenths_are_kept():
    bounds = {
        (each.workload, each.figure): each.bound for each in COMPARISONS if each.theirs == "sketch" and each.bound
    }
    assert bounds == {("W1", "rate"): 0.6, ("W2", "rate"): 0.6, ("W3", "p50_ms"): 1.6, ("W4", "rate"): 0.6}


def test_a_limit_in_milliseconds_is_held_against_the_figure_itself():
    limit = Comparison("W3", "holdfast_split", "holdfast_split", "p50_ms", Sense.AMOUNT, bound=2.5)
    assert limit.value(2.4, 2.4) == 2.4
    assert limit.met(2.4)
    assert not limit.met(2.6)
    assert (wording.ratio(limit, 2.4), wording.target(limit)) == ("2.40 ms", "≤ 2.50 ms")
    assert wording.opponents(limit) == "Holdfast, 2 processes"
