"""Clients that are closed at the end of their test, and servers that a test may spoil."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.adapters.machine import SystemClock
from holdfast.lab.cluster.redis import RedisServer
from holdfast.lab.cluster.servers import start_redis
from holdfast.stores.redis.net import urls
from holdfast.stores.redis.net.client import RedisClient
from holdfast.stores.redis.pace import RedisPace
from tests.redis.calls import until

Opens = Callable[..., Awaitable[RedisClient]]
Starts = Callable[..., RedisServer]

_numbers = itertools.count(1)


@pytest.fixture
def pace() -> RedisPace:
    """The pace of the clients that a test opens."""
    return RedisPace()


@pytest.fixture
async def opened(pace: RedisPace) -> AsyncIterator[Opens]:
    """Opens a client for a URL. What else is given differs from the pace of the others."""
    async with AsyncExitStack() as stack:

        async def open_one(url: str, **numbers: float) -> RedisClient:
            client = RedisClient(urls.parse(url), clock=SystemClock(), pace=replace(pace, **numbers))
            await client.open()
            stack.push_async_callback(client.close)
            return client

        yield open_one


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Starts]:
    """Starts a Redis of the test's own. It need not be durable: it does not outlive the test."""
    servers: list[RedisServer] = []

    def start_one(**settings: str | int) -> RedisServer:
        servers.append(start_redis(tmp_path / str(next(_numbers)), appendfsync="no", **settings))
        return servers[-1]

    yield start_one
    for server in servers:
        server.kill()


@pytest.fixture
async def primary(started: Starts) -> RedisServer:
    return started()


@pytest.fixture
async def replica(started: Starts, primary: RedisServer) -> RedisServer:
    server = started(replicaof=f"127.0.0.1 {primary.port}")
    await until(lambda: server.info("replication").get("master_link_status") == "up")
    await until(lambda: "state=online" in primary.info("replication").get("slave0", ""))
    return server


@pytest.fixture
def tag() -> bytes:
    """A hash tag that no other test uses: servers are shared."""
    return b"{hf:test-%d:00}" % next(_numbers)
