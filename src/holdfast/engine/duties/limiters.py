"""Counts the replicas that limit something, so that each knows its share while the store is away.

Gateways without a worker have no lease by which they could be counted. So each process that limits says so itself.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.engine.pace import Pace
from holdfast.kernel import limits
from holdfast.kernel.documents import Document
from holdfast.ports.store import Store


class Limiters:
    """Says that this process limits, and tells `on_counted` how many do."""

    def __init__(self, store: Store, *, instance: str, on_counted: Callable[[int], None], pace: Pace) -> None:
        self._store = store
        self._instance = instance
        self._on_counted = on_counted
        self._pace = pace
        self._last: Document | None = None

    async def tick(self) -> float:
        writing = limits.announce(self._instance, last=self._last, now_ms=self._store.now_ms())
        [stored] = await self._store.write([writing])
        # A write whose reply was lost may have been stored: then the next one has to name what it replaces.
        place = (limits.EVERYWHERE, limits.KIND, self._instance)
        self._last = writing.document if stored else await self._store.document(*place)
        found = await self._store.documents(limits.EVERYWHERE, limits.KIND, limit=self._pace.limiters_max)
        self._on_counted(max(1, len(found)))
        return self._pace.limiters_seconds

    async def withdraw(self) -> None:
        """This process leaves. That of one that was killed expires."""
        if self._last is not None:
            await self._store.write([limits.withdraw(self._last, now_ms=self._store.now_ms())])
