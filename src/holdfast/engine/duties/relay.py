"""Delivers the messages between shards that whoever committed them died over: to parents, to tokens, to hooks."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.events import AskedInVain, Emit, MessagesRelayed
from holdfast.ports.store import Store

RELAY_MAX = 200
PAUSE_BETWEEN_BITES_SECONDS = 0.05
CADENCE_SECONDS = 1.0


class Relay:
    """Looks every second while it finds something, and less and less often while it does not.

    Whoever commits such a message delivers it; only a death leaves one behind. As with the runs of a dead worker, the
    longest time between two looks is a third of a worker's lease. A store with a single shard answers without a look.
    """

    def __init__(self, store: Store, *, ttl_ms: int, emit: Emit, ring: Callable[[], None]) -> None:
        self._store = store
        self._emit = emit
        self._ring = ring
        self._longest_seconds = max(CADENCE_SECONDS, ttl_ms / 3000)
        self._pause_seconds = CADENCE_SECONDS

    async def tick(self) -> float:
        relayed = await self._store.relay(RELAY_MAX)
        if not relayed:
            self._emit(AskedInVain("relay"))
            pause_seconds = self._pause_seconds
            self._pause_seconds = min(2 * pause_seconds, self._longest_seconds)
            return pause_seconds
        self._emit(MessagesRelayed(relayed))
        self._ring()
        self._pause_seconds = CADENCE_SECONDS
        return PAUSE_BETWEEN_BITES_SECONDS if relayed >= RELAY_MAX else CADENCE_SECONDS
