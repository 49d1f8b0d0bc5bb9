"""How many runs ended, and how long they took: a ring of short buckets, and the bars drawn from it. Pure.

Rules
- The ring covers the last 60 buckets of 5 seconds. What is older is forgotten; what comes late still counts.
- A bucket keeps its durations as a histogram whose classes grow by a fifth each: its size is bounded, and a percentile
  is right to within that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.kernel.times import Instant, Millis

BUCKETS = 60
BUCKET_MS = Millis(5_000)
SPAN_MS = BUCKET_MS * BUCKETS
_GROWTH = math.log(1.2)


class End(NamedTuple):
    """A run that has ended."""

    at_ms: Instant
    elapsed_ms: Millis
    failed: bool


class Figures(NamedTuple):
    """What is shown: a number per bucket, oldest first, and the whole in a few numbers."""

    finished: tuple[int, ...]
    failed: tuple[int, ...]
    typical_ms: tuple[float | None, ...]
    total: int
    total_failed: int
    p50_ms: float | None
    p95_ms: float | None

    @property
    def per_second(self) -> float:
        """Over the last minute."""
        return sum(self.finished[-12:]) / (12 * BUCKET_MS / 1_000)


class _Bucket:
    __slots__ = ("failed", "finished", "histogram", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.finished = 0
        self.failed = 0
        self.histogram: Counter[int] = Counter()


class Series:
    """The ends of runs, over the last minutes."""

    def __init__(self, ends: Iterable[End] = ()) -> None:
        self._ring: list[_Bucket] = [_Bucket(-1) for _ in range(BUCKETS)]
        for end in ends:
            self.add(end)

    def add(self, end: End) -> None:
        number = end.at_ms // BUCKET_MS
        bucket = self._ring[number % BUCKETS]
        if number < bucket.number:
            return  # it fell out of the ring
        if number > bucket.number:
            bucket = self._ring[number % BUCKETS] = _Bucket(number)
        bucket.finished += 1
        bucket.failed += end.failed
        bucket.histogram[_class_of(end.elapsed_ms)] += 1

    def figures(self, now_ms: Instant) -> Figures:
        """The buckets up to now; those in which nothing ended count as empty."""
        newest = now_ms // BUCKET_MS
        seen = {bucket.number: bucket for bucket in self._ring}
        buckets = [seen.get(number) or _Bucket(number) for number in range(newest - BUCKETS + 1, newest + 1)]
        whole: Counter[int] = Counter()
        for bucket in buckets:
            whole.update(bucket.histogram)
        return Figures(
            finished=tuple(bucket.finished for bucket in buckets),
            failed=tuple(bucket.failed for bucket in buckets),
            typical_ms=tuple(_percentile(bucket.histogram, 0.5) for bucket in buckets),
            total=sum(bucket.finished for bucket in buckets),
            total_failed=sum(bucket.failed for bucket in buckets),
            p50_ms=_percentile(whole, 0.5),
            p95_ms=_percentile(whole, 0.95),
        )


def _class_of(elapsed_ms: Millis) -> int:
    return 0 if elapsed_ms < 1 else 1 + int(math.log(elapsed_ms) / _GROWTH)


def _percentile(histogram: Counter[int], share: float) -> float | None:
    """The middle of the class in which that share of the durations is reached."""
    wanted = share * histogram.total()
    for each in sorted(histogram):
        wanted -= histogram[each]
        if wanted <= 0:
            return 0.5 if each == 0 else math.exp((each - 0.5) * _GROWTH)
    return None


WIDTH, HEIGHT = 120.0, 32.0
_GAP = 0.4


def bars(values: Sequence[float | None], *, top: float | None = None) -> str:
    """A path of bars in a box of 120 × 32, one for each value that is above nothing.

    The highest reaches the top, unless `top` says what would.
    """
    highest = top or max((value for value in values if value is not None), default=0.0)
    step = WIDTH / max(1, len(values))
    drawn: list[str] = []
    for n, value in enumerate(values):
        if value:
            height = max(1.0, value / highest * HEIGHT)  # little is more than nothing
            drawn.append(f"M{n * step + _GAP / 2:.2f},{HEIGHT:g}v-{height:.2f}h{step - _GAP:.2f}v{height:.2f}z")
    return " ".join(drawn)
