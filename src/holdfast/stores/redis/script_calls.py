"""Asks Redis: calls of scripts in, replies out. What a script raises is a fault of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.errors import EngineFault
from holdfast.kernel.runs import Run
from holdfast.stores.redis import rows, scripts
from holdfast.stores.redis.declarations import Script
from holdfast.stores.redis.net.client import RedisClient, Reply, ScriptCall, ScriptFailed
from holdfast.stores.redis.shards import Shards

CALLS_MAX = 1_000  # in one round trip, so that the server replies to each in time


class Asks:
    """How everything here talks to Redis."""

    def __init__(self, client: RedisClient, shards: Shards) -> None:
        self._client = client
        self._shards = shards

    async def ask(self, calls: Sequence[ScriptCall], *, writes: bool = False) -> list[Reply]:
        """The replies, in order. Raises `StoreUnavailable`, or `EngineFault` if a script has failed."""
        replies: list[Reply] = []
        for start in range(0, len(calls), CALLS_MAX):
            for reply in await self._client.run(calls[start : start + CALLS_MAX], writes=writes):
                if isinstance(reply, ScriptFailed):
                    raise EngineFault(f"a script of the store failed: {reply.message}")
                replies.append(reply)
        return replies

    async def everywhere(self, script: Script[Reply], *, confirmed: bool = False, **args: Any) -> list[Reply]:
        """The same read, in every shard; `confirmed` if replicas must have what it says."""
        calls = [script.call(self._shards.of_shard(shard), **args) for shard in self._shards.all]
        return await self.ask(calls, writes=confirmed)

    async def count(self, stretches: Sequence[tuple[bytes, bytes]]) -> list[int]:
        """How many members of the index lie between each pair of bounds, in all shards together."""
        counts = map(rows.numbers, await self.everywhere(scripts.COUNT, stretches=stretches))
        return [sum(each) for each in zip(*counts, strict=True)]

    async def between(self, low: bytes, high: bytes, *, limit: int, confirmed: bool = False) -> list[str]:
        """Members of the index of every shard, up to `limit` of each."""
        replies = await self.everywhere(
            scripts.RANGE, confirmed=confirmed, backwards=False, limit=str(limit), stretches=[(low, high)]
        )
        return [member for reply in replies for members in rows.items(reply) for member in rows.texts(members)]

    async def rows(self, run_ids: Sequence[str]) -> list[Run | None]:
        """The rows of these runs, in this order; None where there is none."""
        calls = [scripts.RUN.call({"run": self._shards.part(b"run", run_id)}) for run_id in run_ids]
        return [rows.run_of(row) for row in await self.ask(calls)]

    async def row(self, run_id: str) -> Run | None:
        [run] = await self.rows([run_id])
        return run
