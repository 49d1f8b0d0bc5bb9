"""Several limits at once, their text, and what one process keeps of them."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from holdfast.errors import UsageError
from holdfast.kernel import limits
from holdfast.kernel.limits import COST_MAX, COUNTS_MAX, Cost, LimitVerdict, RateCounts
from holdfast.kernel.rates import Exceeded, Granted, Rate
from holdfast.kernel.times import Instant

NOW_MS = Instant(1_700_000_000_000)
TEN = Rate(10, per="1s")


def cost(name: str = "mail", rate: Rate = TEN, cost: int = 1, limit: str = "own") -> Cost:
    return Cost(limit, name, rate, cost)


def spent(counts: RateCounts, *costs: Cost, at_ms: int = 0) -> bool:
    return all(isinstance(each, Granted) for each in counts.spend(costs, now_ms=Instant(NOW_MS + at_ms)))


def test_what_is_refused_by_one_takes_nothing_of_the_others() -> None:
    counts, narrow = RateCounts(), Rate(1, per="1s")
    assert spent(counts, cost("wide"), cost("narrow", narrow))
    wide, refused = counts.spend([cost("wide"), cost("narrow", narrow)], now_ms=NOW_MS)
    assert isinstance(wide, Granted)
    assert isinstance(refused, Exceeded)
    assert (wide.remaining, refused.retry_ms) == (9, 1_000)


def test_without_a_burst_any_of_the_count_may_go_at_once_where_others_are_refused() -> None:
    counts = RateCounts()
    assert [spent(counts, cost(rate=Rate(5, per="1h"))) for _ in range(6)] == [True] * 5 + [False]


def test_what_is_kept_is_removed_when_its_time_has_come() -> None:
    counts = RateCounts()
    for n in range(5):
        assert spent(counts, cost(f"user-{n}"))
    assert len(counts) == 5
    assert spent(counts, cost("last"), at_ms=2_000)
    assert len(counts) == 1
    counts.clear()
    assert len(counts) == 0


def test_no_process_keeps_more_than_its_share_of_memory() -> None:
    counts, slow = RateCounts(), Rate(1, per="1d")
    for n in range(COUNTS_MAX + 3):
        spent(counts, cost(f"user-{n}", slow))
    assert len(counts) == COUNTS_MAX
    assert spent(counts, cost("user-0", slow))
    assert not spent(counts, cost(f"user-{COUNTS_MAX}", slow))


def test_those_with_the_same_names_are_parted() -> None:
    counts, one = RateCounts(), Rate(1, per="1m")
    for within in ("a", "b"):
        assert isinstance(counts.spend([cost(rate=one)], now_ms=NOW_MS, within=within)[0], Granted)


@pytest.mark.parametrize(
    ("text", "rate", "shown"),
    [
        ("100/1s burst 200", Rate(100, per="1s", burst=200), "100/1s burst 200"),
        ("100/1s", Rate(100, per="1s"), "100/1s"),
        ("  100 / 1s  burst  200 ", Rate(100, per="1s", burst=200), "100/1s burst 200"),
        ("1000/m", Rate(1_000, per="1m"), "1000/1m"),
        ("5/90m", Rate(5, per="90m"), "5/90m"),
        ("5/1.5s", Rate(5, per="1500ms"), "5/1500ms"),
        ("7/48h burst 7", Rate(7, per="2d"), "7/2d"),
    ],
)
def test_a_rate_is_read_as_it_is_shown(text: str, rate: Rate, shown: str) -> None:
    read = limits.parse(text)
    assert (read.count, read.interval_us, read.at_once) == (rate.count, rate.interval_us, rate.at_once)
    assert limits.text_of(read) == shown
    assert limits.text_of(limits.parse(shown)) == shown


@pytest.mark.parametrize(
    "text",
    ["", "100", "100/1", "100/s/s", "0/1s", "100/0s", "-1/1s", "100/1s burst 0", "100/1s burst", "100/1y", "1e3/1s"],
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        limits.parse(text)


@pytest.mark.parametrize(
    "wrong",
    [
        cost(name=""),
        cost(name="x" * 257),
        cost(name="a\0b"),
        cost(name="a\nb"),
        cost(rate=Rate(1, per="1s", by="{tenant}")),
        cost(rate=Rate(1, per="1s", cost="size")),
        cost(cost=-1),
        cost(cost=True),
        cost(cost=1.5),  # pyright: ignore[reportArgumentType]
        cost(cost=11),
        cost(cost=COST_MAX + 1),
        cost(rate=Rate(1, per="400d")),
    ],
)
def test_what_can_never_be_paid_is_refused(wrong: Cost) -> None:
    with pytest.raises(UsageError):
        limits.checked(wrong)


def test_what_can_be_paid_is_not() -> None:
    assert limits.checked(cost(cost=10)) == cost(cost=10)
    assert limits.checked(cost(cost=0)) == cost(cost=0)


def test_a_look_keeps_nothing() -> None:
    counts = RateCounts()
    assert spent(counts, cost(cost=0))
    assert len(counts) == 0


def test_a_process_that_limits_says_so_until_it_leaves() -> None:
    first = limits.announce("host-1", last=None, now_ms=NOW_MS)
    again = limits.announce("host-1", last=first.document, now_ms=NOW_MS)
    gone = limits.withdraw(again.document, now_ms=NOW_MS)
    assert (first.replaces, again.replaces, gone.replaces) == (None, first.document.version, again.document.version)
    assert first.document.version < again.document.version < gone.document.version
    assert again.document.expires_at_ms == NOW_MS + limits.ANNOUNCED_MS
    assert gone.document.expires_at_ms == NOW_MS


def test_a_verdict_says_when_to_come_again() -> None:
    counts = RateCounts()
    [first] = counts.spend([cost(cost=9)], now_ms=NOW_MS)
    [second] = counts.spend([cost(cost=3)], now_ms=NOW_MS)
    assert limits.verdict_of(first) == LimitVerdict(True, 1, 0.0, 0.9)
    assert limits.verdict_of(second) == LimitVerdict(False, 1, 0.2, 0.9)


@given(count=st.integers(1, 50), burst=st.integers(1, 60), replicas=st.integers(1, 9), seconds=st.integers(1, 20))
def test_the_shares_of_all_replicas_let_no_more_pass_than_the_limit(
    count: int, burst: int, replicas: int, seconds: int
) -> None:
    rate = Rate(count, per="1s", burst=burst)
    each = limits.share(rate, replicas)
    counts = [RateCounts() for _ in range(replicas)]
    passed = sum(
        spent(mine, cost(rate=each), at_ms=at_ms) for at_ms in range(0, seconds * 1_000, 50) for mine in counts
    )
    # At least one of each replica goes at once: that alone may be more than the burst.
    assert passed <= max(burst, replicas) + seconds * count
