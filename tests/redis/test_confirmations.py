"""Writes are answered when replicas have them; what they have not is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.local.redis import RedisServer
from holdfast.stores.redis import confirmations
from tests.redis.calls import add, echo, read, until
from tests.redis.conftest import Opens, Starts


@contextmanager
def unconfirmed() -> Iterator[None]:
    """Inside, a write is expected to be unknown, and to say how many replicas have it. It need not take long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(confirmations, "CONFIRM_MS", 200)
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas confirmed"):
            yield


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that is well confirms in time, however busy the machine is."""
    monkeypatch.setattr(confirmations, "CONFIRM_MS", 10_000)


@pytest.fixture
async def primary(started: Starts) -> RedisServer:
    return started()


@pytest.fixture
async def replica(started: Starts, primary: RedisServer) -> RedisServer:
    server = started(replicaof=f"127.0.0.1 {primary.port}")
    await until(lambda: server.info("replication").get("master_link_status") == "up")
    await until(lambda: "state=online" in primary.info("replication").get("slave0", ""))
    return server


@pytest.mark.parametrize("wait", ["auto", "1"])
async def test_a_write_that_the_replica_does_not_confirm_is_unknown(
    opened: Opens, primary: RedisServer, replica: RedisServer, wait: str
) -> None:
    client = await opened(f"{primary.url}?wait={wait}")
    assert await client.run([add(b"n")], writes=True) == [1]
    assert replica.ask("GET", "n") == "1"
    replica.stop_signal()
    with unconfirmed():
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
    with unconfirmed():
        await client.run([add(b"n")], writes=True)
    for one in (other, await opened(f"{primary.url}?wait=1")):
        with unconfirmed():
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
    opened: Opens, primary: RedisServer, replica: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirmations, "ALONE_SECONDS", 0.5)
    client = await opened(primary.url)
    assert await client.run([add(b"n")], writes=True) == [1]
    replica.kill()
    assert await client.run([add(b"n")], writes=True) == [2]
    assert await client.run([add(b"n")], writes=True) == [3]


async def test_a_number_of_replicas_is_strict(opened: Opens, primary: RedisServer) -> None:
    client = await opened(f"{primary.url}?wait=1")
    with unconfirmed():
        await client.run([add(b"n")], writes=True)


async def test_auto_waits_for_a_replica_that_has_come(
    opened: Opens, started: Starts, primary: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirmations, "LOOK_SECONDS", 0.0)
    client = await opened(primary.url)
    assert await client.run([add(b"n")], writes=True) == [1]
    replica = started(replicaof=f"127.0.0.1 {primary.port}")
    await until(lambda: "state=online" in primary.info("replication").get("slave0", ""))
    assert await client.run([add(b"n")], writes=True) == [2]  # counts the replicas behind it
    replica.stop_signal()
    with unconfirmed():
        await client.run([add(b"n")], writes=True)
    replica.cont()
