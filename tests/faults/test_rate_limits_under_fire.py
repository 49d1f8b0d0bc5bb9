"""Limits over several gateways, as the shipped command serves them: counted exactly, and held while the store is away.

Each gateway is `holdfast serve` in a process of its own. What passed is counted by the clients, outside of it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from holdfast import Holdfast
from holdfast.lab.cluster import servers
from tests.faults.processes import ROOT

pytestmark = pytest.mark.faults

PATIENCE_SECONDS = 60.0
PATH = "/v1/workflows"  # what the gateway knows without the store


class ServedGateway(NamedTuple):
    """A process that serves, and what it writes into its log."""

    process: asyncio.subprocess.Process
    http: httpx2.AsyncClient
    log: Path

    def said(self, phrase: str) -> int:
        return self.log.read_text(encoding="utf-8").count(f'"event":"{phrase}"')

    async def metric(self, name: str) -> float:
        lines = (await self.http.get("/metrics")).text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name}{{"))


Serving = Callable[..., Awaitable[ServedGateway]]


@pytest.fixture
async def serving(tmp_path: Path) -> AsyncIterator[Serving]:
    """`await serving(url, HOLDFAST_LIMITS_API_KEY="10/1h")`: one more gateway on this store."""
    gateways: list[ServedGateway] = []

    async def serve(url: str, *options: str, **environment: str) -> ServedGateway:
        log = tmp_path / f"gateway-{len(gateways)}.log"
        # A machine that is busy is no store that is away.
        variables = {
            "HOLDFAST_LIMITS_PATIENCE": "30s",
            "HOLDFAST_LOG": "json",
            "HOLDFAST_LOG_LEVEL": "info",
            **environment,
        }
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "holdfast", "serve", "--url", url, "--port", "0", "--json"),
                *(options or ("--open",)),
                cwd=ROOT,
                env=os.environ | variables,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
            )
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            line = b""
            while b'"url"' not in line:
                line = await process.stdout.readline()
                assert line, log.read_text(encoding="utf-8")
        address = line.decode().split('"url":')[1].split('"')[1]
        http = httpx2.AsyncClient(base_url=address, timeout=PATIENCE_SECONDS, trust_env=False)
        gateways.append(gateway := ServedGateway(process, http, log))
        return gateway

    yield serve
    for gateway in gateways:
        await gateway.http.aclose()
        if gateway.process.returncode is None:
            gateway.process.send_signal(signal.SIGKILL)
        await gateway.process.wait()
        gateway.process._transport.close()  # pyright: ignore[reportAttributeAccessIssue] - its pipes


async def statuses(gateway: ServedGateway, count: int) -> Counter[int]:
    replies = await asyncio.gather(*(gateway.http.get(PATH) for _ in range(count)))
    return Counter(reply.status_code for reply in replies)


async def fifteen_each(gateways: list[ServedGateway]) -> Counter[int]:
    return sum(await asyncio.gather(*(statuses(each, 15) for each in gateways)), Counter())


@pytest.fixture(params=["sqlite", "redis", "cluster"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'limits.db'}"
    base = request.getfixturevalue({"redis": "redis_server", "cluster": "redis_cluster"}[request.param]).url
    return f"{base}?name=l-{os.getpid()}-{abs(hash(tmp_path)) % 10**9}&shards=4"


async def test_of_fifteen_and_fifteen_requests_at_limit_ten_ten_pass(store_url: str, serving: Serving) -> None:
    gateways = [await serving(store_url, HOLDFAST_LIMITS_API_KEY="10/1h") for _ in range(2)]
    assert await fifteen_each(gateways) == {200: 10, 429: 20}
    refused = sum([await each.metric("holdfast_limit_checks_total") for each in gateways])
    assert refused == 30


async def test_a_gateway_whose_clock_is_wrong_by_an_hour_lets_no_more_pass(
    redis_server: servers.RedisServer, serving: Serving, tmp_path: Path
) -> None:
    """Its own wall clock: a library that is loaded before all others moves it, where there is one."""
    url = f"{redis_server.url}?name=c-{os.getpid()}-{abs(hash(tmp_path)) % 10**9}&shards=4"
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    (wrong / "sitecustomize.py").write_text(
        "import time\ntrue, true_ns = time.time, time.time_ns\n"
        "time.time = lambda: true() + 3600\ntime.time_ns = lambda: true_ns() + 3600 * 10**9\n"
    )
    right = await serving(url, HOLDFAST_LIMITS_API_KEY="10/1h")
    ahead = await serving(url, HOLDFAST_LIMITS_API_KEY="10/1h", PYTHONPATH=str(wrong))
    assert await fifteen_each([right, ahead]) == {200: 10, 429: 20}


async def test_a_store_that_is_killed_in_a_burst_is_limited_without(tmp_path: Path, serving: Serving) -> None:
    """First to the full limit by the store; then to each one's share, which is said; then by the store again."""
    count, burst = 20, 20
    server = servers.start_redis(tmp_path / "redis")
    try:
        url = f"{server.url}?name=away&shards=4"
        limits = {"HOLDFAST_LIMITS_API_KEY": f"{count}/1s burst {burst}"}
        gateways = [await serving(url, HOLDFAST_LIMITS_PATIENCE="100ms", **limits) for _ in range(2)]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while [(await each.http.get("/v1/limits")).json().get("replicas") for each in gateways] != [2, 2]:
                await asyncio.sleep(0.2)
        passed_at: list[float] = []
        stop = asyncio.Event()

        async def ask(gateway: ServedGateway) -> None:
            while not stop.is_set():
                reply = await gateway.http.get(PATH)
                if reply.status_code != 429:
                    passed_at.append(time.monotonic())
                await asyncio.sleep(0.005)

        asking = [asyncio.create_task(ask(gateway)) for gateway in gateways for _ in range(4)]
        await asyncio.sleep(0.5)
        server.kill()
        killed_at = time.monotonic()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while sum([await each.metric("holdfast_limit_fallback") for each in gateways]) < 2:
                await asyncio.sleep(0.05)
            while time.monotonic() < killed_at + 4:
                await asyncio.sleep(0.05)
        stop.set()
        await asyncio.gather(*asking)
        late = [at for at in passed_at if at >= killed_at + 1]
        seconds = max(passed_at) - (killed_at + 1)
        assert late, "a limiter that is away must not stop everything"
        assert len(late) <= burst + count * seconds
        assert [each.said("limits counted by each replica") for each in gateways] == [1, 1]
    finally:
        server.kill()


async def test_two_keys_of_one_tenant_share_its_limit_over_two_gateways(store_url: str, serving: Serving) -> None:
    async with Holdfast(store_url, worker=False) as hf:
        tokens = [(await hf.api_keys.create(name, namespace="default", scope="read"))[0] for name in ("a", "b")]
    limits = {"HOLDFAST_LIMITS_API_KEY": "8/1h", "HOLDFAST_LIMITS_TENANT": "10/1h"}
    gateways = [await serving(store_url, "--require-keys", **limits) for _ in range(2)]
    for gateway, token in zip(gateways, tokens, strict=True):
        gateway.http.headers["Authorization"] = f"Bearer {token}"
    assert await fifteen_each(gateways) == {200: 10, 429: 20}
