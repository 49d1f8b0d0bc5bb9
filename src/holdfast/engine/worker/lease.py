"""Keeps the lease of a worker: renews it at a third of its life, and tells in time when it cannot be relied on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.engine.pace import Pace
from holdfast.errors import TransientError
from holdfast.events import Emit, StoreTroubled
from holdfast.kernel.leases import Standing, look_again_in_ms, owner_named, reliable_for_ms, standing
from holdfast.kernel.times import Millis, Steady
from holdfast.ports.clock import Clock
from holdfast.ports.ids import Ids
from holdfast.ports.store import Serves, Store


class WorkerLease:
    """Holds one lease at a time. When it is lost, a new one is opened under a new name."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        ids: Ids,
        instance: str,
        ttl_ms: Millis,
        serves: Serves,
        emit: Emit,
        pace: Pace,
        on_lost: Callable[[], None],
        on_reliable: Callable[[], None],
        on_renewed: Callable[[], None],
        announce: Callable[[str], Awaitable[None]],
    ) -> None:
        self.owner = ""
        self._store = store
        self._clock = clock
        self._ids = ids
        self._instance = instance
        self._ttl_ms = ttl_ms
        self._serves = serves
        self._emit = emit
        self._pace = pace
        self._on_lost = on_lost
        self._on_reliable = on_reliable
        self._on_renewed = on_renewed
        self._announce = announce
        self._sent_steady_ms = 0.0
        self._reliable_until_steady_ms = 0.0
        self._renewed = asyncio.Event()

    @property
    def standing(self) -> Standing:
        """How far the lease can be relied on at this moment, by the steady clock."""
        return standing(self.age_ms, ttl_ms=self._ttl_ms)

    @property
    def age_ms(self) -> float:
        """How long ago the last successful renewal was sent, by the steady clock."""
        return self._clock.steady_ms() - self._sent_steady_ms

    def is_reliable(self, at_steady_ms: Steady | None = None) -> bool:
        """Whether work may be begun under it: now, or at this present reading of the steady clock."""
        now_steady_ms = self._clock.steady_ms() if at_steady_ms is None else at_steady_ms
        return now_steady_ms < self._reliable_until_steady_ms

    async def until_reliable(self) -> None:
        """Returns when work may be begun under the lease."""
        while not self.is_reliable():
            self._renewed.clear()
            await self._renewed.wait()

    async def join(self) -> None:
        """Open a lease under a new name."""
        owner, sent_steady_ms = owner_named(self._instance, self._ids.nonce()), self._clock.steady_ms()
        await self._announce(owner)
        await self._store.join(owner, self._ttl_ms, self._serves)
        self.owner = owner
        self._renewed_at(sent_steady_ms)

    def _renewed_at(self, sent_steady_ms: Steady) -> None:
        first, was_reliable = not self._sent_steady_ms, self.is_reliable()
        self._sent_steady_ms = sent_steady_ms
        self._reliable_until_steady_ms = sent_steady_ms + reliable_for_ms(self._ttl_ms)
        self._renewed.set()
        if not was_reliable and not first:
            self._on_reliable()

    async def keep(self) -> None:
        """Renew forever."""
        while True:
            await self._clock.pause(look_again_in_ms(self.age_ms, ttl_ms=self._ttl_ms) / 1000)
            try:
                await self._renew_or_join()
            except TransientError as error:
                self._emit(StoreTroubled(str(error)))
                await self._clock.pause(self._pace.lease_trouble_pause_seconds)

    async def _renew_or_join(self) -> None:
        if self.standing is not Standing.LOST:
            sent_steady_ms = self._clock.steady_ms()
            if await self._store.renew(self.owner, self._ttl_ms):
                self._renewed_at(sent_steady_ms)
                self._on_renewed()
                return
        if self.owner:
            self._on_lost()
            self.owner = ""
        await self.join()
