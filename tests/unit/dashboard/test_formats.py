from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import Raw

from holdfast.dashboard import formats
from holdfast.kernel.journal import Value

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
    assert formats.duration(ms) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "now"), (0.4, "now"), (3, "3 s ago"), (61, "1 min ago"), (7_300, "2 h ago"), (-90, "in 1 min"), (-0.2, "now")],
)
def test_how_long_ago(seconds: float, text: str):
    assert formats.ago(NOW - timedelta(seconds=seconds), NOW) == text


def test_instants_are_in_utc():
    assert formats.instant(NOW) == "2026-11-16 12:00:00"
    assert formats.exact(NOW) == "2026-11-16T12:00:00.000Z"


def test_long_values_are_clipped_and_large_ones_only_counted():
    assert formats.clipped("abc", 2) == ("ab …", True)
    assert formats.clipped("abc", 3) == ("abc", False)
    assert formats.kept(None) == ""
    assert formats.kept(Value(json=Raw(b'{"a":1}'))) == '{\n  "a": 1\n}'
    assert formats.kept(Value(blob="d", size=5_000_000)) == "4.8 MiB"
