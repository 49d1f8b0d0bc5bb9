from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec import Raw

from holdfast.dashboard.timeline import LANES_MAX, Bar, Row, Scale, Timeline, Track, timeline
from holdfast.kernel.journal import (
    Attempted,
    Blocked,
    ByHand,
    CancelAsked,
    Cancelled,
    Completed,
    Elapsed,
    Entry,
    Failed,
    Failure,
    GaveUp,
    Intent,
    Joined,
    Marked,
    Opened,
    Performed,
    Received,
    Retried,
    Spawned,
    Started,
    Stopped,
    Value,
)
from holdfast.kernel.running_effects import RunningEffect
from holdfast.kernel.waits import Wait

NONE = Value(json=Raw(b"null"))
BROKEN = Failure("OSError", "broken")


def intent(name: str, kind: str = "effect") -> Intent:
    return Intent(kind, f"p.{name}")


def performed(at_ms: int, step: str) -> Performed:
    return Performed(at_ms, step, intent(step), 1, NONE)


def drawn(*entries: Entry, waits: tuple[Wait, ...] = (), until_ms: int = 1_000) -> Timeline:
    return timeline((Started(0, NONE), *entries), waits, until_ms=until_ms)


def row(name: str, found: Timeline) -> Row:
    return next(each for each in found.rows if each.name == name)


def took(found: Timeline) -> dict[str, str]:
    return {each.name: each.took for each in found.rows}


def test_steps_of_one_task_follow_each_other():
    assert took(drawn(performed(100, "a#1"), performed(250, "b#1"), Completed(250), until_ms=250)) == {
        "a#1": "100 ms",
        "b#1": "150 ms",
    }


def test_steps_of_tasks_side_by_side_begin_where_their_maker_stood():
    found = drawn(performed(100, "first#1"), performed(150, "0/a#1"), performed(400, "1/b#1"), performed(500, "last#1"))
    assert took(found) == {"first#1": "100 ms", "0/a#1": "50 ms", "1/b#1": "300 ms", "last#1": "400 ms"}
    assert row("0/a#1", found).bars[0].x == row("1/b#1", found).bars[0].x


def test_an_effect_that_is_retried_shows_each_attempt_and_the_pauses_between():
    found = row(
        "a#1",
        drawn(
            Attempted(100, "a#1", intent("a"), 1, BROKEN, retry_at_ms=200),
            Attempted(300, "a#1", intent("a"), 2, BROKEN, retry_at_ms=400),
            Performed(450, "a#1", intent("a"), 3, NONE),
        ),
    )
    assert [bar.state for bar in found.bars] == ["failed", "pause", "failed", "pause", "done"]
    assert found.took == "450 ms"
    assert "attempt 1 failed with OSError: broken, 100 ms" in found.text
    assert "returned in attempt 3, 50 ms" in found.text


def test_a_pause_ends_where_a_person_wanted_the_next_attempt():
    found = row(
        "a#1",
        drawn(
            Attempted(100, "a#1", intent("a"), 1, BROKEN, retry_at_ms=900),
            Attempted(200, "a#1", intent("a"), 1, BROKEN, 200, ByHand(retry_now=True)),
            Performed(250, "a#1", intent("a"), 2, NONE),
        ),
    )
    assert [bar.state for bar in found.bars] == ["failed", "pause", "done"]
    assert found.took == "250 ms"
    assert "pause before attempt 2, 100 ms" in found.text
    assert "returned in attempt 2, 50 ms" in found.text


def test_an_effect_that_failed_for_good_says_why():
    found = row("a#1", drawn(GaveUp(10, "a#1", intent("a"), 3, BROKEN)))
    assert [bar.state for bar in found.bars] == ["failed"]
    assert "gave up after attempt 3: OSError: broken" in found.text


def test_a_child_lasts_from_its_start_to_its_end_and_leads_to_its_page():
    found = row(
        "ship#1",
        drawn(
            Spawned(100, "ship#1", intent("ship", "spawn"), "child-1"),
            performed(200, "a#1"),
            Joined(700, "ship.result#1", "child-1", value=NONE),
        ),
    )
    assert (found.kind, found.run_id, found.took) == ("child", "child-1", "600 ms")


def test_a_child_that_has_not_ended_is_open():
    found = row("ship#1", drawn(Spawned(100, "ship#1", intent("ship", "child"), "child-1"), until_ms=900))
    assert [(bar.state, found.took) for bar in found.bars] == [("open", "800 ms")]


def test_a_hook_is_waited_for_from_the_last_record_to_the_signal():
    found = drawn(
        performed(100, "a#1"),
        Opened(110, "hook#1", Intent("hook", "approval", "token")),
        Received(5_000, "approval", "s1", NONE),
        Elapsed(6_000, "sleep#1", 6_000),
        until_ms=6_000,
    )
    assert took(found) == {"a#1": "100 ms", "hook approval": "4.9 s", "sleep#1": "1 s"}
    assert "opened" in row("hook approval", found).text


@pytest.mark.parametrize(
    ("wait", "track"),
    [
        (Wait("timer", "sleep#1", 9_000, "sleep#1"), "sleep#1"),
        (Wait("hook", "approval"), "hook approval"),
        (Wait("running", "replica-1"), "at work"),
        (Wait("no_worker", "default"), "waiting to begin"),
    ],
)
def test_what_is_waited_for_is_open_until_now(wait: Wait, track: str):
    found = row(track, drawn(performed(100, "a#1"), waits=(wait,), until_ms=900))
    assert [(bar.state, found.took) for bar in found.bars] == [("open", "800 ms")]
    assert round(found.bars[0].x + found.bars[0].width) == 100


def test_an_effect_that_runs_has_a_bar_from_its_true_beginning_to_now():
    wait = Wait("running", "w-1", None, "b#1", RunningEffect("p.b", 2, 700))
    found = drawn(performed(100, "a#1"), waits=(wait,))
    assert took(found) == {"a#1": "100 ms", "b#1": "300 ms"}
    [queued, bar] = row("b#1", found).bars
    assert (queued.state, bar.state) == ("pause", "open")
    assert "effect b#1, attempt 2, running since" in bar.text


def test_an_effect_of_twenty_milliseconds_is_drawn_as_such_however_long_no_worker_was_there():
    late = Performed(32_900, "a#1", intent("a"), 1, NONE, took_ms=20)
    found = drawn(late, performed(32_930, "b#1"), Completed(32_930), until_ms=32_930)
    assert took(found) == {"a#1": "20 ms", "b#1": "30 ms"}
    [queued, bar] = row("a#1", found).bars
    assert (queued.state, bar.state) == ("pause", "done")
    assert "waited to begin: for a worker, or for room, 32.9 s from" in queued.text
    assert "returned in attempt 1, 20 ms from" in bar.text


def test_an_attempt_that_began_when_its_pause_was_over_did_not_wait_to_begin():
    found = drawn(
        Attempted(100, "a#1", intent("a"), 1, BROKEN, 300),
        GaveUp(400, "a#1", intent("a"), 2, BROKEN, took_ms=95),
        Completed(400),
        until_ms=400,
    )
    assert [bar.state for bar in row("a#1", found).bars] == ["failed", "pause", "failed"]
    assert row("a#1", found).text.count("waited to begin") == 0
    later = drawn(
        Attempted(100, "a#1", intent("a"), 1, BROKEN, 300, took_ms=30),
        GaveUp(900, "a#1", intent("a"), 2, BROKEN, took_ms=50),
        until_ms=900,
    )
    assert [bar.state for bar in row("a#1", later).bars] == ["pause", "failed", "pause", "pause", "failed"]
    assert took(later) == {"a#1": "830 ms"}


def test_a_failure_stays_on_the_timeline_of_a_run_that_is_retried():
    found = drawn(
        performed(100, "a#1"), Failed(150, BROKEN), Retried(600), performed(700, "b#1"), Completed(700), until_ms=700
    )
    assert took(found) == {"a#1": "100 ms", "failed": "450 ms", "b#1": "100 ms"}
    track = row("failed", found)
    assert [dot.text.partition(",")[0] for dot in track.dots] == ["OSError: broken"]
    assert "until it was retried" in track.text


def test_markers_share_a_track():
    found = row("markers", drawn(Marked(10, "mark#1", "charged"), Marked(900, "mark#2", "shipped")))
    assert [dot.text.partition(",")[0] for dot in found.dots] == ["charged", "shipped"]
    assert found.dots[0].x < found.dots[1].x


def test_what_is_undone_begins_when_the_code_has_ended():
    found = drawn(
        performed(100, "a#1"),
        CancelAsked(600, 30_000, "no longer wanted"),
        Stopped(700),
        Performed(800, "undo:a#1", intent("a", "undo"), 1, NONE),
        Cancelled(800),
        until_ms=800,
    )
    assert took(found) == {"a#1": "100 ms", "cancellation": "200 ms", "undo:a#1": "100 ms"}
    assert row("undo:a#1", found).kind == "undo"
    assert "asked for: no longer wanted" in row("cancellation", found).text


def test_what_is_undone_because_the_code_failed_is_no_cancellation():
    entries = (
        performed(100, "a#1"),
        Stopped(600, error=BROKEN),
        Performed(800, "undo:a#1", intent("a", "undo"), 1, NONE),
    )
    found = drawn(*entries, Failed(800, BROKEN), until_ms=800)
    assert [each.name for each in found.rows] == ["a#1", "undoing after failure", "undo:a#1", "failed"]
    assert took(found)["undoing after failure"] == took(found)["undo:a#1"] == "200 ms"
    assert "the code has failed: OSError: broken" in row("undoing after failure", found).text
    cut = row("undoing after failure", drawn(*entries, Stopped(900, by_deadline=True, error=BROKEN)))
    assert "the deadline was over" in cut.text
    assert [bar.state for bar in cut.bars] == ["open"]


def test_a_run_that_took_too_long_was_not_cancelled_by_a_person():
    found = drawn(
        performed(100, "a#1"),
        CancelAsked(600, 30_000, error=Failure("RunTimedOut", "took too long")),
        Stopped(700, kept=True),
        Failed(800, BROKEN),
        until_ms=800,
    )
    assert [each.name for each in found.rows] == ["a#1", "timeout", "failed"]
    assert "RunTimedOut: took too long" in row("timeout", found).text
    assert took(found)["timeout"] == "200 ms"


def test_a_blocked_run_is_blocked_until_it_is_retried_and_goes_on_from_there():
    found = drawn(Blocked(100, "replay_diverged", "b#1 is not a#1"), Retried(500), performed(600, "a#1"), until_ms=600)
    assert took(found) == {"blocked": "400 ms", "a#1": "100 ms"}
    still = row("blocked", drawn(Blocked(100, "x", "y"), waits=(Wait("blocked", "x: y"),), until_ms=300))
    assert [bar.state for bar in still.bars] == ["open"]


def test_a_short_step_shows_beside_a_wait_of_days():
    found = drawn(performed(5, "a#1"), Elapsed(604_800_005, "sleep#1", 0), until_ms=604_800_005)
    assert 0 < row("a#1", found).bars[0].width < 1 < row("sleep#1", found).bars[0].width
    assert [tick.text for tick in found.ticks] == ["0", "7 d"]


def test_a_run_that_has_done_nothing_has_no_rows():
    assert drawn(until_ms=0).rows == ()


def test_many_tracks_are_cut_and_counted():
    found = drawn(*(performed(n, f"a#{n}") for n in range(1, LANES_MAX + 8)))
    assert (len(found.rows), found.left_out) == (LANES_MAX, 7)


def test_everything_drawn_lies_within_the_picture():
    found = drawn(
        Attempted(100, "a#1", intent("a"), 1, BROKEN, retry_at_ms=50_000), performed(1_000, "b#1"), until_ms=1_000
    )
    for each in found.rows:
        assert all(bar.x >= 0 and bar.x + bar.width <= 100.4 for bar in each.bars), each


def test_ticks_keep_their_distance():
    tracks = [Track("a", "effect", [Bar(n, n + 1, "done", "") for n in range(0, 1_000, 10)])]
    places = [tick.x for tick in Scale(0, 1_000, tracks).ticks()]
    assert places[0] == 0
    assert places[-1] == 100
    assert all(after - before >= 12 for before, after in pairwise(places))
