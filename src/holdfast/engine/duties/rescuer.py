"""Frees the runs of replicas whose lease has expired, so that any live replica may claim them."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.engine.pace import Pace
from holdfast.events import AskedInVain, Emit, RunsRescued
from holdfast.kernel.times import Millis
from holdfast.ports.store import Store


class Rescuer:
    """Takes over in bounded bites: thousands of leases may expire together."""

    def __init__(self, store: Store, *, ttl_ms: Millis, emit: Emit, pace: Pace, ring: Callable[[], None]) -> None:
        self._store = store
        self._ttl_ms = ttl_ms
        self._emit = emit
        self._pace = pace
        self._ring = ring

    async def tick(self) -> float:
        pace = self._pace
        rescued = await self._store.rescue(pace.rescue_max)
        if rescued:
            self._emit(RunsRescued(tuple(rescued)))
            self._ring()
        else:
            self._emit(AskedInVain("rescuer"))
        return pace.bite_pause_seconds if len(rescued) == pace.rescue_max else self._ttl_ms / 3000
