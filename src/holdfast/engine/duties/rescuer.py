"""Frees the runs of replicas whose lease has expired, so that any live replica may claim them."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.events import AskedInVain, Emit, RunsRescued
from holdfast.ports.store import Store

RESCUE_MAX = 100
HERD_PAUSE_SECONDS = 0.05


class Rescuer:
    """Takes over in bounded bites: thousands of leases may expire together."""

    def __init__(self, store: Store, *, ttl_ms: int, emit: Emit, ring: Callable[[], None]) -> None:
        self._store = store
        self._ttl_ms = ttl_ms
        self._emit = emit
        self._ring = ring

    async def tick(self) -> float:
        rescued = await self._store.rescue(RESCUE_MAX)
        if rescued:
            self._emit(RunsRescued(tuple(rescued)))
            self._ring()
        else:
            self._emit(AskedInVain("rescuer"))
        return HERD_PAUSE_SECONDS if len(rescued) == RESCUE_MAX else self._ttl_ms / 3000
