from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from holdfast.dashboard.minimap import COLUMNS, STRETCHES
from holdfast.dashboard.timeline import Bar, Point, Scale, Track
from holdfast.dashboard.timeline_view import (
    LANES_FLAT,
    LANES_PAGE,
    MARKS_MAX,
    TimelineView,
    WantedPart,
    view,
    wanted_of,
)
from holdfast.errors import UsageError

MANY = 10_000
ALL = WantedPart()


def tracks(count: int, *, failed: tuple[int, ...] = (), going_on: tuple[int, ...] = ()) -> list[Track]:
    """Steps one behind the other, 10 ms each."""

    def bar(number: int) -> Bar:
        if number in going_on:
            return Bar(number * 10, count * 10, "open", "goes on")
        return Bar(number * 10, number * 10 + 10, "failed" if number in failed else "done", "ended")

    return [Track(f"{number}/step#1", "effect", [bar(number)]) for number in range(count)]


def seen(found: list[Track], wanted: WantedPart = ALL, until_ms: int = MANY * 10) -> TimelineView:
    return view(found, wanted, origin_at_ms=0, until_ms=until_ms)


def followed(href: str) -> tuple[WantedPart, str]:
    """Where a link leads."""
    parts = urlsplit(href)
    return wanted_of({name: values[0] for name, values in parse_qs(parts.query).items()}), parts.fragment


def drawn(found: TimelineView) -> int:
    """How many rows are drawn."""
    return len(found.rows) + len(found.pinned) + sum(1 + len(group.rows) for group in found.groups)


def test_a_short_timeline_has_a_row_for_each_track():
    found = seen(tracks(LANES_FLAT), until_ms=LANES_FLAT * 10)
    assert [each.row.name for each in found.rows] == [f"{n}/step#1" for n in range(LANES_FLAT)]
    assert (found.groups, found.pinned, found.minimap, found.zooms, found.pager) == ((), (), None, (), ())


def test_a_long_one_is_grouped_with_the_failure_and_what_goes_on_in_sight():
    found = seen(tracks(MANY, failed=(4_321,), going_on=(9_999,)))
    assert [(each.name, each.total, each.failed, each.going_on) for each in found.groups] == [("step", MANY, 1, 1)]
    assert [(each.number, each.state) for each in found.pinned] == [(4_321, "failed"), (9_999, "open")]
    assert found.summary == "10,000 rows: 9,998 done, 1 failed, 1 going on"
    assert drawn(found) == 3


def test_of_many_failures_the_first_and_the_last_are_in_sight():
    found = seen(tracks(MANY, failed=tuple(range(100, 9_000))))
    assert [each.number for each in found.pinned] == [100, 101, 8_998, 8_999]
    assert [each.label for each in found.jumps] == ["First failure", "Last failure"]


def test_a_group_opens_page_by_page():
    steps = tracks(MANY)
    found = seen(steps, WantedPart(group="step"))
    assert [each.number for each in found.groups[0].rows] == list(range(LANES_PAGE))
    assert found.page == f"1 to {LANES_PAGE} of {MANY:,}"
    [later] = found.pager
    second = seen(steps, followed(later.href)[0])
    assert [each.number for each in second.groups[0].rows] == list(range(LANES_PAGE, 2 * LANES_PAGE))
    last = seen(steps, WantedPart(group="step", row=10**9))
    assert last.groups[0].rows[-1].number == MANY - 1
    assert followed(found.groups[0].href)[0] == WantedPart()  # it closes again


def test_the_tracks_of_a_state_are_listed():
    found = seen(tracks(MANY, failed=tuple(range(0, MANY, 10))), WantedPart(state="failed", row=LANES_PAGE))
    assert [each.number for each in found.rows] == [10 * n for n in range(LANES_PAGE, 2 * LANES_PAGE)]
    assert found.groups == ()


def test_a_jump_leads_to_the_failure_among_its_neighbours():
    steps = tracks(MANY, failed=(4_321,))
    [jump] = seen(steps).jumps
    wanted, anchor = followed(jump.href)
    found = seen(steps, wanted)
    assert anchor == "track-4321"
    assert 4_321 in [each.number for each in found.rows]
    assert len(found.rows) <= LANES_FLAT
    assert found.window


def test_every_stretch_of_the_minimap_leads_into_it_and_all_of_them_cover_the_run():
    steps = tracks(MANY, failed=(9_000,))
    picture = seen(steps).minimap
    assert picture is not None
    assert len(picture.stretches) == STRETCHES
    assert (picture.stretches[0].since_ms, picture.stretches[-1].until_ms) == (0, MANY * 10)
    for one, other in zip(picture.stretches, picture.stretches[1:], strict=False):
        assert one.until_ms == other.since_ms
    assert picture.steps.count("M") == COLUMNS
    assert picture.failed.startswith(f"M{COLUMNS * 9 // 10} ")
    part = seen(steps, WantedPart(since=int(picture.stretches[3].since_ms), until=int(picture.stretches[3].until_ms)))
    assert part.groups[0].total < MANY / STRETCHES + 3


def test_zooming_in_and_out_comes_back_to_the_whole():
    steps = tracks(MANY)
    links = {each.label: each.href for each in seen(steps).zooms}
    assert set(links) == {"Zoom in"}
    inner, _ = followed(links["Zoom in"])
    found = seen(steps, inner)
    assert found.groups[0].total == pytest.approx(MANY / 2, abs=2)
    assert followed(dict(found.zooms)["Zoom out"])[0] == WantedPart()
    assert followed(dict(found.zooms)["All"])[0] == WantedPart()


@pytest.mark.parametrize(
    "wanted",
    [
        WantedPart(),
        WantedPart(group="step"),
        WantedPart(group="step", row=5_000),
        WantedPart(state="failed"),
        WantedPart(state="done"),
        WantedPart(since=100, until=5_000),
        WantedPart(since=9, until=3),
        WantedPart(since=10**12),
    ],
)
def test_what_is_drawn_is_bounded_whatever_is_asked_for(wanted: WantedPart):
    found = seen(tracks(MANY, failed=tuple(range(0, MANY, 3)), going_on=(9_999,)), wanted)
    assert drawn(found) <= LANES_PAGE + 20
    assert len(repr(found)) < 60_000


def test_a_track_with_very_many_events_is_drawn_as_a_strip():
    busy = Track("retried#1", "effect", [Bar(n, n + 1, "failed", f"attempt {n}") for n in range(MARKS_MAX + 1)])
    marked = Track("markers", "markers", points=[Point(n, "m") for n in range(MARKS_MAX + 1)])
    found = seen([busy, marked], until_ms=100)
    assert [(each.row.bars, each.row.dots, each.strip is not None) for each in found.rows] == [((), (), True)] * 2
    assert f"{MARKS_MAX + 1} events, at last: attempt {MARKS_MAX}" in found.rows[0].row.text


def test_a_track_without_others_like_it_is_not_a_group():
    found = seen([*tracks(100), Track("label#1", "effect", [Bar(0, 5, "done", "")])], until_ms=1_000)
    alone = found.groups[-1]
    assert (alone.total, [each.row.name for each in alone.rows]) == (1, ["label#1"])


@pytest.mark.parametrize("query", [{"state": "odd"}, {"row": "-1"}, {"since": "soon"}, {"until": "1" * 20}])
def test_what_makes_no_sense_is_refused(query: dict[str, Any]):
    with pytest.raises(UsageError):
        wanted_of(query)


def test_a_place_and_its_instant_belong_together():
    scale = Scale(0, 1_000, tracks(10))
    for at_ms in (0, 10, 55, 100, 700, 1_000):
        assert scale.instant(scale.place(at_ms)) == at_ms
    lone = Scale(5, 5, [])
    assert (lone.instant(50), lone.place(5)) == (5, 0.0)
