"""The store's clock follows Redis' own, and is never ahead of it: a timer that is judged by it is never early."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast import Holdfast
from holdfast.lab.cluster.redis import RedisServer
from holdfast.ports.store import Store
from holdfast.stores.redis.pace import RedisPace
from tests.paces import redis_store
from tests.redis.calls import until
from tests.redis.conftest import Starts
from tests.redis.proxy import Proxy, proxy_to

STALL_MS = 1_500
BEHIND_MS = 100  # much less than a stall, and more than a busy machine takes for a look


@pytest.fixture
def server(started: Starts) -> RedisServer:
    return started()


@pytest.fixture
async def proxy(server: RedisServer) -> AsyncIterator[Proxy]:
    async with proxy_to(server.port) as proxy:
        yield proxy


def looking_often(url: str) -> Holdfast:
    """So often that a look at Redis' clock is under way when Redis stalls."""
    return Holdfast(redis_store(url, RedisPace(clock_seconds=0.02)), worker=False)


def redis_ms(server: RedisServer) -> float:
    told = server.ask("TIME")
    assert isinstance(told, list)
    return int(str(told[0])) * 1000 + int(str(told[1])) / 1000


def is_right(store: Store, server: RedisServer) -> bool:
    """Whether it is not ahead, and not behind by much. The order is what counts: time passes between two looks."""
    before_ms = redis_ms(server)
    now_ms = store.now_ms()
    assert now_ms <= redis_ms(server), "a timer would be early"
    return now_ms >= before_ms - BEHIND_MS


async def test_a_stall_between_question_and_answer_moves_it_neither_way(server: RedisServer) -> None:
    async with looking_often(server.url) as hf:
        for _ in range(3):
            server.stop_signal()
            await asyncio.sleep(STALL_MS / 1000)
            server.cont()
            for _ in range(10):
                assert is_right(hf.runtime.store, server)
                await asyncio.sleep(0.02)


async def test_an_answer_that_is_late_moves_it_neither_way(server: RedisServer, proxy: Proxy) -> None:
    async with looking_often(server.url.replace(f":{server.port}", f":{proxy.port}")) as hf:
        proxy.delay(STALL_MS / 1000)
        await asyncio.sleep(STALL_MS / 1000 * 1.5)
        proxy.heal()
        for _ in range(20):
            assert is_right(hf.runtime.store, server)
            await asyncio.sleep(0.02)


async def test_a_store_that_is_opened_during_a_stall_is_right(server: RedisServer) -> None:
    async with looking_often(server.url):
        pass  # it exists
    server.stop_signal()
    asyncio.get_running_loop().call_later(STALL_MS / 1000, server.cont)
    async with looking_often(server.url) as hf:
        assert is_right(hf.runtime.store, server)


@pytest.mark.parametrize("step_ms", [-700, 700])
async def test_it_follows_a_server_whose_clock_is_another_one(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, step_ms: int
) -> None:
    """A failover: the next primary has a clock of its own."""
    async with looking_often(server.url) as hf:
        client = hf.runtime.store._client  # type: ignore[attr-defined]
        right = client._time_at

        async def another(node: object) -> object:
            look = await right(node)
            return look._replace(there_ms=look.there_ms + step_ms)

        monkeypatch.setattr(client, "_time_at", another)

        def has_followed() -> bool:
            return abs(hf.runtime.store.now_ms() - redis_ms(server) - step_ms) < BEHIND_MS

        await until(has_followed)
