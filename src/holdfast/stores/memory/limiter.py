"""Limits in memory: a dictionary of what is kept of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.kernel.limits import Cost, RateCounts, Verdicts
from holdfast.kernel.times import Instant


class MemoryLimiter:
    """Exact among the tasks of one event loop, since nothing here awaits."""

    def __init__(self, now_ms: Callable[[], Instant]) -> None:
        self._now_ms = now_ms
        self.counts = RateCounts()

    async def spend(self, namespace: str, costs: Sequence[Cost]) -> Verdicts:
        return self.counts.spend(costs, now_ms=self._now_ms(), within=namespace)
