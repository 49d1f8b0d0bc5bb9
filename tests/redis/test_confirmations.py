"""Writes are confirmed when replicas have them; what they have not is unknown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from holdfast.adapters.machine import SystemClock
from holdfast.errors import StoreUnavailable
from holdfast.lab.cluster.redis import RedisServer
from holdfast.lab.cluster.redis_cluster import RedisCluster
from holdfast.stores.redis.net import urls
from holdfast.stores.redis.net.client import RedisClient
from holdfast.stores.redis.net.topologies import slot_of
from holdfast.stores.redis.pace import RedisPace
from tests.redis.calls import PATIENT, add, echo, impatient, move, read, unconfirmed, until
from tests.redis.conftest import Opens, Starts


@pytest.fixture
def pace() -> RedisPace:
    return PATIENT


@pytest.mark.parametrize("wait", ["auto", "1"])
async def test_a_write_that_the_replica_does_not_confirm_is_unknown(
    opened: Opens, primary: RedisServer, replica: RedisServer, wait: str
) -> None:
    client = await opened(f"{primary.url}?wait={wait}")
    assert await client.run([add(b"n")], writes=True) == [1]
    assert replica.ask("GET", "n") == "1"
    replica.stop_signal()
    with unconfirmed(client):
        await client.run([add(b"n")], writes=True)
    assert await client.run([read(b"n")], writes=False) == [b"2"]  # it was done all the same
    replica.cont()
    assert await client.run([add(b"n")], writes=True) == [3]


async def test_a_repeat_that_writes_nothing_is_not_confirmed_before_the_first_one_is(
    opened: Opens, primary: RedisServer, replica: RedisServer
) -> None:
    client, other = await opened(f"{primary.url}?wait=1"), await opened(f"{primary.url}?wait=1")
    assert await other.run([echo(b"n", b"warm")], writes=True) == [b"warm"]
    replica.stop_signal()
    with unconfirmed(client):
        await client.run([add(b"n")], writes=True)
    for one in (other, await opened(f"{primary.url}?wait=1")):
        with unconfirmed(one):
            await one.run([read(b"n")], writes=True)
    replica.cont()
    assert await other.run([read(b"n")], writes=True) == [b"1"]


async def test_reads_do_not_wait_for_replicas(opened: Opens, primary: RedisServer, replica: RedisServer) -> None:
    client = await opened(f"{primary.url}?wait=1")
    await client.run([add(b"n")], writes=True)
    replica.stop_signal()
    assert await client.run([read(b"n")], writes=False) == [b"1"]
    replica.cont()


async def test_auto_goes_on_without_a_replica_that_has_left(
    opened: Opens, primary: RedisServer, replica: RedisServer
) -> None:
    client = await opened(primary.url, alone_seconds=0.5)
    assert await client.run([add(b"n")], writes=True) == [1]
    replica.kill()
    with impatient(client):
        assert await client.run([add(b"n")], writes=True) == [2]
        assert await client.run([add(b"n")], writes=True) == [3]


class HeldClock(SystemClock):
    """Pauses end when the test says so; how long they were to be is kept."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.may_end = asyncio.Event()

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await self.may_end.wait()


@pytest.fixture(params=[0.0])
async def mistrusting(
    request: pytest.FixtureRequest, primary: RedisServer, replica: RedisServer, pace: RedisPace
) -> AsyncIterator[tuple[RedisClient, HeldClock]]:
    """A client that knows of the replica, and whose pauses are in the hands of the test.

    It counts replicas as often as the parameter says, and does not wait long for them once it has written.
    """
    assert replica.pid
    clock = HeldClock()
    pace = replace(pace, count_seconds=request.param)
    client = RedisClient(urls.parse(f"{primary.url}?wait=auto"), clock=clock, pace=pace)
    await client.open()
    assert await client.run([add(b"n")], writes=True) == [1]
    with impatient(client):
        yield client, clock
    await client.close()


@pytest.mark.parametrize("mistrusting", [0.0, 3600.0], indirect=True)
async def test_auto_mistrusts_a_primary_that_has_just_lost_its_replica(
    mistrusting: tuple[RedisClient, HeldClock],
    primary: RedisServer,
    replica: RedisServer,
) -> None:
    """It is being replaced, perhaps, and learns that a moment later: here, while we wait. What it took is lost.

    That the replica has gone is found by counting replicas, or by asking for a confirmation that does not come.
    """
    client, clock = mistrusting
    replica.ask("REPLICAOF", "NO", "ONE")
    await until(lambda: primary.info("replication").get("connected_slaves") == "0")
    writing = asyncio.create_task(client.run([add(b"n")], writes=True))
    await until(lambda: bool(clock.pauses) or writing.done())
    assert not writing.done()
    assert clock.pauses == [pytest.approx(PATIENT.alone_seconds, abs=0.5)]
    primary.ask("REPLICAOF", "127.0.0.1", replica.port)
    clock.may_end.set()
    with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
        await writing
    await until(lambda: primary.info("replication").get("master_link_status") == "up")
    assert primary.ask("GET", "n") == "1"  # that was no false alarm


async def test_auto_goes_on_mistrusting_until_the_time_is_over(
    mistrusting: tuple[RedisClient, HeldClock], primary: RedisServer, replica: RedisServer
) -> None:
    """Also after the first look has found it alone: that look does not make it trustworthy."""
    client, clock = mistrusting
    replica.kill()
    await until(lambda: primary.info("replication").get("connected_slaves") == "0")
    first = asyncio.create_task(client.run([add(b"n")], writes=True))
    await until(lambda: bool(clock.pauses) or first.done())
    second = asyncio.create_task(client.run([add(b"n")], writes=True))
    await until(lambda: primary.ask("GET", "n") == "3")
    assert not first.done()
    assert not second.done()
    clock.may_end.set()
    assert await asyncio.gather(first, second) == [[2], [3]]


async def test_a_number_of_replicas_is_strict(opened: Opens, primary: RedisServer) -> None:
    client = await opened(f"{primary.url}?wait=1")
    with unconfirmed(client):
        await client.run([add(b"n")], writes=True)


async def test_auto_waits_for_a_replica_that_has_come(opened: Opens, started: Starts, primary: RedisServer) -> None:
    client = await opened(primary.url, count_seconds=0.0)
    assert await client.run([add(b"n")], writes=True) == [1]
    replica = started(replicaof=f"127.0.0.1 {primary.port}")
    await until(lambda: "state=online" in primary.info("replication").get("slave0", ""))
    assert await client.run([add(b"n")], writes=True) == [2]  # counts the replicas behind it
    replica.stop_signal()
    with unconfirmed(client):
        await client.run([add(b"n")], writes=True)
    replica.cont()


async def test_a_mark_that_was_refused_confirms_nothing(opened: Opens, redis_cluster: RedisCluster, tag: bytes) -> None:
    """Its slot has gone to another node. What WAIT counts then are the replicas that have the mark before it."""
    client = await opened(f"{redis_cluster.url}?name=marks")
    assert await client.run([add(tag)], writes=True) == [1]
    primary = redis_cluster.primary_of(slot_of(tag))
    [replica] = redis_cluster.replicas_of(primary)
    [mark] = marks(primary)
    move(redis_cluster, slot_of(mark))
    replica.stop_signal()
    try:
        with unconfirmed(client):
            await client.run([add(tag)], writes=True)
        with unconfirmed(client):  # by another mark
            await client.run([add(tag)], writes=True)
    finally:
        replica.cont()
        redis_cluster.wait_until_healthy()
    assert await client.run([add(tag)], writes=True) == [4]


def marks(node: RedisServer) -> list[bytes]:
    """The marks that were written to a node."""
    keys = node.ask("KEYS", "{hf:marks:mark-*")
    assert isinstance(keys, list)
    return [str(key).encode() for key in keys]
