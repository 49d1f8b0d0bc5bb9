"""What a gateway limits: exactly, in both directions, and nothing where nothing is said."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast import Holdfast, Rate, RetryAfter, UsageError
from holdfast.blocking import Blocking
from holdfast.config import RateLimitSettings
from holdfast.errors import LimitExceeded
from holdfast.events import LimitChecked, LimitsCountedAgain, LimitsFellBack
from holdfast.gateway.endpoints import GatewaySettings
from holdfast.gateway.server import HttpServer
from holdfast.gateway_client import Client
from holdfast.server import application
from tests.gateway.conftest import Gateway, Serve
from tests.gateway.works import Works
from tests.integration.conftest import Home

SLOW = "1h"  # so long that nothing comes back while a test runs


def settings(*, keys: bool = True, **limits: Any) -> GatewaySettings:
    limits = {"patience": "30s"} | limits  # a machine that is busy is no store that is away
    return GatewaySettings(require_keys=keys, rate_limits=RateLimitSettings(**limits))


async def statuses(client: httpx2.AsyncClient, count: int, path: str = "/v1/backlog", **options: Any) -> Counter[int]:
    replies = await asyncio.gather(*(client.get(path, **options) for _ in range(count)))
    return Counter(reply.status_code for reply in replies)


async def test_exactly_as_many_pass_as_the_limit_says(serve: Serve, home: Home) -> None:
    limited = settings(api_key=Rate(10, per=SLOW))
    gateways = [await serve(on=home, keys=True, settings=limited) for _ in range(2)]
    token, _ = await gateways[0].hf.api_keys.create("both", namespace="default", scope="read")
    clients = [await gateway.client(token=token) for gateway in gateways]
    counts = await asyncio.gather(*(statuses(client, 15) for client in clients))
    assert counts[0] + counts[1] == {200: 10, 429: 20}


async def test_a_refusal_says_when_to_come_again_and_a_success_what_is_left(serve: Serve) -> None:
    gateway = await serve(
        keys=True, settings=settings(api_key=Rate(100, per="100m", burst=2), tenant=Rate(5, per="1h"))
    )
    client = await gateway.client()
    first = await client.get("/v1/backlog")
    assert first.status_code == 200
    assert first.headers["ratelimit-policy"] == '"key";q=2;w=120, "tenant";q=5;w=3600'
    assert first.headers["ratelimit"] == '"key";r=1;t=60, "tenant";r=4;t=720'
    assert (await client.get("/v1/backlog")).status_code == 200
    refused = await client.get("/v1/backlog")
    assert refused.status_code == 429
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.headers["retry-after"] == "60"
    assert refused.headers["ratelimit"] == '"key";r=0;t=120, "tenant";r=3;t=1440'
    assert refused.json()["code"] == "limit_exceeded"
    assert "'api_key' of 100/100m burst 2" in refused.json()["detail"]


async def test_two_keys_of_one_tenant_cannot_exceed_the_tenant(serve: Serve) -> None:
    gateway = await serve(keys=True, settings=settings(api_key=Rate(8, per=SLOW), tenant=Rate(10, per=SLOW)))
    one, two = await gateway.client(), await gateway.client()
    other = await gateway.client(namespace="other")
    assert await statuses(one, 9) == {200: 8, 429: 1}
    assert await statuses(two, 9) == {200: 2, 429: 7}
    assert await statuses(other, 9) == {200: 8, 429: 1}


async def test_what_the_tenant_refuses_costs_the_key_nothing(serve: Serve) -> None:
    gateway = await serve(keys=True, settings=settings(api_key=Rate(4, per=SLOW), tenant=Rate(2, per=SLOW)))
    client = await gateway.client()
    await statuses(client, 9)
    assert (await client.get("/v1/backlog")).headers["ratelimit"].startswith('"key";r=2;')


async def test_starts_have_a_limit_of_their_own(serve: Serve, works: Works) -> None:
    gateway = await serve(works.pack, keys=True, settings=settings(start=Rate(3, per=SLOW), tenant=Rate(50, per=SLOW)))
    client = await gateway.client()
    path = "/v1/workflows/plain/runs"
    started = Counter([(await client.post(path, json={"input": {"name": f"{n}"}})).status_code for n in range(5)])
    assert started == {201: 3, 429: 2}
    listed = await client.get("/v1/runs")
    assert (listed.status_code, len(listed.json()["runs"])) == (200, 3)
    assert '"start"' not in listed.headers["ratelimit"]


async def test_what_watches_over_the_process_is_not_limited(serve: Serve) -> None:
    one = Rate(1, per=SLOW)
    gateway = await serve(keys=True, settings=settings(api_key=one, tenant=one, address=one))
    client = await gateway.client()
    for path in ("/livez", "/readyz", "/metrics"):
        assert await statuses(client, 5, path) == {200: 5}


async def test_without_limits_nothing_is_counted_and_nothing_is_said(serve: Serve) -> None:
    gateway = await serve(keys=True)
    heard: list[Any] = []
    gateway.hf.listen(heard.append)
    reply = await (await gateway.client()).get("/v1/backlog")
    assert not [name for name in reply.headers if name.startswith("ratelimit")]
    assert gateway.context.limits is None
    assert not [event for event in heard if isinstance(event, LimitChecked)]


# -- before authentication


async def test_an_address_is_limited_before_its_key_is_looked_at(serve: Serve) -> None:
    gateway = await serve(keys=True, settings=settings(address=Rate(3, per=SLOW)))
    stranger = await gateway.client(token="hf_wrong")
    assert await statuses(stranger, 5) == {401: 3, 429: 2}
    refused = await stranger.get("/v1/backlog")
    assert refused.headers["ratelimit-policy"] == '"address";q=3;w=3600'
    assert refused.headers["retry-after"] == "1200"


@pytest.mark.parametrize(
    ("proxies", "said", "same"),
    [
        ((), ["203.0.113.1", "203.0.113.2"], True),  # not believed: all come from here
        (("127.0.0.0/8",), ["203.0.113.1", "203.0.113.2"], False),
        (("127.0.0.0/8",), ["9.9.9.9, 203.0.113.1", "8.8.8.8, 203.0.113.1"], True),  # what the client wrote itself
        (("127.0.0.0/8", "10.0.0.0/8"), ["203.0.113.1, 10.0.0.7", "203.0.113.2, 10.0.0.7"], False),
        (("127.0.0.0/8",), ["2001:db8::1", "2001:db8::ffff:2"], True),  # one customer
        (("127.0.0.0/8",), ["2001:db8::1", "2001:db8:0:1::1"], False),
        (("127.0.0.0/8",), ["::ffff:203.0.113.1", "203.0.113.1"], True),
        (("127.0.0.0/8",), ["no address", "nor this"], True),
    ],
)
async def test_a_forwarded_address_counts_where_the_proxy_is_known(
    serve: Serve, proxies: tuple[str, ...], said: list[str], same: bool
) -> None:
    gateway = await serve(settings=settings(keys=False, address=Rate(1, per=SLOW), proxies=proxies))
    replies = [await gateway.http.get("/v1/backlog", headers={"X-Forwarded-For": each}) for each in said]
    assert [reply.status_code for reply in replies] == [200, 429 if same else 200]


# -- what is left


async def test_the_limits_can_be_looked_at(serve: Serve) -> None:
    gateway = await serve(
        keys=True, settings=settings(api_key=Rate(5, per=SLOW), address=Rate(100, per="1s", burst=200))
    )
    shown = (await (await gateway.client()).get("/v1/limits")).json()
    assert shown == {
        "limits": [
            {"limit": "address", "rate": "100/1s burst 200", "remaining": None, "reset_after": None},
            {"limit": "api_key", "rate": "5/1h", "remaining": 4, "reset_after": pytest.approx(720, abs=1)},
        ],
        "by_itself": False,
        "replicas": 1,
    }


async def test_the_dashboard_shows_what_is_limited_and_what_was_refused(serve: Serve) -> None:
    gateway = await serve(settings=settings(keys=False, tenant=Rate(2, per=SLOW), start=Rate(9, per=SLOW)))
    url = await (pages := HttpServer(gateway.context.wait_limit)).start(application(gateway.context), "127.0.0.1", 0)
    try:
        async with httpx2.AsyncClient(base_url=url, trust_env=False) as browser:
            await browser.get("/limits")  # it counts from the first page on
            assert await statuses(browser, 5) == {200: 2, 429: 3}
            page = (await browser.get("/limits")).text
            rows = dict(re.findall(r'<tr id="l-(\w+)">(.*?)</tr>', page, re.DOTALL))
            assert rows.keys() == {"tenant", "start"}
            assert re.findall(r">([^<>]+)</td>", rows["tenant"]) == [
                "tenant",
                "2/1h",
                "the namespace",
                "0",
                "2",
                "3",
                "0.1",
            ]
            assert "by itself" not in page
            limits = gateway.hf.runtime.limits
            limits.is_away, limits._until_steady_ms = True, math.inf
            assert "does not count" in (await browser.get("/limits")).text
    finally:
        await pages.stop()


# -- limits of one's own


async def test_a_limit_of_ones_own_is_one_for_all_who_ask(serve: Serve, home: Home) -> None:
    gateway = await serve(on=home, keys=True)
    token, _ = await gateway.hf.api_keys.create("c", namespace="default", scope="write")
    rate = Rate(3, per="1h")
    async with Client(gateway.url, api_key=token) as client:
        verdicts = [await client.limit("mail:ada", rate), await gateway.hf.limit("mail:ada", rate, cost=2)]
        assert [each.allowed for each in verdicts] == [True, True]
        refused = await client.limit("mail:ada", rate)
        assert (refused.allowed, refused.remaining, await gateway.hf.limit("mail:eve", rate)) != (True, 0, refused)
        assert not refused.allowed
        assert 1_190 < RetryAfter(refused.retry_after).seconds <= 1_200
        assert (await client.limit("mail:ada", rate, cost=0)).remaining == 0


async def test_a_limit_of_ones_own_without_async(tmp_path: Path) -> None:
    def ask() -> list[bool]:
        with Holdfast.blocking(f"sqlite:///{tmp_path / 'b.db'}", worker=False) as hf:
            assert isinstance(hf, Blocking)
            return [hf.limit("mail", Rate(1, per="1h")).allowed for _ in range(2)]

    assert await asyncio.to_thread(ask) == [True, False]


@pytest.mark.parametrize(
    ("name", "rate", "cost"),
    [
        ("", Rate(1, per="1s"), 1),
        ("x", Rate(1, per="1s"), 2),
        ("x", Rate(1, per="1s", by="{a}"), 1),
        ("x", Rate(1, per="2000d"), 1),
    ],
)
async def test_what_is_no_limit_is_refused_here_and_over_http(serve: Serve, name: str, rate: Rate, cost: int) -> None:
    gateway = await serve()
    async with Client(gateway.url) as client:
        for caller in (gateway.hf, client):
            with pytest.raises(UsageError):
                await caller.limit(name, rate, cost=cost)


async def test_a_client_waits_as_long_as_a_limit_says_if_that_is_not_long(serve: Serve) -> None:
    gateway = await serve(keys=True, settings=settings(api_key=Rate(10, per="1s", burst=1)))
    token, _ = await gateway.hf.api_keys.create("c", namespace="default", scope="read")
    async with Client(gateway.url, api_key=token) as client:
        await client.backlog()
        await client.backlog()  # refused at first, and sent again
    long = await serve(keys=True, settings=settings(api_key=Rate(1, per="1h")))
    token, _ = await long.hf.api_keys.create("c", namespace="default", scope="read")
    async with Client(long.url, api_key=token) as client:
        await client.backlog()
        with pytest.raises(LimitExceeded) as caught:
            await client.backlog()
    assert caught.value.retry_after == 3_600


# -- the store does not count


class Away:
    """A limiter that cannot be reached, or never replies."""

    def __init__(self, *, hangs: bool) -> None:
        self.hangs = hangs
        self.asked = 0

    async def spend(self, namespace: str, costs: Any) -> Any:
        from holdfast.errors import StoreUnavailable

        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        raise StoreUnavailable("it is away")


@pytest.mark.parametrize("hangs", [True, False])
async def test_while_the_store_does_not_count_each_replica_lets_its_share_pass(serve: Serve, hangs: bool) -> None:
    gateway = await serve(keys=True, settings=settings(api_key=Rate(10, per=SLOW), patience="200ms"))
    heard: list[Any] = []
    gateway.hf.listen(heard.append)
    client = await gateway.client()
    store, limits = gateway.hf.runtime.store, gateway.hf.runtime.limits
    assert (await client.get("/v1/backlog")).headers["ratelimit"].startswith('"key";r=9;')
    limits.replicas = 2
    counting = store._limiter
    store._limiter = away = Away(hangs=hangs)
    assert await statuses(client, 20) == {200: 5, 429: 15}
    assert limits.is_away
    assert away.asked <= 20
    [said] = [event for event in heard if isinstance(event, LimitsFellBack)]  # and not once for each request
    assert said.replicas == 2
    asked = away.asked
    assert await statuses(client, 5) == {429: 5}
    assert away.asked == asked, "the store is left alone for a second"
    metrics = (await client.get("/metrics")).text
    assert "\nholdfast_limit_fallback{" in metrics
    assert next(line for line in metrics.splitlines() if line.startswith("holdfast_limit_fallback{")).endswith(" 1.0")
    assert "holdfast_limit_checks_total{" in metrics

    store._limiter = counting
    limits._until_steady_ms = 0.0
    assert (await client.get("/v1/backlog")).status_code == 200
    assert not limits.is_away
    assert any(isinstance(event, LimitsCountedAgain) for event in heard)
    assert (await client.get("/v1/backlog")).headers["ratelimit"].startswith('"key";r=7;')


async def test_keys_are_not_believed_because_limits_cannot_be_counted(serve: Serve) -> None:
    gateway = await serve(keys=True, settings=settings(api_key=Rate(10, per=SLOW)))
    gateway.hf.runtime.store._limiter = Away(hangs=False)
    stranger = await gateway.client(token="hf_wrong")
    assert await statuses(stranger, 3) == {401: 3}


async def test_replicas_that_limit_are_counted(serve: Serve, sqlite_home: Home) -> None:
    limited = settings(api_key=Rate(10, per=SLOW))
    gateways: list[Gateway] = [await serve(on=sqlite_home, keys=True, settings=limited) for _ in range(3)]
    await serve(on=sqlite_home, keys=True)  # it limits nothing
    store = gateways[0].hf.runtime.store
    async with asyncio.timeout(20):
        while len(await store.documents("", "limiter")) < 3:
            await asyncio.sleep(0.01)
    assert gateways[0].hf.runtime.limits.replicas in {1, 2, 3}
    counted = gateways[2].hf.runtime._replica._limiters
    await counted.tick()
    assert gateways[2].hf.runtime.limits.replicas == 3
    await counted.withdraw()
    assert len(await store.documents("", "limiter")) == 2
