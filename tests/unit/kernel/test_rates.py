"""How often something may happen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from holdfast.errors import UsageError
from holdfast.kernel.rates import Exceeded, Granted, Micros, Rate, reserve, spend
from holdfast.kernel.times import Instant, Millis

NOW_MS = Instant(1_700_000_000_000)
NEVER_USED = Micros(0)


def admitted(rate: Rate, arrivals_ms: list[int]) -> list[int]:
    """When each of them goes, if none is refused."""
    due_at_us, goes = NEVER_USED, list[int]()
    for at_ms in arrivals_ms:
        due_at_us, goes_at_ms = reserve(rate, due_at_us, now_ms=Instant(NOW_MS + at_ms))
        goes.append(goes_at_ms - NOW_MS)
    return goes


def passed(rate: Rate, arrivals_ms: list[int]) -> list[int]:
    """Which of them pass, if those that may not go now are refused."""
    due_at_us, through = NEVER_USED, list[int]()
    for at_ms in arrivals_ms:
        verdict = spend(rate, due_at_us, now_ms=Instant(NOW_MS + at_ms))
        if isinstance(verdict, Granted):
            due_at_us = verdict.due_at_us
            through.append(at_ms)
    return through


def test_those_that_wait_go_evenly() -> None:
    assert admitted(Rate(10, per="1s"), [0] * 4) == [0, 100, 200, 300]


def test_a_burst_goes_at_once_and_the_rest_evenly() -> None:
    assert admitted(Rate(10, per="1s", burst=3), [0] * 5) == [0, 0, 0, 100, 200]


def test_a_rest_brings_the_burst_back_and_no_more() -> None:
    assert admitted(Rate(10, per="1s", burst=2), [0, 0, 0, 60_000, 60_000, 60_000]) == [
        0,
        0,
        100,
        60_000,
        60_000,
        60_100,
    ]


def test_one_that_costs_more_delays_those_behind_it() -> None:
    rate = Rate(10, per="1s")
    due_at_us, first = reserve(rate, NEVER_USED, now_ms=NOW_MS, cost=5)
    _, second = reserve(rate, due_at_us, now_ms=NOW_MS)
    assert (first, second) == (NOW_MS, NOW_MS + 500)


def test_a_clock_that_went_back_lets_nothing_through() -> None:
    assert admitted(Rate(1, per="1s"), [3_600_000, 0]) == [3_600_000, 3_601_000]


def test_what_is_over_the_limit_is_refused_until_there_is_room() -> None:
    rate = Rate(10, per="1s", burst=2)
    assert passed(rate, [0, 0, 0, 99, 100, 100, 199, 200]) == [0, 0, 100, 200]


def test_a_verdict_says_what_is_left_and_for_how_long_to_wait() -> None:
    rate = Rate(10, per="1s", burst=3)
    first = spend(rate, NEVER_USED, now_ms=NOW_MS, cost=2)
    assert isinstance(first, Granted)
    assert (first.remaining, first.reset_ms) == (1, Millis(200))
    assert spend(rate, first.due_at_us, now_ms=NOW_MS, cost=2) == Exceeded(Millis(100), 1, Millis(200))
    assert spend(rate, first.due_at_us, now_ms=Instant(NOW_MS + 100), cost=2) == Granted(
        Micros(first.due_at_us + 200_000), 0, Millis(300)
    )


def test_a_rate_that_does_not_divide_lets_no_more_pass_than_it_says() -> None:
    assert Rate(3, per="1s").interval_us == 333_334


@given(
    count=st.integers(1, 50),
    burst=st.integers(1, 20),
    gaps=st.lists(st.integers(0, 400), min_size=1, max_size=60),
    window_ms=st.integers(1, 5_000),
)
def test_no_window_sees_more_than_the_burst_and_the_rate(
    count: int, burst: int, gaps: list[int], window_ms: int
) -> None:
    rate = Rate(count, per="1s", burst=burst)
    arrivals = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    for through in (admitted(rate, arrivals), passed(rate, arrivals)):
        for begin in through:
            inside = sum(begin <= at_ms < begin + window_ms for at_ms in through)
            assert inside <= burst + -(-(window_ms + 1) * count // 1000)


@pytest.mark.parametrize(
    "fields",
    [
        {"count": 0, "per": 1},
        {"count": -1, "per": 1},
        {"count": 1.5, "per": 1},
        {"count": True, "per": 1},
        {"count": 1, "per": 0},
        {"count": 1, "per": "soon"},
        {"count": 1_000_000, "per": "10ms"},
        {"count": 10**9, "per": "1d"},
        {"count": 1, "per": 1, "burst": 0},
    ],
)
def test_what_is_no_rate_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Rate(**fields)
