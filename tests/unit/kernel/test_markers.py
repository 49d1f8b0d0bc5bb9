from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from holdfast.errors import NotAllowedNow, UsageError
from holdfast.kernel import markers

LINE = ("pending", "charged", "shipped")
GRAPH = {"pending": ("charged", "dropped"), "charged": ("shipped", "pending")}


def declared(wanted):
    return markers.declared(wanted, owner="workflow 'shop.checkout'")


@pytest.mark.parametrize(
    ("wanted", "ways"),
    [
        ((), {}),
        ({}, {}),
        (("only",), {"only": ()}),
        (LINE, {"pending": ("charged",), "charged": ("shipped",), "shipped": ()}),
        (list(LINE), {"pending": ("charged",), "charged": ("shipped",), "shipped": ()}),
        (GRAPH, {**GRAPH, "dropped": (), "shipped": ()}),
        ({"a": ["b"]}, {"a": ("b",), "b": ()}),
    ],
)
def test_from_each_marker_those_that_may_follow(wanted, ways):
    assert declared(wanted) == ways
    assert list(declared(wanted)) == list(ways)  # the first one is where a run begins


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("pending", "are not in order"),
        ({"pending", "charged"}, "are not in order"),
        (("a", "b", "a"), "declares a marker twice"),
        (("a", ""), "declares the marker ''"),
        (("a", "x" * 256), "declares the marker"),
        (("a", 7), "declares the marker 7"),
        ({"a": (7,)}, "declares the marker 7"),
        ({7: ("a",)}, "declares the marker 7"),
        ({"pending": "charged"}, "after 'pending' comes 'charged'"),  # or it would lead to 'c', 'h', 'a', ...
    ],
)
def test_what_cannot_be_declared_is_said_when_the_module_is_imported(wanted, message):
    with pytest.raises(UsageError, match=message) as refused:
        declared(wanted)
    assert "shop.checkout" in str(refused.value)


@pytest.mark.parametrize(
    ("ways", "present", "wanted", "is_step"),
    [
        (LINE, None, "pending", True),  # explicitly
        (LINE, None, "charged", True),  # a run is in the first one from its start
        (LINE, "pending", "charged", True),
        (LINE, "charged", "charged", False),
        (LINE, "shipped", "shipped", False),
        (GRAPH, "charged", "pending", True),
        (GRAPH, None, "dropped", True),
        ({"a": ("a",)}, "a", "a", False),
    ],
)
def test_a_marker_leads_to_those_that_follow_it(ways, present, wanted, is_step):
    assert markers.step(declared(ways), present, wanted, owner="it") is is_step


@pytest.mark.parametrize(
    ("ways", "present", "wanted", "message", "hint"),
    [
        (LINE, None, "shipped", "is at 'pending' and cannot go to 'shipped'", "After 'pending' may come: charged."),
        (LINE, "charged", "pending", "is at 'charged' and cannot go to 'pending'", "may come: shipped."),
        (LINE, "shipped", "charged", "is at 'shipped'", "After 'shipped' may come: nothing."),
        (GRAPH, "dropped", "charged", "is at 'dropped'", "nothing"),
        (LINE, None, "paid", "has no marker 'paid'", "Declared are: pending, charged, shipped."),
        ((), None, "paid", "has no marker 'paid'", "Declared are: none."),
    ],
)
def test_everything_else_is_refused_with_what_may_come(ways, present, wanted, message, hint):
    with pytest.raises(NotAllowedNow, match=message) as refused:
        markers.step(declared(ways), present, wanted, owner="run run-1")
    assert hint in str(refused.value.hint)


@given(st.lists(st.sampled_from([*LINE, "dropped"]), max_size=12))
def test_a_run_walks_only_along_declared_ways(wanted):
    ways, present, walked = declared(GRAPH), None, ["pending"]
    for marker in wanted:
        try:
            if markers.step(ways, present, marker, owner="it"):
                if not (present is None and marker == "pending"):
                    walked.append(marker)
                present = marker
        except NotAllowedNow:
            continue
    assert all(after in ways[before] for before, after in pairwise(walked))


@given(st.lists(st.tuples(st.text(), st.integers(0, 2**53)), max_size=5).map(tuple))
def test_what_was_reached_is_read_back(reached):
    assert markers.decode(markers.encode(reached)) == reached


def test_a_run_without_markers_stores_nothing():
    assert (markers.encode(()), markers.decode(b"")) == (b"", ())
