from __future__ import annotations

import pytest

from holdfast.dashboard.grouping import (
    COLUMNS,
    GROUPS_MAX,
    REST,
    Piece,
    group_name,
    grouped,
    numbered,
    path,
    state_of,
    strip,
)
from holdfast.dashboard.timeline import Bar, Scale, State, Track


def track(name: str, *bars: tuple[int, int, State], kind: str = "effect") -> Track:
    return Track(name, kind, [Bar(start, end, state, state) for start, end, state in bars])


@pytest.mark.parametrize(
    ("name", "kind", "group"),
    [
        ("charge#12", "effect", "charge"),
        ("3.1/charge#1", "effect", "charge"),
        ("undo:charge#2", "undo", "undo:charge"),
        ("undo:0/charge#2", "undo", "undo:charge"),
        ("hook a/b#1", "hook", "hook a/b"),
        ("markers", "markers", "markers"),
    ],
)
def test_tracks_that_differ_only_in_number_and_task_share_a_name(name: str, kind: str, group: str):
    assert group_name(track(name, kind=kind)) == group


@pytest.mark.parametrize(
    ("bars", "state"),
    [
        ([], "done"),
        ([(0, 5, "done")], "done"),
        ([(0, 5, "failed")], "failed"),
        ([(0, 5, "failed"), (5, 9, "pause"), (9, 10, "done")], "done"),
        ([(0, 5, "failed"), (5, 200, "pause")], "open"),  # it will be tried again
        ([(0, 5, "failed"), (5, 9, "pause")], "failed"),  # the run has ended before that
        ([(0, 100, "open")], "open"),
    ],
)
def test_how_a_track_stands_is_how_it_stood_at_last(bars: list[tuple[int, int, State]], state: str):
    assert state_of(track("a#1", *bars), 100) == state


def test_groups_come_in_the_order_in_which_they_began():
    tracks = [track("b#1"), track("0/a#1"), track("b#2", (0, 1, "failed")), track("1/a#1"), track("a", kind="child")]
    found = grouped(numbered(tracks, 10))
    assert [(each.name, each.kind, len(each.tracks)) for each in found] == [
        ("b", "effect", 2),
        ("a", "effect", 2),
        ("a", "child", 1),
    ]
    assert [found[0].count(state) for state in ("done", "failed", "open")] == [1, 1, 0]
    assert [each.number for each in found[1].tracks] == [1, 3]


def test_too_many_names_share_a_last_group():
    found = grouped(numbered([track(f"name{number}#1") for number in range(GROUPS_MAX + 9)], 10))
    assert len(found) == GROUPS_MAX
    assert (found[-1].name, len(found[-1].tracks)) == (REST, 10)


def test_a_strip_is_as_small_for_many_tracks_as_for_few():
    tracks = [track(f"a#{n}", (n, n + 1, "done")) for n in range(10_000)]
    found = strip(numbered(tracks, 10_000), Scale(0, 10_000, tracks))
    assert found == (Piece(0, COLUMNS, "done"),)


def test_a_failure_shows_above_all_else_where_it_happened():
    tracks = [track("a#1", (0, 1_000, "done")), track("a#2", (0, 500, "failed")), track("a#3", (900, 1_000, "open"))]
    found = strip(numbered(tracks, 1_000), Scale(0, 1_000, tracks))
    assert [each.state for each in found] == ["done", "failed", "done", "open"]
    assert found[1].end - found[1].start == 1
    assert found[0].start == 0
    assert found[-1].end == COLUMNS


def test_what_only_failed_is_drawn_as_a_failure():
    tracks = [track("a#1", (0, 500, "failed"), (500, 1_000, "pause"))]
    assert [each.state for each in strip(numbered(tracks, 1_000), Scale(0, 1_000, tracks))] == ["failed", "pause"]


def test_a_path_draws_the_pieces_of_one_state():
    assert path((Piece(0, 3, "done"), Piece(3, 4, "failed")), "failed") == "M3 4h1v12h-1z"
    assert path((Piece(0, 3, "done"),), "failed") == ""
