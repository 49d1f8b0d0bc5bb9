"""Redis or NATS falls, stops, moves or fails over under load: nothing is lost, nothing done twice (S2, S3, S6)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Pack, Run, sleep
from holdfast.errors import StoreUnavailable, TimedOut
from holdfast.lab.cluster.processes import wait_until
from holdfast.lab.cluster.redis import RedisServer, start_redis
from holdfast.lab.cluster.redis_cluster import RedisCluster
from holdfast.lab.cluster.servers import start_nats
from holdfast.stores.redis import RedisStore
from holdfast.stores.redis.net.topologies import slot_of
from tests.faults.cases import RedisCase
from tests.faults.conftest import NewRedisCase
from tests.faults.crash_at_round_trip import watch
from tests.faults.processes import patiently, until
from tests.faults.workflows_checkout import STEPS, checkout, expected, notice
from tests.faults.workflows_of_pitfalls import RUN, fall, pile
from tests.paces import PUSHED_ONLY
from tests.redis.calls import move
from tests.redis.proxy import proxy_to

pytestmark = pytest.mark.faults

LEASE = "1s"
ORDERS = [f"o{number}" for number in range(8)]


async def ordered(hf: Holdfast, order: str) -> Any:
    run, created = await patiently(lambda: hf.start(checkout(order), request_id=order))
    assert created
    try:
        result = await patiently(lambda: run.result("45s"))
    except TimedOut as error:
        raise AssertionError(f"{error}\n{await run.explain()}") from error
    told: Run[str] = await patiently(lambda: hf.find(notice, f"notice:{order}"))
    assert await patiently(lambda: told.result("45s")) == f"{order} told"
    return result


async def bears(case: RedisCase, trouble: Callable[[], None]) -> None:
    """Two workers have something to do; there is trouble in the middle of it; everything ends as it should."""
    workers = [await case.fork(stay=True, lease=LEASE) for _ in range(2)]
    for worker in workers:
        await worker.says("ready")
    async with case.client() as hf:
        ordering = asyncio.gather(*(ordered(hf, order) for order in ORDERS))
        await until(lambda: len(case.ledger.calls()) >= len(ORDERS), "some work", *workers)
        await asyncio.to_thread(trouble)
        assert await ordering == list(map(expected, ORDERS))
        runs = await case.check_runs(hf)
        assert len({run.key for run in runs}) == len(runs) == 3 * len(ORDERS)
    for worker in workers:
        await worker.leaves()
    case.ledger.check(lost=case.processes.overtaken())
    for order in ORDERS:
        assert {line["step"] for line in case.ledger.calls() if line["order"] == order} == STEPS


# -- a single Redis


async def test_redis_is_killed_and_started_again(case_on: NewRedisCase, tmp_path: Path) -> None:
    """With appendfsync always, what it has confirmed is there."""
    server = start_redis(tmp_path / "redis")

    def trouble() -> None:
        server.kill()
        server.start()

    try:
        await bears(case_on(server), trouble)
    finally:
        server.kill()


async def test_redis_hangs_longer_than_the_leases_last(case_on: NewRedisCase, redis_server: RedisServer) -> None:
    def trouble() -> None:
        redis_server.stop_signal()
        try:
            time.sleep(1.5)
        finally:
            redis_server.cont()

    await bears(case_on(redis_server), trouble)


# -- a cluster


@pytest.mark.parametrize("wait", [None, "auto"])
async def test_a_primary_is_killed_and_its_replica_takes_over(
    case_on: NewRedisCase, redis_cluster: RedisCluster, wait: str | None
) -> None:
    """With wait=auto work goes on as soon as it has; else as soon as it has a replica in turn."""
    case = case_on(redis_cluster, wait=wait)
    slot = slot_of(case.shards.index(0))
    primary = redis_cluster.primary_of(slot)

    def trouble() -> None:
        redis_cluster.kill(primary)
        if wait is None:
            wait_until(lambda: redis_cluster.primary_of(slot) is not primary, seconds=30, what=lambda: "no failover")
            redis_cluster.restart(primary)

    try:
        await bears(case, trouble)
    finally:
        if primary.state == "dead":
            redis_cluster.restart(primary)
        redis_cluster.wait_until_healthy()
    assert redis_cluster.primary_of(slot) is not primary


async def test_the_slots_of_shards_move_to_another_node(case_on: NewRedisCase, redis_cluster: RedisCluster) -> None:
    case = case_on(redis_cluster)
    slots = [slot_of(case.shards.index(shard)) for shard in range(4)]

    def trouble() -> None:
        for slot in slots:
            move(redis_cluster, slot)

    await bears(case, trouble)
    redis_cluster.wait_until_healthy()


# -- NATS: a hint, nothing more


async def test_nats_dies_and_everything_goes_on(
    case_on: NewRedisCase, redis_server: RedisServer, tmp_path: Path
) -> None:
    """A caller that is told nothing finds it when it looks by itself."""
    nats = start_nats(tmp_path / "nats")
    try:
        await bears(case_on(redis_server, bus=nats.url), nats.kill)
    finally:
        nats.kill()


async def test_nats_is_not_there_from_the_beginning_to_the_end(
    case_on: NewRedisCase, redis_server: RedisServer, tmp_path: Path
) -> None:
    nats = start_nats(tmp_path / "nats")
    nats.kill()
    await bears(case_on(redis_server, bus=nats.url), lambda: None)


# -- clocks


@pytest.mark.parametrize(("client_ms", "worker_ms"), [(40, 0), (0, -40), (40, 40)])
async def test_clocks_that_differ_hold_up_nothing(
    case_on: NewRedisCase, redis_server: RedisServer, client_ms: int, worker_ms: int
) -> None:
    """Processes reckon with Redis' time, each a bit beside it; and each node has a clock of its own. No safety poll."""
    pack = Pack("clocks")

    @pack.workflow
    async def tick(number: int) -> int:
        await sleep("5ms")
        return number

    url = case_on(redis_server).url
    paced: dict[str, Any] = {"packs": [pack], "_pace": PUSHED_ONLY}
    async with Holdfast(url, **paced) as worker, Holdfast(url, worker=False, **paced) as hf:
        for each, beside_ms in ((hf, client_ms), (worker, worker_ms)):
            assert isinstance(each.runtime.store, RedisStore)
            each.runtime.store._server_clock.ahead_ms += beside_ms
        for number in range(3):
            run, _ = await hf.start(tick(number))
            assert await run.result("30s") == number


# -- the way to Redis


async def test_whatever_reply_is_lost_a_repetition_does_nothing_a_second_time(
    case_on: NewRedisCase, redis_server: RedisServer
) -> None:
    """K3, and the same for signals. The request arrives, the connection is cut in place of the reply.

    Each verb is repeated with one more of its round trips unanswered, until it has got through.
    """
    case = case_on(redis_server)
    worker = await case.fork(pack=RUN, stay=True)
    await worker.says("ready")
    async with proxy_to(redis_server.port) as proxy:
        url = case.url.replace(f":{redis_server.port}", f":{proxy.port}")
        async with Holdfast(url, packs=[fall], worker=False) as hf:
            made = losing = lost = 0

            def about_to(_: int) -> None:
                nonlocal made
                made += 1
                if made == losing:
                    proxy.lose_next_reply()

            async def repeated(verb: Callable[[], Any]) -> Any:
                nonlocal made, losing, lost
                for losing in range(1, 10):
                    made = 0
                    try:
                        answer = await verb()
                    except StoreUnavailable:
                        lost += 1
                        continue
                    if made < losing:
                        return answer
                raise AssertionError("it never got through")

            watch(hf.runtime.store, about_to)
            started = await repeated(lambda: hf.start(pile("a", 4), request_id="request"))
            assert started.created
            while await hf.runtime.store.hook_of_token("default", "heap-a") is None:
                await asyncio.sleep(0.01)
            for number in (0, 1):
                run = await repeated(lambda number=number: hf.resume_hook("heap-a", number, dedupe=f"{number}"))
                assert run.id == started.run.id
            for number in (2, 3):
                await repeated(lambda number=number: run.signal("heap", number, dedupe=f"{number}"))
            assert await run.result("45s") == [0, 1, 2, 3]
            assert [each.id async for each in hf.runs()] == [run.id]
            assert lost == 1 + 2 * 3 + 2 * 1  # round trips that write: one, or three for a token in another shard
    await worker.leaves()
