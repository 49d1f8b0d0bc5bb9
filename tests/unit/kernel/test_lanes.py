"""Lanes: tables over the rules. What a store makes of them is in tests/contract/test_lanes.py."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.errors import UsageError
from holdfast.kernel import lanes, transitions
from holdfast.kernel.lanes import Entering, Lane, LaneSetting, LaneState, Place
from holdfast.kernel.runs import Run, Status
from tests.builders import NOW_MS, a_hand, a_run

LANE = Lane("default", "deploy")


@pytest.mark.parametrize(("declared", "width"), [(None, 1), (1, 1), (3, 3)])
def test_a_new_lane_is_as_wide_as_was_declared(declared: int | None, width: int) -> None:
    assert lanes.new("default", "deploy", declared) == Lane("default", "deploy", width, width)


@pytest.mark.parametrize(
    ("lane", "declared", "width"),
    [
        (LANE, None, 1),
        (LANE, 2, 2),
        (replace(LANE, width=5), None, 5),
        (replace(LANE, width=5), 1, 5),  # set by hand, and declared as before
        (replace(LANE, width=5), 2, 2),
    ],
)
def test_a_width_counts_from_when_it_differs_from_what_was_declared(
    lane: Lane, declared: int | None, width: int
) -> None:
    assert lanes.declare(lane, declared).width == width


def test_what_is_not_set_by_hand_stays() -> None:
    paused = lanes.set_by_hand(LANE, LaneSetting("default", "deploy", paused=True))
    wide = lanes.set_by_hand(paused, LaneSetting("default", "deploy", width=4))
    assert (wide.width, wide.paused, wide.declared, wide.is_set_by_hand) == (4, True, 1, True)
    assert not LANE.is_set_by_hand


@pytest.mark.parametrize(
    ("entering", "active", "parked", "reason"),
    [
        (Entering("deploy"), 9, 9, ""),
        (Entering("deploy", if_free=True), 0, 0, ""),
        (Entering("deploy", if_free=True), 1, 0, "busy"),
        (Entering("deploy", if_free=True), 0, 1, "busy"),
        (Entering("deploy", parked_max=2), 1, 1, ""),
        (Entering("deploy", parked_max=2), 1, 2, "full"),
    ],
)
def test_when_there_is_no_room(entering: Entering, active: int, parked: int, reason: str) -> None:
    assert lanes.no_room(entering, active=active, parked=parked) == reason


@pytest.mark.parametrize(("wake_at_ms", "wakes"), [(None, NOW_MS), (NOW_MS + 5, NOW_MS + 5)])
def test_a_place_has_the_next_number_and_wakes_as_the_run_was_to(wake_at_ms: int | None, wakes: int) -> None:
    run = a_run(wake_at_ms=wake_at_ms, priority=3)
    lane, place = lanes.enter(replace(LANE, next_number=7, empty_since_ms=1), run, now_ms=NOW_MS)
    assert place == Place(run.id, 7, 3, wakes)
    assert (lane.next_number, lane.empty_since_ms) == (8, None)


@pytest.mark.parametrize(
    ("lane", "active", "room"),
    [(LANE, 0, 1), (LANE, 1, 0), (LANE, 5, 0), (replace(LANE, width=3), 1, 2), (replace(LANE, paused=True), 0, 0)],
)
def test_how_many_may_become_active(lane: Lane, active: int, room: int) -> None:
    assert lanes.room(lane, active) == room


def test_the_next_is_the_oldest_of_the_highest_priority() -> None:
    places = [Place("a", 1, 0, NOW_MS), Place("b", 2, 5, NOW_MS), Place("c", 3, 5, NOW_MS), Place("d", 4, -1, NOW_MS)]
    assert [place.run_id for place in sorted(places, key=lanes.order)] == ["b", "c", "a", "d"]


def test_a_run_that_was_handed_to_a_worker_and_is_parked_has_never_begun() -> None:
    run = a_run(status=Status.RUNNING, epoch=1, nonce="n", owner="w-1", started_at_ms=NOW_MS)
    parked = lanes.parked(run)
    assert (parked.status, parked.fence, parked.owner) == (Status.PENDING, replace(run, epoch=0, nonce="").fence, None)
    assert (parked.wake_at_ms, parked.started_at_ms) == (None, None)
    again = a_run(status=Status.PENDING, epoch=4, wake_at_ms=NOW_MS)
    assert lanes.parked(again) == replace(again, wake_at_ms=None)


@pytest.mark.parametrize(
    ("fields", "leaves"),
    [
        ({"status": Status.COMPLETED}, False),
        ({"status": Status.COMPLETED, "lane": "deploy"}, True),
        ({"status": Status.BLOCKED, "lane": "deploy"}, False),
        ({"status": Status.BLOCKED, "lane": "deploy", "aside": True}, True),
        ({"status": Status.WAITING, "lane": "deploy"}, False),
    ],
)
def test_which_runs_leave_their_lane(fields: dict[str, Any], *, leaves: bool) -> None:
    assert lanes.leaves(a_run(**fields)) is leaves


def test_a_run_goes_again_into_its_lane_as_that_is() -> None:
    assert lanes.again(a_run()) is None
    assert lanes.again(a_run(lane="deploy")) == Entering("deploy")


@pytest.mark.parametrize(
    ("lane", "forgotten"),
    [
        (LANE, False),
        (replace(LANE, empty_since_ms=NOW_MS - lanes.IDLE_MS + 1), False),
        (replace(LANE, empty_since_ms=NOW_MS - lanes.IDLE_MS), True),
        (replace(LANE, empty_since_ms=0, width=2), False),
        (replace(LANE, empty_since_ms=0, paused=True), False),
    ],
)
def test_when_a_lane_is_forgotten(lane: Lane, *, forgotten: bool) -> None:
    assert lanes.is_forgotten(lane, now_ms=NOW_MS) is forgotten


@pytest.mark.parametrize("width", [1, lanes.WIDTH_MAX])
def test_a_width(width: int) -> None:
    assert lanes.checked_width(width) == width


@pytest.mark.parametrize("width", [0, -1, lanes.WIDTH_MAX + 1, True, 1.0, "1", None])
def test_what_is_no_width(width: Any) -> None:
    with pytest.raises(UsageError, match="width of a lane"):
        lanes.checked_width(width)


def test_a_name_of_a_lane_is_like_a_key() -> None:
    assert lanes.checked_name("account:{7}") == "account:{7}"
    with pytest.raises(UsageError, match="lane"):
        lanes.checked_name("")


def test_what_is_kept_of_a_lane_that_was_set_by_hand() -> None:
    after = replace(LANE, width=3)
    audit = lanes.audit(LANE, after, by="u-7", now_ms=NOW_MS)
    assert (audit.actor, audit.action, audit.subject, audit.at_ms) == ("u-7", "lane.set", "deploy", NOW_MS)
    sides = {"before": {"width": 1, "paused": False}, "after": {"width": 3, "paused": False}}
    assert json.loads(audit.detail) == sides
    assert json.loads(lanes.audit(None, after, by="", now_ms=NOW_MS).detail)["before"] is None


@pytest.mark.parametrize(
    ("state", "trouble"),
    [
        (LaneState(LANE, 1, 4), None),
        (LaneState(LANE, 2, 0), "2 runs are active"),
        (LaneState(replace(LANE, declared=2), 2, 0), None),  # it was made narrower by hand
        (LaneState(LANE, 0, 3), "3 runs are parked"),
        (LaneState(replace(LANE, paused=True), 0, 3), None),
    ],
)
def test_what_is_wrong_with_a_lane(state: LaneState, trouble: str | None) -> None:
    found = lanes.trouble(state)
    assert (found is None) if trouble is None else (trouble in str(found))


def _stuck(run: Run, *, steps_aside: bool) -> Run:
    change = transitions.decide(run, transitions.Stuck("x", "y", steps_aside), now_ms=NOW_MS)
    assert change.run is not None
    return change.run


@pytest.mark.parametrize(("lane", "steps", "aside"), [("", True, False), ("a", False, False), ("a", True, True)])
def test_a_blocked_run_steps_aside_if_it_has_a_lane(lane: str, *, steps: bool, aside: bool) -> None:
    assert _stuck(a_run(status=Status.RUNNING, epoch=1, lane=lane), steps_aside=steps).aside is aside


def test_a_run_that_has_stepped_aside_is_taken_up_when_it_is_its_turn() -> None:
    blocked = _stuck(a_run(status=Status.RUNNING, epoch=1, lane="a"), steps_aside=True)
    change = transitions.take_up(blocked, a_hand("w-2"), now_ms=NOW_MS)
    assert change.run is not None
    assert (change.run.status, change.run.owner, change.run.aside) == (Status.PENDING, None, False)
    assert change.enters == Entering("a")
    other = transitions.take_up(blocked, replace(a_hand("w-2"), nonce="another"), now_ms=NOW_MS)
    assert other.id != change.id
