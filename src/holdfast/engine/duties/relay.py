"""Delivers messages between shards, to parents, tokens and hooks, whose sender died before it could deliver them."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.engine.pace import Pace
from holdfast.events import AskedInVain, Emit, MessagesRelayed
from holdfast.kernel.times import Millis
from holdfast.ports.store import Store


class Relay:
    """Looks every second while it finds something, and less and less often while it does not.

    The process that commits such a message delivers it; only its death leaves one behind. As with the runs of a dead
    worker, the longest time between two looks is a third of a worker's lease. A store with a single shard returns
    without a look.
    """

    def __init__(self, store: Store, *, ttl_ms: Millis, emit: Emit, pace: Pace, ring: Callable[[], None]) -> None:
        self._store = store
        self._emit = emit
        self._pace = pace
        self._ring = ring
        self._longest_seconds = max(pace.relay_seconds, ttl_ms / 3000)
        self._pause_seconds = pace.relay_seconds

    async def tick(self) -> float:
        pace = self._pace
        relayed = await self._store.relay(pace.relay_max)
        if not relayed:
            self._emit(AskedInVain("relay"))
            pause_seconds = self._pause_seconds
            self._pause_seconds = min(2 * pause_seconds, self._longest_seconds)
            return pause_seconds
        self._emit(MessagesRelayed(relayed))
        self._ring()
        self._pause_seconds = pace.relay_seconds
        return pace.bite_pause_seconds if relayed >= pace.relay_max else pace.relay_seconds
