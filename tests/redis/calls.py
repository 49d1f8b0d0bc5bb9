"""Scripts and calls that the tests have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from holdfast.errors import StoreUnavailable
from holdfast.lab.cluster.processes import wait_until
from holdfast.lab.cluster.redis_cluster import RedisCluster
from holdfast.ports.store import Store
from holdfast.stores.redis import RedisStore
from holdfast.stores.redis.net.client import LuaSource, RedisClient, ScriptCall
from holdfast.stores.redis.pace import RedisPace

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


def _agree_on_epochs(cluster: RedisCluster) -> bool:
    """Whether every node knows the same configuration epoch of each primary, and no two primaries have the same."""
    views: set[frozenset[tuple[str, str]]] = set()
    for node in cluster.nodes:
        lines = [line.split() for line in str(node.ask("CLUSTER", "NODES")).splitlines()]
        views.add(frozenset((fields[0], fields[6]) for fields in lines if "master" in fields[2]))
    [*others, view] = views
    return not others and len({epoch for _, epoch in view}) == len(view)


# A replica that is well confirms in time, however busy the machine is.
PATIENT = RedisPace(confirm_ms=10_000)


@contextmanager
def impatient(of: RedisClient | Store) -> Iterator[None]:
    """Inside, this client or store, and no other, does not wait long for replicas to confirm."""
    client = of._client if isinstance(of, RedisStore) else of
    assert isinstance(client, RedisClient)
    confirmations = client._confirmations
    before = confirmations._pace
    confirmations._pace = replace(before, confirm_ms=200)
    try:
        yield
    finally:
        confirmations._pace = before


@contextmanager
def unconfirmed(of: RedisClient | Store) -> Iterator[None]:
    """Inside, a write is expected to be unknown, and to say how many replicas have it. It need not take long."""
    with impatient(of), pytest.raises(StoreUnavailable, match="0 of 1 replicas confirmed"):
        yield


def move(cluster: RedisCluster, slot: int) -> None:
    """As redis-cli does it: both ends know of it, then key after key goes, then all learn who has the slot.

    The new owner raises its configuration epoch above those that it knows of. If it has not heard of a higher one that
    the old owner has, a last message of the old owner takes the slot away from it again, and its keys are gone. So a
    move begins when all agree on the epochs, as a person who moves one slot after the other would wait.
    """
    wait_until(lambda: _agree_on_epochs(cluster), seconds=60, what=lambda: "the epochs of the nodes differ")
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
