"""Removes what is over: runs after their retention, with everything that belongs to them, and expired documents."""

from __future__ import annotations

from holdfast.events import AskedInVain, Emit, RunsPruned
from holdfast.ports.store import Store

PRUNE_MAX = 200
PAUSE_BETWEEN_BITES_SECONDS = 0.05
CADENCE_SECONDS = 5.0


class Pruner:
    """Works in small bites, so that it never holds the store for long."""

    def __init__(self, store: Store, *, emit: Emit) -> None:
        self._store = store
        self._emit = emit

    async def tick(self) -> float:
        pruned = await self._store.prune(PRUNE_MAX)
        if pruned:
            self._emit(RunsPruned(pruned))
        else:
            self._emit(AskedInVain("pruner"))
        return PAUSE_BETWEEN_BITES_SECONDS if pruned == PRUNE_MAX else CADENCE_SECONDS
