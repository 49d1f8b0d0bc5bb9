"""Leases: who works, until when, and for what. They lie in a slot of their own, beside the shards.

Rules
- A lease that is missing counts as expired: what its owner holds in any shard may be taken from it.
- A lease is ended before its runs are freed. A process that dies between the two leaves an owner
  without a lease, and the next rescue finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.kernel.times import EPOCH, Instant, Millis
from holdfast.ports.store import Member, Serves
from holdfast.stores.redis import rows, scripts
from holdfast.stores.redis.script_calls import Asks
from holdfast.stores.redis.shards import Shards


class Leases:
    """How leases are opened, kept and ended."""

    def __init__(self, asks: Asks, shards: Shards, instant: Callable[[], bytes]) -> None:
        self._asks = asks
        self._keys = shards.leases
        self._instant = instant

    async def join(self, owner: str, ttl_ms: Millis, serves: Serves) -> None:
        call = scripts.JOIN.call(
            self._keys, now=self._instant(), owner=owner, ttl_ms=ttl_ms, serves=rows.encode_serves(serves)
        )
        await self._asks.ask([call], writes=True)

    async def renew(self, owner: str, ttl_ms: Millis) -> bool:
        call = scripts.RENEW.call(self._keys, now=self._instant(), owner=owner, ttl_ms=ttl_ms)
        return await self._asks.ask([call], writes=True) == [1]

    async def end(self, owners: Sequence[str], *, expired_until_ms: Instant | None = None) -> list[str]:
        """End leases, or those among them that had expired by then; returns the owners that have none now."""
        call = scripts.END_LEASES.call(
            self._keys,
            now=self._instant(),
            only_expired=expired_until_ms is not None,
            expired_until_ms=EPOCH if expired_until_ms is None else expired_until_ms,
            owners=owners,
        )
        [without] = await self._asks.ask([call], writes=True)
        return rows.texts(without)

    async def fallen(self) -> list[str]:
        """Owners whose lease has expired, and owners without one.

        Owners are looked for before leases: an owner that holds a run had its lease before.
        """
        parts = await self._asks.everywhere(scripts.FIRSTS, prefix=b"o\0")
        owners = {part for reply in parts for part in rows.texts(reply)}
        live, expired = await self._all()
        return [*expired, *sorted(owners - {member.owner for member in live} - set(expired))]

    async def end_fallen(self, expired_until_ms: Instant) -> list[str]:
        """End what had expired by then; returns the owners whose runs may be freed: those, and owners without one."""
        fallen = await self.fallen()
        return await self.end(fallen, expired_until_ms=expired_until_ms) if fallen else []

    async def live(self, namespace: str) -> list[Member]:
        """Those of a namespace that have not expired. How many runs each holds is not counted here."""
        return [member for member in (await self._all())[0] if member.serves.namespace == namespace]

    async def _all(self) -> tuple[list[Member], list[str]]:
        [reply] = await self._asks.ask([scripts.LEASES.call(self._keys, now=self._instant())])
        leased = scripts.LEASES.read(reply)
        members: list[Member] = []
        for each in rows.items(leased.live):
            owner, until, told = rows.items(each)
            if isinstance(told, bytes):
                members.append(rows.member_of(rows.text(owner), Instant(int(rows.text(until))), told))
        return members, rows.texts(leased.expired)
