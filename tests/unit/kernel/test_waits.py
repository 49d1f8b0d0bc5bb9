from __future__ import annotations

import typing
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec import Raw
from msgspec.structs import replace

from holdfast.errors import NotAllowedNow
from holdfast.kernel import transitions, waits
from holdfast.kernel.cancels import Way, way
from holdfast.kernel.journal import Failure
from holdfast.kernel.lanes import Lane, LaneStanding, LaneState
from holdfast.kernel.running_effects import RunningEffect, StepAtWork
from holdfast.kernel.runs import ENDED, NOT_BEGUN, Run, Status
from holdfast.kernel.waits import Kind, LanePlace, Wait, next_actions, waits_of
from tests.builders import CANCELLED, NOW_MS, STARTED, a_run, cancel_asked, running

LATER_MS = NOW_MS + 60_000
SERVED = {"shop.checkout"}
TIMER = Wait("timer", "sleep#1", LATER_MS, "sleep#1")
HOOK = Wait("hook", "approval")
CHILD = Wait("child", "child-1", step="pay#1")
RETRY = Wait("retry", "shop.charge", LATER_MS, "charge#1")
STEP = StepAtWork("run-1", 1, 1, "charge#1", RunningEffect("shop.charge", 2, LATER_MS, 500))


def at_work(**fields: Any) -> Wait:
    return Wait("running", "w-1", LATER_MS + 500, "charge#1", replace(STEP.effect, **fields))


AT_WORK = at_work()
PINNED = a_run(version="2")
LACKING = {*SERVED, waits.lacking("shop.checkout", "2")}


def waiting(*on: Wait, **fields: Any) -> Run:
    return replace(a_run(status=Status.WAITING, wake_at_ms=None, waits=waits.encode(on)), **fields)


def blocked(code: str = "replay_diverged", message: str = "both sides") -> Run:
    return a_run(status=Status.BLOCKED, wake_at_ms=None, error=msgspec.json.encode(Failure(code, message)))


@pytest.mark.parametrize(
    ("run", "served", "waits_on"),
    [
        (a_run(), SERVED, (Wait("worker", "default"),)),
        (a_run(queue="gpu"), set(), (Wait("no_worker", "gpu"),)),
        (a_run(queue="gpu"), {"shop.other"}, (Wait("no_worker", "gpu"),)),
        (PINNED, LACKING, (Wait("no_worker", "default", version="2"),)),
        (replace(PINNED, wake_at_ms=LATER_MS), LACKING, (Wait("delay", until_ms=LATER_MS),)),
        (replace(PINNED, wake_at_ms=LATER_MS, epoch=2), LACKING, (Wait("no_worker", "default", version="2"),)),
        (replace(PINNED, wake_at_ms=None), LACKING, (Wait("no_worker", "default", version="2"),)),
        (a_run(wake_at_ms=LATER_MS), SERVED, (Wait("delay", until_ms=LATER_MS),)),
        (a_run(wake_at_ms=LATER_MS), set(), (Wait("delay", until_ms=LATER_MS),)),
        (a_run(wake_at_ms=None), SERVED, (Wait("worker", "default"),)),
        (running(), SERVED, (Wait("running", "w-1"),)),
        (waiting(TIMER, HOOK, CHILD, RETRY), SERVED, (TIMER, HOOK, CHILD, RETRY)),
        (waiting(TIMER, wake_at_ms=LATER_MS), SERVED, (TIMER,)),
        (waiting(TIMER, wake_at_ms=NOW_MS), SERVED, (Wait("worker", "default"),)),  # its time has come
        (waiting(HOOK, wake_at_ms=NOW_MS - 1), set(), (Wait("no_worker", "default"),)),  # and nobody comes
        (blocked(), SERVED, (Wait("blocked", "replay_diverged: both sides"),)),
        (a_run(status=Status.BLOCKED, error=None), SERVED, (Wait("blocked", ""),)),
        *((a_run(status=status), SERVED, ()) for status in ENDED),
    ],
)
def test_what_a_run_waits_for(run, served, waits_on):
    """G9"""
    assert waits_of(run, served=served, now_ms=NOW_MS) == waits_on


ROWS = st.builds(
    lambda status, key, holds_key, wake_at_ms, started: {
        Status.RUNNING: running,
        Status.WAITING: lambda **fields: waiting(HOOK, **fields),
    }.get(status, a_run)(
        key=key,
        status=status,
        holds_key=key is not None and holds_key,
        wake_at_ms=wake_at_ms,
        started_at_ms=NOW_MS if started else None,
        length=4 if status is Status.CANCELLED else 1,
    ),
    st.sampled_from(Status),
    st.sampled_from([None, "order:1"]),
    st.booleans(),
    st.sampled_from([None, NOW_MS, LATER_MS]),
    st.booleans(),
)


@given(ROWS, st.booleans())
def test_every_run_says_why_it_waits_and_what_may_be_done(run, served):
    """G9: nothing is ever stuck without a legal next action."""
    waits_on = waits_of(run, served=SERVED if served else (), now_ms=NOW_MS)
    assert bool(waits_on) is (run.status not in ENDED)
    assert all(str(wait) for wait in waits_on)
    assert next_actions(run)


@given(ROWS)
def test_no_verb_is_offered_that_would_be_refused(run):
    journal = (STARTED, cancel_asked(), *CANCELLED) if run.status is Status.CANCELLED else (STARTED,)
    for verb in next_actions(run):
        match verb:
            case "retry":
                assert transitions.retry(run, journal, now_ms=NOW_MS)
            case "resume":
                assert transitions.resume(run, journal, now_ms=NOW_MS)
            case "release_key":
                assert transitions.release_key(run, reason="", nonce="n", now_ms=NOW_MS)
            case "cancel":
                assert way(run) is not Way.ENDED
            case "signal":
                assert run.status not in ENDED
            case "fork":
                assert run.status in ENDED
            case _:
                raise AssertionError(verb)


@given(ROWS)
def test_no_verb_is_kept_from_a_run_that_allows_it(run):
    journal = (STARTED, cancel_asked(), *CANCELLED) if run.status is Status.CANCELLED else (STARTED,)
    offered = next_actions(run)
    for verb, decide in (
        ("retry", lambda: transitions.retry(run, journal, now_ms=NOW_MS)),
        ("resume", lambda: transitions.resume(run, journal, now_ms=NOW_MS)),
        ("release_key", lambda: transitions.release_key(run, reason="", nonce="n", now_ms=NOW_MS)),
    ):
        if verb not in offered:
            with pytest.raises(NotAllowedNow):
                decide()
    assert ("cancel" in offered) is (way(run) is not Way.ENDED)


AT = "2023-11-14T22:14:20.000+00:00"


@pytest.mark.parametrize(
    ("wait", "text"),
    [
        (TIMER, f"timer sleep#1 until {AT}"),
        (HOOK, "a signal to hook 'approval'"),
        (CHILD, "child run child-1 (pay#1)"),
        (RETRY, f"the retry of charge#1 at {AT}"),
        (Wait("delay", until_ms=LATER_MS), f"its delayed start at {AT}"),
        (Wait("worker", "gpu"), "a free worker of queue 'gpu'"),
        (Wait("no_worker", "gpu"), "a worker: none serves queue 'gpu'"),
        (Wait("no_worker", version="2"), "a worker: none serves version '2', to which it is pinned"),
        (Wait("running", "w-1"), "instance w-1, which executes it"),
        (Wait("running", "host-7-ab12.0123456789abcdef"), "instance host-7-ab12, which executes it"),
        (AT_WORK, f"effect charge#1, attempt 2, running since {AT} on instance w-1"),
        (at_work(remote=True), f"effect charge#1, attempt 2, with remote workers since {AT} on instance w-1"),
        (at_work(lost=True), "effect charge#1, attempt 2, which ran on instance w-1 when its lease expired"),
        (at_work(heartbeat_json=Raw(b"[3,9]")), f"{AT_WORK}; last heartbeat: [3,9]"),
        (at_work(heartbeat_json=Raw(b'"%b"' % (b"x" * 99))), f'{AT_WORK}; last heartbeat: "{"x" * 79} ...'),
        (Wait("blocked", "unknown_outcome: why"), "a person: unknown_outcome: why"),
    ],
)
def test_a_wait_is_the_end_of_a_sentence(wait, text):
    assert str(wait) == text


def test_each_kind_of_wait_is_worded():
    assert all(str(Wait(kind, "x", NOW_MS, "x")) for kind in typing.get_args(Kind))


def test_a_running_run_waits_for_each_effect_that_runs():
    other = StepAtWork("run-1", 1, 1, "ship#1", RunningEffect("shop.ship", 1, LATER_MS))
    assert waits_of(running(), served=SERVED, now_ms=NOW_MS, running=(STEP, other)) == (
        AT_WORK,
        Wait("running", "w-1", None, "ship#1", other.effect),
    )
    assert waits_of(a_run(), served=SERVED, now_ms=NOW_MS, running=(STEP,)) == (Wait("worker", "default"),)


def test_only_a_run_that_is_executed_names_an_instance():
    assert (AT_WORK.instance, HOOK.instance) == ("w-1", "")


def test_when_a_wait_is_over_is_an_aware_instant():
    assert TIMER.until == datetime.fromtimestamp(LATER_MS / 1000, UTC)
    assert HOOK.until is None


def test_what_waits_for_its_retry_says_why_the_last_attempt_failed():
    assert str(replace(RETRY, error="OSError: down")) == f"{RETRY}, after OSError: down"


def test_a_run_that_has_not_begun_waits_for_a_worker():
    assert waits.decode(NOT_BEGUN) == (Wait("no_worker"),)


PARKED = a_run(lane="deploy:api", wake_at_ms=None)


@pytest.mark.parametrize(
    ("run", "may"),
    [
        (PARKED, True),
        (replace(PARKED, lane=""), False),
        (replace(PARKED, wake_at_ms=NOW_MS), False),
        (replace(PARKED, status=Status.RUNNING), False),
    ],
)
def test_only_what_waits_for_no_instant_in_a_lane_may_be_parked(run: Run, may: bool):
    assert waits.may_be_parked(run) is may


@pytest.mark.parametrize(
    ("standing", "found", "first", "place"),
    [
        (LaneStanding(active=True), None, None, None),
        (LaneStanding(active=False), None, None, LanePlace(0)),
        (LaneStanding(False, 2, "run-0"), None, None, LanePlace(2, "run-0")),
        (
            LaneStanding(False, 2, "run-0"),
            LaneState(Lane("default", "deploy:api", paused=True), 1, 2),
            running("run-0"),
            LanePlace(2, "run-0", NOW_MS, paused=True),
        ),
    ],
)
def test_a_place_is_what_the_store_says_of_it(
    standing: LaneStanding, found: LaneState | None, first: Run | None, place: LanePlace | None
):
    assert waits.place_of(standing, found, first) == place


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (LanePlace(2, "run-0", NOW_MS), "2 ahead of it, the first (run run-0) since 2023-11-14T22:13:20.000+00:00"),
        (LanePlace(1, "run-0"), "1 ahead of it, the first (run run-0)"),
        (LanePlace(1, "run-0", paused=True), "1 ahead of it, the first (run run-0), and the lane is paused"),
        (LanePlace(0, paused=True), "it is next, and the lane is paused"),
        (LanePlace(0), "it is next"),
    ],
)
def test_a_parked_run_waits_for_those_ahead_of_it(place: LanePlace, words: str):
    [turn] = waits_of(PARKED, served=SERVED, now_ms=NOW_MS, place=place)
    assert str(turn) == f"lane 'deploy:api': {words}"
    assert waits_of(PARKED, served=set(), now_ms=NOW_MS, place=place) == (turn, Wait("no_worker", "default"))
