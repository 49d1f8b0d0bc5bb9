"""The calls of one replica within a time, and how many of them failed: in buckets, the oldest of which fall out."""

from __future__ import annotations

from collections import deque

from holdfast.kernel.breakers import BUCKETS
from holdfast.kernel.times import Instant, Millis


class Buckets:
    """Counts calls by the clock of the store, which never goes back."""

    def __init__(self, within_ms: Millis) -> None:
        self._each_ms = within_ms / BUCKETS
        self._buckets: deque[list[int]] = deque()  # which one, its calls, its failures
        self.calls = 0
        self.failures = 0

    def add(self, now_ms: Instant, *, failed: bool) -> None:
        number = int(now_ms / self._each_ms)
        if not self._buckets or self._buckets[-1][0] != number:
            self._buckets.append([number, 0, 0])
        self._buckets[-1][1] += 1
        self._buckets[-1][2] += failed
        self.calls += 1
        self.failures += failed
        while self._buckets[0][0] <= number - BUCKETS:
            _, calls, failures = self._buckets.popleft()
            self.calls -= calls
            self.failures -= failures

    def clear(self) -> None:
        self._buckets.clear()
        self.calls = self.failures = 0
