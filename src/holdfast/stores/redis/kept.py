"""Outs and audits: kept in the shard of the change that brings them, under the number that they have there.

- A place is the shard and the number: `0c.000000000007`. A page goes through the shards one after the other; where it
  has ended is one number for each shard, so nothing is missed that comes to any of them meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.kernel.audits import Audit, Audits, KeptAudit
from holdfast.kernel.changes import Change
from holdfast.kernel.outs import KeptOut, Out, Outs
from holdfast.stores.redis import rows, scripts
from holdfast.stores.redis.script_calls import Asks
from holdfast.stores.redis.shards import Shards

_encode = msgspec.msgpack.Encoder().encode
_decode_out = msgspec.msgpack.Decoder(Out).decode
_decode_audit = msgspec.msgpack.Decoder(Audit).decode


def records(outs: Sequence[Out], audits: Sequence[Audit]) -> list[tuple[str, bytes]]:
    """What a script is told to keep."""
    return [
        *((_prefix("out", out.namespace), _encode(out)) for out in outs),
        *((_prefix("audit", audit.namespace), _encode(audit)) for audit in audits),
    ]


def records_of(change: Change) -> list[tuple[str, bytes]]:
    return records(change.outs, change.audits) if change.outs or change.audits else []


def _prefix(kind: str, namespace: str) -> str:
    return f"v\0{kind}\0{rows.safe(namespace)}\0"


class RedisKept:
    """What is kept in all shards."""

    def __init__(self, asks: Asks, shards: Shards) -> None:
        self._asks = asks
        self._shards = shards

    async def outs(self, namespace: str, *, after: str, limit: int) -> Outs:
        found, behind = await self._page("out", namespace, after=after, limit=limit)
        return Outs(tuple(KeptOut(place, _decode_out(body)) for place, body in found), behind)

    async def audits(self, namespace: str, *, after: str, limit: int) -> Audits:
        found, behind = await self._page("audit", namespace, after=after, limit=limit)
        return Audits(tuple(KeptAudit(place, _decode_audit(body)) for place, body in found), behind)

    async def drop_outs(self, namespace: str, places: Sequence[str]) -> None:
        await self._drop("out", namespace, places)

    async def drop_audits(self, namespace: str, places: Sequence[str]) -> None:
        await self._drop("audit", namespace, places)

    async def _page(self, kind: str, namespace: str, *, after: str, limit: int) -> tuple[list[tuple[str, bytes]], str]:
        behind = after.split(",") if after else [""] * self._shards.count
        calls = [
            scripts.KEPT_PAGE.call(
                self._shards.of_shard(shard), prefix=_prefix(kind, namespace), after=behind[shard], limit=str(limit)
            )
            for shard in self._shards.all
        ]
        found: list[tuple[str, bytes]] = []
        for shard, reply in zip(self._shards.all, await self._asks.ask(calls, writes=True), strict=True):
            for each in rows.items(reply)[: max(0, limit) - len(found)]:
                number, body = rows.items(each)
                assert isinstance(body, bytes)
                behind[shard] = rows.text(number)
                found.append((f"{shard:02x}.{behind[shard]}", body))
        return found, ",".join(behind)

    async def _drop(self, kind: str, namespace: str, places: Sequence[str]) -> None:
        of_shard: dict[int, list[str]] = {}
        for place in places:
            shard, _, number = place.partition(".")
            of_shard.setdefault(int(shard, 16), []).append(number)
        prefix = _prefix(kind, namespace)
        await self._asks.ask(
            [
                scripts.DROP_KEPT.call(self._shards.of_shard(shard), prefix=prefix, places=numbers)
                for shard, numbers in of_shard.items()
            ],
            writes=True,
        )
