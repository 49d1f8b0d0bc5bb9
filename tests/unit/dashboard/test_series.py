from __future__ import annotations

import pytest

from holdfast.dashboard.series import BUCKET_MS, BUCKETS, SPAN_MS, End, Series, bars

NOW_MS = 1_000 * SPAN_MS


def ended(ago_ms: int, elapsed_ms: int = 10, *, failed: bool = False) -> End:
    return End(NOW_MS - ago_ms, elapsed_ms, failed)


def test_an_empty_series_counts_nothing_and_knows_no_latency():
    figures = Series().figures(NOW_MS)
    assert figures.finished == (0,) * BUCKETS
    assert (figures.total, figures.p50_ms, figures.per_second) == (0, None, 0.0)


def test_ends_fall_into_their_buckets_the_newest_last():
    series = Series([ended(0), ended(0), ended(BUCKET_MS), ended(2 * BUCKET_MS, failed=True)])
    figures = series.figures(NOW_MS)
    assert figures.finished[-3:] == (1, 1, 2)
    assert figures.failed[-3:] == (1, 0, 0)
    assert (figures.total, figures.total_failed) == (4, 1)


def test_what_is_older_than_the_ring_is_forgotten():
    series = Series([ended(0)])
    assert series.figures(NOW_MS + SPAN_MS).total == 0
    series.add(ended(SPAN_MS))
    assert series.figures(NOW_MS).total == 1


def test_an_end_that_is_told_late_still_counts():
    series = Series([ended(0)])
    series.add(ended(3 * BUCKET_MS))
    assert series.figures(NOW_MS).finished[-4] == 1


def test_a_bucket_is_used_again_when_the_ring_has_gone_round():
    series = Series([ended(0) for _ in range(5)])
    series.add(End(NOW_MS + SPAN_MS, 10, failed=False))
    assert series.figures(NOW_MS + SPAN_MS).finished[-1] == 1


@pytest.mark.parametrize("elapsed_ms", [0, 1, 3, 10, 250, 4_000, 86_400_000])
def test_a_percentile_is_right_to_within_a_fifth(elapsed_ms: int):
    p50_ms = Series([ended(0, elapsed_ms) for _ in range(9)]).figures(NOW_MS).p50_ms
    assert p50_ms == pytest.approx(elapsed_ms, rel=0.2, abs=0.6)


def test_the_slow_ones_show_in_the_95th_percentile_only():
    figures = Series([ended(0, 10) for _ in range(90)] + [ended(0, 5_000) for _ in range(10)]).figures(NOW_MS)
    assert figures.p50_ms == pytest.approx(10, rel=0.2)
    assert figures.p95_ms == pytest.approx(5_000, rel=0.2)


def test_the_rate_is_that_of_the_last_minute():
    assert Series([ended(n * 1_000) for n in range(60)]).figures(NOW_MS).per_second == pytest.approx(1.0, rel=0.1)


def test_bars_are_as_high_as_their_values_and_nothing_has_none():
    assert bars([0, 1, None, 2], top=4) == "M30.20,32v-8.00h29.60v8.00z M90.20,32v-16.00h29.60v16.00z"
    assert bars([0, 0]) == ""
    assert bars([]) == ""
