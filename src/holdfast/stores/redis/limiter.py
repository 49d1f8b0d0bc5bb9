"""Limits on Redis: a key for each count, which Redis itself removes when its time has come.

All counts of a namespace have the hash tag of one shard: they lie in one slot, so that one script takes all of a call
or nothing. A name comes behind the tag, so that no brace in it can choose another slot.

The script has the rule of `kernel.rates.spend` a second time, as arithmetic: whether all may go, and what is kept then.
Whatever is said about it is decided by the kernel, from what the script has found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.errors import StoreUnavailable
from holdfast.kernel import limits
from holdfast.kernel.limits import Cost, Verdicts
from holdfast.kernel.rates import Micros
from holdfast.kernel.times import Instant
from holdfast.stores.redis import rows, scripts
from holdfast.stores.redis.net.client import RedisClient, ScriptFailed
from holdfast.stores.redis.shards import Shards


class RedisLimiter:
    """One script per call. No replica confirms it: a count that a failover forgets does no harm."""

    def __init__(self, client: RedisClient, shards: Shards, instant: Callable[[], bytes]) -> None:
        self._client = client
        self._shards = shards
        self._instant = instant

    async def spend(self, namespace: str, costs: Sequence[Cost]) -> Verdicts:
        call = scripts.SPEND.call_each(
            [self._shards.count_key(namespace, cost.place) for cost in costs],
            now=self._instant(),
            costs=[(cost.rate.interval_us * cost.cost, cost.rate.interval_us * cost.rate.at_once) for cost in costs],
        )
        [reply] = await self._client.run([call], writes=True, confirmed=False)
        if isinstance(reply, ScriptFailed):  # its memory is full, for one
            raise StoreUnavailable(f"limits cannot be counted: {reply.message}")
        now_ms, *found = rows.numbers(reply)
        return limits.decide(costs, [Micros(due) for due in found], now_ms=Instant(now_ms)).verdicts
