"""Removes what is over: runs after their retention, with everything that belongs to them, and expired documents."""

from __future__ import annotations

from holdfast.engine.pace import Pace
from holdfast.events import AskedInVain, Emit, RunsPruned
from holdfast.ports.store import Store


class Pruner:
    """Works in small bites, so that it never holds the store for long."""

    def __init__(self, store: Store, *, emit: Emit, pace: Pace) -> None:
        self._store = store
        self._emit = emit
        self._pace = pace

    async def tick(self) -> float:
        pace = self._pace
        pruned = await self._store.prune(pace.prune_max)
        if pruned:
            self._emit(RunsPruned(pruned))
        else:
            self._emit(AskedInVain("pruner"))
        return pace.bite_pause_seconds if pruned == pace.prune_max else pace.prune_seconds
