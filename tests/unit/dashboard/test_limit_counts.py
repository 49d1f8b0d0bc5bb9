"""What limits have granted and refused, over the last minute."""

from __future__ import annotations

from holdfast.dashboard.limit_counts import LimitCounts, LimitFigures
from holdfast.events import AskedInVain, LimitChecked
from holdfast.kernel.times import Instant


class Clock:
    def __init__(self) -> None:
        self.now_ms = Instant(1_000_000)

    def __call__(self) -> Instant:
        return self.now_ms


def test_a_minute_is_remembered_and_no_more() -> None:
    clock = Clock()
    counts = LimitCounts(clock)
    for verdict in ("granted", "refused", "refused"):
        counts(LimitChecked("tenant", verdict))
    counts(LimitChecked("start", "granted"))
    counts(AskedInVain("mail"))
    assert counts.figures("tenant") == LimitFigures(1, 2, 2 / 60)
    clock.now_ms = Instant(1_059_999)
    counts(LimitChecked("tenant", "refused"))
    assert counts.figures("tenant") == LimitFigures(1, 3, 3 / 60)
    clock.now_ms = Instant(1_060_000)
    assert counts.figures("tenant") == LimitFigures(0, 1, 1 / 60)
    assert counts.figures("start") == LimitFigures(0, 0, 0.0)
