"""Documents: each in the shard of its name (the rules are the kernel's, in `holdfast.kernel.documents`).

Members of the index: d namespace · kind · id, for lists; q namespace · kind · due · place, for the queue of a kind;
y expires · place, for the pruner. A place is namespace · kind · id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.times import Instant, Millis
from holdfast.stores.redis import rows, scripts
from holdfast.stores.redis.net.client import Reply, ScriptCall
from holdfast.stores.redis.rows import TOP, instant, number, safe, under, unsafe
from holdfast.stores.redis.script_calls import Asks
from holdfast.stores.redis.shards import Keys, Shards

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Document).decode
_INSTANT_WIDTH = 12
_ONE_MS = Millis(1)


def _place(namespace: str, kind: str, id: str) -> str:
    return f"{safe(namespace)}\0{safe(kind)}\0{safe(id)}"


class RedisDocuments:
    """How documents are written, found and removed."""

    def __init__(self, asks: Asks, shards: Shards, instant: Callable[[], bytes]) -> None:
        self._shards = shards
        self._asks = asks
        self._instant = instant

    async def write(self, writings: Sequence[Writing]) -> list[bool]:
        return [reply == 1 for reply in await self._asks.ask([self._writing(each) for each in writings], writes=True)]

    def _writing(self, writing: Writing) -> ScriptCall:
        new = writing.document
        place = _place(new.namespace, new.kind, new.id)
        members = [f"d\0{place}"]
        if new.due_at_ms is not None:
            members.append(f"q\0{safe(new.namespace)}\0{safe(new.kind)}\0{instant(new.due_at_ms)}\0{place}")
        if new.expires_at_ms is not None:
            members.append(f"y\0{instant(new.expires_at_ms)}\0{place}")
        return scripts.WRITE_DOCUMENT.call(
            self._keys(self._shards.of_document(new.namespace, new.kind, new.id)),
            now=self._instant(),
            place=place,
            replaces=number(writing.replaces),
            version=number(new.version),
            expires=number(new.expires_at_ms),
            document=_encode(new),
            document_members=members,
        )

    async def named(self, places: Sequence[tuple[str, str, str]]) -> list[Document]:
        calls = [
            scripts.DOCUMENTS.call(
                self._keys(self._shards.of_document(*place)),
                now=self._instant(),
                limit=1,
                low="",
                high="",  # no stretch of the index
                width=0,
                places=[_place(*place)],
            )
            for place in places
        ]
        return _found(await self._asks.ask(calls))

    async def page(self, namespace: str, kind: str, *, after: str, limit: int) -> list[Document]:
        prefix = f"d\0{safe(namespace)}\0{safe(kind)}\0"
        low = f"({prefix}{safe(after)}" if after else f"[{prefix}"
        found = await self._between(low, f"({prefix}", limit, width=2)
        return sorted(found, key=lambda document: document.id)[:limit]

    async def due(self, namespace: str, kinds: Sequence[str], limit: int, *, now_ms: Instant) -> list[Document]:
        found: list[Document] = []
        for kind in dict.fromkeys(kinds):
            prefix = f"q\0{safe(namespace)}\0{safe(kind)}\0"
            width = len(prefix.encode()) + _INSTANT_WIDTH + 1
            found += await self._between(
                f"[{prefix}", f"({prefix}{instant(now_ms + _ONE_MS)}", limit, width=width, ends=True
            )
        found.sort(key=lambda document: (document.due_at_ms, document.kind, document.id))
        return found[:limit]

    async def _between(self, low: str, high: str, limit: int, *, width: int, ends: bool = False) -> list[Document]:
        if limit < 1:
            return []
        top = high.encode() if ends else high.encode() + TOP
        args: dict[str, Any] = {
            "now": self._instant(),
            "limit": limit,
            "low": low,
            "high": top,
            "width": width,
            "places": (),
        }
        return _found(await self._asks.everywhere(scripts.DOCUMENTS, **args))

    async def prune(self, limit: int, *, now_ms: Instant) -> int:
        """Remove expired documents, the longest over first; how many."""
        if limit < 1:
            return 0
        over = sorted(await self._asks.between(*under(b"y\0", up_to=instant(now_ms + _ONE_MS).encode()), limit=limit))[
            :limit
        ]
        calls: list[ScriptCall] = []
        for member in over:
            place = member.split("\0", 2)[2]
            shard = self._shards.of_document(*map(unsafe, place.split("\0")))
            calls.append(scripts.FORGET_DOCUMENT.call(self._keys(shard), now=self._instant(), place=place))
        return sum(reply == 1 for reply in await self._asks.ask(calls, writes=True))

    def _keys(self, shard: int) -> Keys:
        return self._shards.of_shard(shard)


def _found(replies: list[Reply]) -> list[Document]:
    return [_decode(each) for reply in replies for each in rows.items(reply) if isinstance(each, bytes)]
