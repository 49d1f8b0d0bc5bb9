"""`holdfast lanes`, and starts that go into lanes: the same through a store and through a gateway."""

from __future__ import annotations

import itertools
import os

import pytest

_numbers = itertools.count()


@pytest.fixture
def lane():
    """A lane that no other test has used."""
    return f"oven:{os.getpid()}/{next(_numbers)}"


def queued(there, lane, *options):
    """An order that waits for a word, in the lane."""
    return there("start", "order", f"name={lane}-{next(_numbers)}", "--lane", lane, *options, "--json").json


def test_a_run_queues_behind_another_one_and_says_so(there, lane):
    first, second = queued(there, lane), queued(there, lane)
    assert (first["lane"], second["lane"]) == (lane, lane)
    told = there("explain", second["id"]).out
    assert f"lane '{lane}': 1 ahead of it, the first (run {first['id']})" in told
    assert there("cancel", second["id"]).code == 0
    there("cancel", first["id"])


def test_lanes_are_listed_and_shown(there, lane):
    first, second = queued(there, lane), queued(there, lane)
    shown = there("lanes", "show", lane, "--json").json
    assert (shown["name"], shown["width"], shown["active"], shown["parked"]) == (lane, 1, 1, 1)
    assert (shown["active_runs"], shown["parked_runs"]) == ([first["id"]], [second["id"]])
    words = there("lanes", "show", lane).out
    assert f"lane {lane}: width 1, 1 active, 1 parked" in words
    assert words.index(first["id"]) < words.index(second["id"])
    [listed] = [each for each in there("lanes", "list", "--json").json["lanes"] if each["name"] == lane]
    assert listed["head"]["id"] == first["id"]
    assert lane in there("lanes", "list").out
    assert there("lanes", "list", "--limit", "1", "--json").json["next"] is not None
    for run in (second, first):
        there("cancel", run["id"])


def test_a_lane_is_paused_made_wider_and_goes_on(there, lane):
    assert "paused" in there("lanes", "pause", lane).out
    first, second = queued(there, lane), queued(there, lane)
    assert there("lanes", "show", lane, "--json").json["active"] == 0
    assert ", and the lane is paused" in there("explain", first["id"]).out
    assert there("lanes", "set", lane, "--width", "2", "--json").json["width"] == 2
    assert there("lanes", "resume", lane, "--json").json["active"] == 2
    for run in (second, first):
        there("cancel", run["id"])


def test_a_lane_that_is_not_free_is_a_usage_error(there, lane):
    first = queued(there, lane, "--width", "3")
    said = there("start", "order", f"name={lane}-x", "--lane", lane, "--if-free")
    assert said.code == 2
    assert f"lane '{lane}' is not free: run {first['id']} is first in it" in said.err
    assert there("lanes", "show", lane, "--json").json["width"] == 3
    there("cancel", first["id"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("lanes", "show", "no-such-lane"), "a lane 'no-such-lane'"),
        (("lanes", "set", "x", "--width", "0"), "the width of a lane cannot be 0"),
        (("start", "order", "name=x", "--if-free"), "if_free=True says nothing without a lane"),
    ],
)
def test_what_cannot_be_is_a_usage_error(there, arguments, says):
    said = there(*arguments)
    assert said.code == 2
    assert says in said.err
