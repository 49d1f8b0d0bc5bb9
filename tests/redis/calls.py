"""Scripts and calls that the tests have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.lab.cluster.redis_cluster import RedisCluster
from holdfast.stores.redis.net import confirmations
from holdfast.stores.redis.net.client import LuaSource, ScriptCall

ADD = LuaSource("return redis.call('INCR', KEYS[1])")
READ = LuaSource("return redis.call('GET', KEYS[1])")
ECHO = LuaSource("return ARGV[1]")


def add(key: bytes) -> ScriptCall:
    return ScriptCall(ADD, (key,), ())


def read(key: bytes) -> ScriptCall:
    return ScriptCall(READ, (key,), ())


def echo(key: bytes, word: bytes) -> ScriptCall:
    return ScriptCall(ECHO, (key,), (word,))


async def until(condition: Callable[[], bool], *, seconds: float = 60.0) -> None:
    """Wait for something that another process does."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


@contextmanager
def unconfirmed() -> Iterator[None]:
    """Inside, a write is expected to be unknown, and to say how many replicas have it. It need not take long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(confirmations, "CONFIRM_MS", 200)
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas confirmed"):
            yield


def move(cluster: RedisCluster, slot: int) -> None:
    """As redis-cli does it: both ends know of it, then key after key goes, then all learn who has the slot."""
    source = cluster.primary_of(slot)
    target = next(node for node in cluster.primaries() if node is not source)
    names = {node: str(node.ask("CLUSTER", "MYID")) for node in (source, target)}
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", names[source])
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", names[target])
    while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1):
        assert isinstance(keys, list)
        source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *map(str, keys))
    for node in (target, source, *cluster.primaries()):
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", names[target])
