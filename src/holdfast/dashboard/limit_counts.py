"""How many requests each limit has refused lately, in this process: a count for each second of the last minute.

What the store counts is what all processes let through. What is refused is known where it is refused.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple

from holdfast.events import Event, LimitChecked
from holdfast.kernel.times import Instant

SECONDS = 60


class LimitFigures(NamedTuple):
    """What became of what was asked of a limit, over the last minute."""

    granted: int
    refused: int
    refused_per_second: float


class LimitCounts:
    """Listens, and remembers a minute."""

    def __init__(self, now_ms: Callable[[], Instant]) -> None:
        self._now_ms = now_ms
        self._seconds: deque[tuple[int, Counter[tuple[str, str]]]] = deque()

    def __call__(self, event: Event) -> None:
        if isinstance(event, LimitChecked):
            second = self._now_ms() // 1000
            if not self._seconds or self._seconds[-1][0] < second:
                self._seconds.append((second, Counter()))
                self._forget(second)
            self._seconds[-1][1][event.limit, event.verdict] += 1

    def figures(self, limit: str) -> LimitFigures:
        """Those of the last minute."""
        self._forget(self._now_ms() // 1000)
        granted = sum(counts[limit, "granted"] for _, counts in self._seconds)
        refused = sum(counts[limit, "refused"] for _, counts in self._seconds)
        return LimitFigures(granted, refused, refused / SECONDS)

    def _forget(self, second: int) -> None:
        while self._seconds and self._seconds[0][0] <= second - SECONDS:
            self._seconds.popleft()
