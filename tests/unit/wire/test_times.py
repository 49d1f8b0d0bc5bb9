from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.errors import UsageError
from holdfast.wire import times

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (1_234, "1.23 s"),
        (59_900, "59.9 s"),
        (60_000, "1 min"),
        (184_000, "3 min 4 s"),
        (7_500_000, "2 h 5 min"),
        (86_400_000, "1 d"),
        (604_800_000, "7 d"),
    ],
)
def test_durations(ms: int, text: str):
    assert times.duration(ms) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "now"), (0.4, "now"), (3, "3 s ago"), (61, "1 min ago"), (7_300, "2 h ago"), (-90, "in 1 min"), (-0.2, "now")],
)
def test_how_long_ago(seconds: float, text: str):
    assert times.ago(NOW - timedelta(seconds=seconds), NOW) == text


def test_instants_are_in_utc():
    assert times.instant(NOW) == "2026-11-16 12:00:00"
    assert times.exact(NOW) == "2026-11-16T12:00:00.000Z"


@pytest.mark.parametrize(
    ("text", "means"),
    [
        (None, None),
        ("2026-11-16", datetime(2026, 11, 16, tzinfo=UTC)),
        ("2026-11-16T12:00:00Z", NOW),
        ("2026-11-16T13:00:00+01:00", NOW),
        ("2h", NOW - timedelta(hours=2)),
    ],
)
def test_instants_that_people_write(text: str | None, means: datetime | None):
    assert times.instant_of(text, now=NOW) == means


@pytest.mark.parametrize("text", ["", "yesterday", "2h", "2026-13-01"])
def test_what_is_no_instant_is_refused_with_a_hint(text: str):
    with pytest.raises(UsageError) as refused:
        times.instant_of(text)
    assert refused.value.hint
