"""Breakers are seen, opened and closed over HTTP, and limits are seen."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Breaker, Client, Limit, Pack
from holdfast.errors import UnknownBreaker
from tests.gateway.conftest import Gateway, Serve


class Shop:
    """An effect that a breaker and a limit stand before."""

    def __init__(self) -> None:
        self.pack = Pack("shop")

        @self.pack.effect(breaker=Breaker("stripe"), limit=Limit("slots", width=3))
        async def charge(order: str) -> str:
            return f"paid {order}"

        @self.pack.workflow
        async def buy(order: str) -> str:
            return await charge(order)

        self.buy = buy


async def served(serve: Serve, *, keys: bool = False) -> tuple[Gateway, Shop]:
    shop = Shop()
    gateway = await serve(shop.pack, keys=keys)
    assert await (await gateway.hf.start(shop.buy("first"))).run.result(30) == "paid first"
    return gateway, shop


async def test_a_client_opens_and_closes_a_breaker(serve: Serve) -> None:
    gateway, shop = await served(serve)
    async with Client(gateway.url) as client:
        assert [(each.name, each.state) for each in await client.breakers()] == [("stripe", "closed")]
        opened = await client.open_breaker("stripe", by="eve", lasts="10m")
        assert opened == await gateway.hf.breaker("stripe") == await client.breaker("stripe")
        assert (opened.state, opened.by, opened.did) == ("open", "eve", "opened")
        assert opened.until is not None
        assert opened.since is not None
        assert (opened.until - opened.since).total_seconds() == 600
        run = (await gateway.hf.start(shop.buy("o-1"))).run
        while not (waits := (await client.get(run.id)).waiting_on) or waits[0].kind != "breaker":
            await asyncio.sleep(0.01)
        assert str(waits[0]).startswith("breaker 'stripe', which is open until ")
        assert (await client.close_breaker("stripe")).state == "closed"
        assert await run.result(30) == "paid o-1"
        with pytest.raises(UnknownBreaker):
            await client.open_breaker("strpie")
        with pytest.raises(UnknownBreaker):
            await client.breaker("strpie")


async def test_a_client_sees_limits(serve: Serve) -> None:
    gateway, _ = await served(serve)
    async with Client(gateway.url) as client:
        seen, here = await client.effect_limits(), await gateway.hf.effect_limits()
        assert (
            [(each.name, each.width) for each in seen] == [("slots", 3)] == [(each.name, each.width) for each in here]
        )


async def test_a_change_needs_a_key_that_may_write_and_is_recorded_with_its_name(serve: Serve) -> None:
    gateway, _ = await served(serve, keys=True)
    reader = await gateway.client(scope="read")
    assert (await reader.get("/v1/breakers")).json()["breakers"][0]["state"] == "closed"
    assert (await reader.get("/v1/effect-limits")).json()["limits"][0]["name"] == "slots"
    assert (await reader.post("/v1/breakers/stripe/open", json={})).status_code == 403
    token, _ = await gateway.hf.api_keys.create("night desk", namespace=gateway.hf.namespace, scope="write")
    async with Client(gateway.url, api_key=token) as client:
        assert (await client.open_breaker("stripe", by="eve")).by == "night desk (eve)"
    assert (await reader.get("/v1/breakers/strpie")).status_code == 404


async def test_a_blocking_client_has_the_same_verbs(serve: Serve) -> None:
    gateway, _ = await served(serve)

    def use() -> list[str]:
        with Client.blocking(gateway.url) as client:
            states = [client.open_breaker("stripe", by="ada").state, client.breaker("stripe").state]
            states += [client.close_breaker("stripe").state, client.breakers()[0].did]
            return [*states, client.effect_limits()[0].name]

    assert await asyncio.to_thread(use) == ["open", "open", "closed", "closed", "slots"]
