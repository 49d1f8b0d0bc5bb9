"""What looks at a server's clock make of our own: close to it, and moved by nothing that says too little."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from holdfast.stores.redis.net.clocks import Look, ServerClock

AHEAD_MS = 1_000.0


def look(at_ms: float, *, there: float = 0.5, back: float = 0.5, ahead_ms: float = AHEAD_MS) -> Look:
    """A question whose reply comes at `at_ms` of our clock."""
    return Look(at_ms + ahead_ms, at_ms - there, at_ms + back)


def reckoned(*looks: Look) -> float:
    clock = ServerClock()
    for each in looks:
        clock.take([each])
    return clock.ahead_ms


@pytest.mark.parametrize(
    ("looks", "ahead_ms"),
    [
        ([look(0)], AHEAD_MS),
        ([look(0), look(10_000, there=4_000)], AHEAD_MS),  # the server stood still before it replied
        ([look(0), look(10_000, back=4_000)], AHEAD_MS),  # the answer was held up
        ([look(0, there=4_000), look(10_000)], AHEAD_MS),  # the first of all was the slow one
        ([look(0, back=4_000), look(10_000)], AHEAD_MS),
        ([look(0), look(10_000, ahead_ms=1_700)], 1_700),  # another server's clock, ahead of the first one's
        ([look(0), look(10_000, ahead_ms=300)], 300),  # and one behind it
        ([look(0), look(10_000, ahead_ms=300, there=4_000), look(20_000, ahead_ms=300)], 300),
        (
            [look(0), look(10_000, there=0.4, back=4_000)],
            AHEAD_MS - 0.1,
        ),  # half as much there, and held up on its way back
        ([look(0), look(10_000, there=4_000, back=0.4)], AHEAD_MS + 0.1),
    ],
)
def test_what_is_reckoned_after_some_looks(looks: list[Look], ahead_ms: float) -> None:
    assert reckoned(*looks) == pytest.approx(ahead_ms)


slow = st.floats(min_value=0.5, max_value=10_000)


@given(st.lists(st.tuples(slow, slow), max_size=10))
def test_it_is_never_ahead_however_slow_the_looks_are_that_follow_a_quick_one(ways: list[tuple[float, float]]) -> None:
    looks = [look(100_000 * n, there=there, back=back) for n, (there, back) in enumerate(ways, 1)]
    assert reckoned(look(0), *looks) <= AHEAD_MS + 1e-6


def test_of_several_looks_the_quickest_counts() -> None:
    clock = ServerClock()
    clock.take([look(0, there=20), look(50), look(100, back=20)])
    assert clock.ahead_ms == pytest.approx(AHEAD_MS)
