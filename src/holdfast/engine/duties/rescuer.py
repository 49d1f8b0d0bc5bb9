"""Frees the runs of replicas whose lease has expired, so that any live replica may claim them.

Each takeover is counted before the run is freed: the worker that claims it has to know, see `kernel.takeovers`.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.engine.pace import Pace
from holdfast.events import AskedInVain, Emit, RunsRescued
from holdfast.kernel import takeovers
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
        # A lease that expires while those before it are counted is left for the next time: it would not be counted.
        now_ms = self._store.now_ms()
        await self._count()
        rescued = await self._store.rescue(pace.rescue_max, expired_until_ms=now_ms)
        if rescued:
            self._emit(RunsRescued(tuple(rescued)))
            self._ring()
        else:
            self._emit(AskedInVain("rescuer"))
        return pace.bite_pause_seconds if len(rescued) == pace.rescue_max else self._ttl_ms / 3000

    async def _count(self) -> None:
        store = self._store
        fallen = await store.fallen(self._pace.rescue_max)
        if not fallen:
            return
        places = [(run.namespace, takeovers.KIND, run.id) for run in fallen]
        told = {document.id: document for document in await store.named(places)}
        now_ms = store.now_ms()
        counted = (takeovers.count(run, told.get(run.id), now_ms=now_ms) for run in fallen)
        # One that is refused has been counted by another process at this moment.
        await store.write([writing for writing in counted if writing is not None])
