"""A client of a cluster: slots that move, primaries that fall, and batches of which one part is lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import quote

import pytest

from holdfast.errors import InvalidConfig, StoreUnavailable
from holdfast.lab.cluster.redis import RedisServer
from holdfast.lab.cluster.redis_cluster import RedisCluster
from holdfast.stores.redis.net.client import LuaSource, RedisClient, ScriptCall
from holdfast.stores.redis.net.topologies import slot_of
from tests.redis.calls import add, echo, read, until
from tests.redis.conftest import Opens

BOTH = LuaSource("return redis.call('INCR', KEYS[1]) + redis.call('INCR', KEYS[2])")


def spread(tag: bytes) -> list[bytes]:
    """Keys in slots of every primary."""
    return [tag[:-1] + b"-%d}" % number for number in range(24)]


async def test_a_cluster_is_found_through_any_of_its_nodes(
    redis_cluster: RedisCluster, opened: Opens, tag: bytes
) -> None:
    client = await opened(redis_cluster.nodes[-1].url)
    keys = spread(tag)
    assert len(await client.every_primary(b"PING")) == 3
    assert await client.run([echo(key, key) for key in keys], writes=True) == keys
    assert await client.run([add(key) for key in keys] * 2, writes=True) == [1] * 24 + [2] * 24


async def test_a_single_server_is_not_taken_for_a_cluster(redis_server: RedisServer, opened: Opens) -> None:
    with pytest.raises(InvalidConfig, match="no node of a cluster"):
        await opened(redis_server.url.replace("redis://", "redis+cluster://"))


async def test_a_node_that_refuses_us_keeps_nobody_from_finding_the_others(
    redis_cluster: RedisCluster, opened: Opens, tag: bytes
) -> None:
    """A password that is being rolled, or an access list that one node lacks."""
    login = ("SETUSER", tag.decode(), "on", ">secret", "~*", "&*", "+@all")
    *welcoming, refusing = sorted(redis_cluster.nodes, key=lambda node: node in redis_cluster.primaries())[::-1]
    for node in welcoming:
        node.ask("ACL", *login)
    url = redis_cluster.url.replace("://", f"://{quote(tag)}:secret@")
    client = await opened(url)
    for _ in redis_cluster.nodes:  # another node is asked first each time
        await client._topology.look_again()
    assert await client.run([add(tag)], writes=True) == [1]
    with pytest.raises(InvalidConfig, match=f"{refusing.port} refuses us: WRONGPASS"):
        await opened(f"redis+cluster://{quote(tag)}:secret@{refusing.address}")
    for node in welcoming:
        node.ask("ACL", "DELUSER", tag.decode())


async def test_every_call_is_executed_once_while_its_slot_moves_to_another_node(
    redis_cluster: RedisCluster, opened: Opens, tag: bytes
) -> None:
    slot = slot_of(tag)
    source = redis_cluster.primary_of(slot)
    target = next(node for node in redis_cluster.primaries() if node is not source)
    names = {node: str(node.ask("CLUSTER", "MYID")) for node in (source, target)}
    old, new, apart = tag + b"old", tag + b"new", tag + b"apart"
    client = await opened(redis_cluster.url)
    assert await client.run([add(old), add(apart)], writes=True) == [1, 1]

    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", names[source])
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", names[target])
    _migrate(source, target, old)
    # One that has been moved, one that never existed (both ASK), one that is still here.
    assert await client.run([add(old), add(new), add(apart)], writes=True) == [2, 1, 2]

    # Half of its keys here, half there (TRYAGAIN): it waits until they are together again.
    waiting = asyncio.create_task(client.run([ScriptCall(BOTH, (old, apart), ())], writes=True))
    await until(lambda: "errorstat_TRYAGAIN" in source.info("errorstats"))
    _migrate(source, target, apart)
    assert await waiting == [3 + 3]

    for node in (target, source, *redis_cluster.primaries()):
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", names[target])
    assert await client.run([add(old), add(new), add(apart)], writes=True) == [4, 2, 4]  # MOVED
    assert target.ask("GET", old.decode()) == "4"
    redis_cluster.wait_until_healthy()


def _migrate(source: RedisServer, target: RedisServer, key: bytes) -> None:
    source.ask("MIGRATE", "127.0.0.1", target.port, key.decode(), 0, 5000)


async def test_a_batch_of_which_one_node_does_not_answer_is_unknown_as_a_whole(
    redis_cluster: RedisCluster, opened: Opens, tag: bytes
) -> None:
    keys = spread(tag)
    client = await opened(f"{redis_cluster.url}?timeout=300ms&wait=0")
    assert await client.run([add(key) for key in keys], writes=True) == [1] * 24
    hung = redis_cluster.primary_of(slot_of(keys[0]))
    hung.stop_signal()
    try:
        with pytest.raises(StoreUnavailable, match=f"{hung.port}.*not known"):
            await client.run([add(key) for key in keys], writes=True)
    finally:
        hung.cont()
    # None was sent twice: the hung node has done its part when it came to itself, the others at once.
    assert await client.run([add(key) for key in keys], writes=True) == [3] * 24


async def test_a_primary_that_steps_down_is_followed_by_its_replica(
    redis_cluster: RedisCluster, opened: Opens, tag: bytes
) -> None:
    client = await opened(redis_cluster.url)
    primary = redis_cluster.primary_of(slot_of(tag))
    [replica] = redis_cluster.replicas_of(primary)
    counted = asyncio.create_task(_count(client, tag, 200))
    await _fail_over(replica)
    acknowledged, unknown = await counted
    [found] = await client.run([read(tag)], writes=False)
    assert isinstance(found, bytes)
    assert acknowledged <= int(found) <= acknowledged + unknown
    assert replica.ask("GET", tag.decode()) == found.decode()
    redis_cluster.wait_until_healthy()


async def _fail_over(replica: RedisServer) -> None:
    """Redis gives a failover by hand five seconds, and then up: on a busy machine it is asked for again."""

    def is_primary() -> bool:
        return replica.info("replication").get("role") == "master"

    while not is_primary():
        replica.ask("CLUSTER", "FAILOVER")
        with suppress(TimeoutError):
            await until(is_primary, seconds=6.0)


async def _count(client: RedisClient, key: bytes, times: int) -> tuple[int, int]:
    """Add one that often; how often that was acknowledged, and how often it is not known."""
    acknowledged = unknown = 0
    for _ in range(times):
        try:
            await client.run([add(key)], writes=True)
            acknowledged += 1
        except StoreUnavailable:
            unknown += 1
    return acknowledged, unknown


async def test_nothing_that_was_acknowledged_is_lost_when_a_primary_is_killed(
    redis_cluster: RedisCluster, opened: Opens, tag: bytes
) -> None:
    client = await opened(redis_cluster.url)
    primary = redis_cluster.primary_of(slot_of(tag))
    others = [key for key in spread(tag) if redis_cluster.primary_of(slot_of(key)) is not primary]
    assert await _count(client, tag, 20) == (20, 0)
    counting = asyncio.create_task(_count(client, tag, 4))
    await asyncio.sleep(0)  # the first is on its way
    redis_cluster.kill(primary)
    try:
        assert await client.run([add(key) for key in others], writes=True) == [1] * len(others)  # they go on
        acknowledged, unknown = await counting
        [found] = await client.run([read(tag)], writes=False)  # by then another one is in charge
        assert isinstance(found, bytes)
        assert 20 + acknowledged <= int(found) <= 20 + acknowledged + unknown
        assert unknown > 0  # the new primary has no replica yet: what it does is unknown, until it has one
    finally:
        redis_cluster.restart(primary)
        redis_cluster.wait_until_healthy()
    assert await _count(client, tag, 20) == (20, 0)
