"""Which lane a run enters, by what its workflow declares and what its start says."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.kernel import lane_options
from holdfast.kernel.lane_options import LaneTraits
from holdfast.kernel.lanes import PARKED_MAX, Entering, Lane, LaneState

OWNER = "workflow 'shop.settle'"


def declared(lane: Any = None, **options: Any) -> LaneTraits:
    given = {"width": None, "parked_max": PARKED_MAX, "on_blocked": "keep"} | options
    return lane_options.declared(lane, parameters=frozenset({"account", "cents"}), owner=OWNER, **given)


def entering(traits: LaneTraits, **options: Any) -> Entering | None:
    return lane_options.entering(traits, {"account": "a:1", "cents": 5}, **options)


DECLARED = declared("account:{account}", width=2, parked_max=7, on_blocked="step_aside")


@pytest.mark.parametrize(
    ("traits", "options", "enters"),
    [
        (declared(), {}, None),
        (DECLARED, {}, Entering("account:a%3A1", 2, 7)),
        (DECLARED, {"width": 5}, Entering("account:a%3A1", 5, 7)),
        (DECLARED, {"if_free": True}, Entering("account:a%3A1", 2, 7, if_free=True)),
        (DECLARED, {"lane": "other"}, Entering("other", None, 7)),
        (DECLARED, {"lane": "other", "width": 3, "if_free": True}, Entering("other", 3, 7, if_free=True)),
        (declared("reports"), {}, Entering("reports", None, PARKED_MAX)),
        (declared(parked_max=3), {"lane": "x"}, Entering("x", None, 3)),
    ],
)
def test_the_start_goes_before_what_is_declared(traits: LaneTraits, options: dict[str, Any], enters: Entering | None):
    assert entering(traits, **options) == enters


@pytest.mark.parametrize(("options", "given"), [({"width": 2}, "width=2"), ({"if_free": True}, "if_free=True")])
def test_without_a_lane_nothing_can_be_said_about_it(options: dict[str, Any], given: str):
    with pytest.raises(UsageError, match=rf"{given} says nothing without a lane, and workflow 'shop.settle'"):
        entering(declared(), **options)


@pytest.mark.parametrize(
    ("lane", "options", "says"),
    [
        ("account:{konto}", {}, "lane template 'account:{konto}' of .* names 'konto', which is not a parameter"),
        ("{account}{cents}", {}, "lane template .* has two fields side by side"),
        ("account:{account", {}, "unmatched brace"),
        ("", {}, "a lane must not be empty"),
        ("x" * 256, {}, "lane 'x+'... is 256 characters long; the limit is 255"),
        ("x" * 256 + "{account}", {}, "lane 'x+'... is 256 characters long"),
        (7, {}, "lane=7 is not a template"),
        ("x", {"width": 0}, "the width of a lane cannot be 0"),
        ("x", {"width": True}, "the width of a lane cannot be True"),
        (None, {"width": 2}, "shop.settle' has width=2 and no lane"),
        ("x", {"parked_max": 0}, "lane_max=0 of .* is not possible"),
        (None, {"parked_max": True}, "lane_max=True"),
        (None, {"parked_max": "7"}, "lane_max='7'"),
        ("x", {"on_blocked": "leave"}, "on_blocked='leave' is not known"),
    ],
)
def test_what_cannot_be_is_said_when_it_is_declared(lane: Any, options: dict[str, Any], says: str):
    with pytest.raises(UsageError, match=says):
        declared(lane, **options)


def test_a_template_of_fields_alone_is_measured_when_it_is_filled():
    traits = declared("{account}")
    with pytest.raises(UsageError, match=r"lane 'x+'\.\.\. is 256 characters long"):
        lane_options.entering(traits, {"account": "x" * 256})
    with pytest.raises(UsageError, match=r"lane template '\{account\}' got NoneType for 'account'"):
        lane_options.entering(traits, {"account": None})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lane": ""}, "a lane must not be empty"),
        ({"lane": "x" * 256}, "256 characters long"),
        ({"lane": 7}, "a lane must be text, not int"),
        ({"width": 0}, "the width of a lane cannot be 0"),
        ({"if_free": "yes"}, "if_free='yes' is neither True nor False"),
    ],
)
def test_a_start_is_checked(options: dict[str, Any], says: str):
    with pytest.raises(UsageError, match=says):
        lane_options.check(**{"lane": None, "width": None, "if_free": False} | options)


def test_a_start_that_says_nothing_or_what_is_possible_is_right():
    lane_options.check(None, None, if_free=False)
    lane_options.check("x" * 255, 1, if_free=True)


@pytest.mark.parametrize(
    ("found", "width", "family", "would"),
    [
        (None, None, {"parent"}, False),
        (LaneState(Lane("default", "x"), 0), None, {"parent"}, False),
        (LaneState(Lane("default", "x"), 1, 0, ("parent",)), None, {"parent"}, True),
        (LaneState(Lane("default", "x"), 1, 0, ("parent",)), None, {"stranger"}, False),
        (LaneState(Lane("default", "x"), 1, 0, ("parent",)), 2, {"parent"}, False),
        (LaneState(Lane("default", "x", 2, 2), 1, 0, ("parent",)), None, {"parent"}, False),
        (LaneState(Lane("default", "x", 2, 2), 2, 0, ("parent", "above")), None, {"parent", "above"}, True),
        (LaneState(Lane("default", "x", 2, 2), 2, 0, ("parent", "other")), None, {"parent", "above"}, False),
    ],
)
def test_a_child_waits_for_itself_where_its_own_family_takes_all_places(
    found: LaneState | None, width: int | None, family: set[str], would: bool
):
    assert lane_options.would_wait_for_itself(Entering("x", width), found, family=family) is would


@pytest.mark.parametrize(
    ("found", "head"),
    [
        (LaneState(Lane("default", "x")), None),
        (LaneState(Lane("default", "x"), 0, 2, (), ("a", "b")), "a"),
        (LaneState(Lane("default", "x"), 1, 2, ("c",), ("a", "b")), "c"),
    ],
)
def test_the_head_of_a_lane_is_an_active_run_if_there_is_any(found: LaneState, head: str | None):
    assert found.head == head
