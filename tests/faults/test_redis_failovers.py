"""A primary dies whose only replica was out of touch, and the replica takes its place: what was confirmed is there.

The replica is stopped and its link is cut: its primary knows at once that it is alone. When the primary is dead, the
replica goes on, and takes over with what it had when it was stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, NotPerformed, Pack
from holdfast.errors import InvalidConfig, StoreUnavailable
from holdfast.events import StoreTroubled
from holdfast.lab.cluster.redis import RedisServer
from holdfast.lab.cluster.redis_cluster import RedisCluster, start_redis_cluster
from holdfast.lab.cluster.redis_commands import RedisCommandError
from holdfast.lab.cluster.sentinels import SentinelGroup, start_sentinel
from holdfast.stores.redis.net.topologies import slot_of
from tests.faults.cases import RedisCase
from tests.faults.conftest import NewRedisCase
from tests.faults.processes import patiently, until
from tests.faults.workflows_checkout import checkout

pytestmark = pytest.mark.faults

ORDERS = [f"o{number}" for number in range(24)]
TRANSFERS = 4


class Pair:
    """A primary of some shards of a case, and its only replica."""

    def __init__(self, servers: RedisCluster | SentinelGroup, primary: RedisServer, replica: RedisServer) -> None:
        self.servers = servers
        self.primary = primary
        self.replica = replica

    def has(self, case: RedisCase, run_id: str) -> bool:
        """Whether a run of this case lives there."""
        if isinstance(self.servers, SentinelGroup):
            return True
        return self.servers.primary_of(slot_of(case.shards.part(b"run", run_id))) is self.primary

    async def cut(self) -> None:
        """The replica gets nothing from now on, and its primary knows that it has gone."""
        self.replica.stop_signal()
        with contextlib.suppress(RedisCommandError):
            self.primary.ask("CLIENT", "KILL", "TYPE", "replica")
        await until(lambda: self.primary.info("replication").get("connected_slaves") == "0", "a cut link")

    async def fail_over(self) -> None:
        """The primary is killed, and the replica takes its place with what it has."""
        self.primary.kill()
        self.replica.cont()
        await until(lambda: self.replica.info("replication").get("role") == "master", "a new primary")
        if isinstance(self.servers, SentinelGroup):
            await until(lambda: self.servers.primary is self.replica, "Sentinels that name it")

    def mend(self) -> None:
        """Everything runs again, and the one that was killed follows the other."""
        self.replica.cont()
        if self.primary.state == "dead":
            self.primary.start()
        if isinstance(self.servers, SentinelGroup):
            follower = next(each for each in self.servers.servers if each is not self.servers.primary)
            follower.ask("REPLICAOF", "127.0.0.1", self.servers.primary.port)  # Sentinels take ten seconds for it
        self.servers.wait_until_healthy()


@asynccontextmanager
async def pair_of(case: RedisCase) -> AsyncIterator[Pair]:
    servers: Any = case.servers
    if isinstance(servers, RedisCluster):
        primary = servers.primary_of(slot_of(case.shards.index(0)))
        [replica] = servers.replicas_of(primary)
    else:
        primary = servers.primary
        [replica] = [each for each in servers.servers if each is not primary]
    pair = Pair(servers, primary, replica)
    try:
        yield pair
    finally:
        pair.mend()


@pytest.fixture(params=["redis_cluster", "redis_sentinel"])
def case(request: pytest.FixtureRequest, case_on: NewRedisCase) -> RedisCase:
    return case_on(request.getfixturevalue(request.param))


async def started(hf: Holdfast, order: str) -> str | None:
    """The id of the run, if the start was acknowledged."""
    with contextlib.suppress(StoreUnavailable):
        return (await hf.start(checkout(order), request_id=order)).run.id
    return None


async def test_no_acknowledged_start_is_lost_with_a_primary_whose_replica_was_cut_off(case: RedisCase) -> None:
    async with case.client() as hf, pair_of(case) as pair:
        await pair.cut()
        acknowledged = dict(zip(ORDERS, await asyncio.gather(*(started(hf, order) for order in ORDERS)), strict=True))
        await pair.fail_over()
        pair.mend()
        for order, run_id in acknowledged.items():
            if run_id is not None:
                assert await patiently(lambda run_id=run_id: hf.runtime.store.run("default", run_id)), (
                    f"{order} is lost"
                )
        assert None in acknowledged.values(), "the primary took what its replica did not confirm"
        # What was not acknowledged is settled by offering it again, and is there once, whether it had survived or not.
        for order in ORDERS:
            run, created = await patiently(lambda order=order: hf.start(checkout(order), request_id=order))
            assert created
            assert acknowledged[order] in {None, run.id}
        assert sorted([run.key async for run in hf.runs()]) == sorted(f"order:{order}" for order in ORDERS)


async def test_wait_auto_goes_on_without_the_replica_and_says_so(case: RedisCase) -> None:
    """For those who would rather work than be certain."""
    said: list[str] = []
    case.wait = "auto"
    hf = case.client()
    hf.listen(lambda event: said.append(getattr(event, "message", "")))
    async with hf, pair_of(case) as pair:
        assert any("wait=auto" in message and "lost" in message for message in said)
        await pair.cut()
        for order in ORDERS:
            await patiently(lambda order=order: hf.start(checkout(order), request_id=order))
        doubts = [finding for finding in await hf.runtime.inspect() if finding.what == "replicas"]
        assert any(finding.level == "warning" and pair.primary.address in finding.detail for finding in doubts)


async def test_a_process_that_starts_while_the_replica_is_away_reads_and_says_what_it_waits_for(
    case: RedisCase,
) -> None:
    async with case.client() as hf, pair_of(case) as pair:
        run = (await hf.start(checkout("before"))).run
        await pair.cut()
        async with case.client() as late:
            assert (await late.get(run.id)).key == "order:before"
            doubts = [finding for finding in await late.runtime.inspect() if finding.level == "error"]
            assert any("work waits" in finding.detail and "wait=auto" in finding.hint for finding in doubts)
            starts = [late.start(checkout(order)) for order in ORDERS]  # some of them in shards of this primary
            with pytest.raises(StoreUnavailable) as unknown:
                await asyncio.gather(*starts)
        assert "0 of 1 replicas confirmed" in unknown.value.message
        assert pair.primary.address in unknown.value.message
        assert "counts once" in unknown.value.hint


@pytest.mark.parametrize("kind", ["cluster", "sentinel"])
async def test_servers_without_any_replica_are_refused_unless_it_is_said_that_one_copy_is_enough(
    tmp_path: Path, kind: str
) -> None:
    servers: RedisCluster | SentinelGroup
    if kind == "cluster":
        servers = start_redis_cluster(tmp_path, replicas=0, appendfsync="no")
    else:
        servers = start_sentinel(tmp_path, replicas=0, sentinels=1, appendfsync="no")
    try:
        with pytest.raises(InvalidConfig, match="no replica that could confirm a write") as refused:
            await opened_once(servers.url)
        assert "wait=auto" in refused.value.hint
        assert "wait=0" in refused.value.hint
        for wait in ("auto", "0"):
            await opened_once(f"{servers.url}?wait={wait}&name=wait-{wait}")
    finally:
        servers.stop()


async def opened_once(url: str) -> None:
    async with Holdfast(url, worker=False):
        return


class Transfers:
    """A world in which something is done once, after something else that the test lets go."""

    def __init__(self) -> None:
        self.under_way = 0
        self.may_end = asyncio.Event()
        self.made: Counter[str] = Counter()
        self.pack = Pack("transfers")

        @self.pack.effect
        async def check(_account: str) -> None:
            self.under_way += 1
            await self.may_end.wait()

        async def is_made(key: str) -> None:
            """A process that lost its lease over the record of its intent leaves it to others to find out."""
            if not self.made[key.removeprefix("transfer:")]:
                raise NotPerformed

        @self.pack.effect(safety="once", key="transfer:{account}", reconcile=is_made)
        async def transfer(account: str) -> None:
            self.made[account] += 1

        @self.pack.workflow(key="pay:{account}")
        async def pay(account: str) -> None:
            await check(account)
            await transfer(account)

        self.pay = pay

    def run_id(self, hf: Holdfast, account: str) -> str:
        """An id in the shard of its run."""
        return hf.runtime.store.id_for("0", namespace="default", workflow=self.pay.name, key=f"pay:{account}")


async def test_a_once_effect_is_not_called_before_a_replica_knows_that_it_is_begun(case: RedisCase) -> None:
    """Otherwise a failover takes the record of it back, and the next holder of the run calls it again."""
    world, troubles = Transfers(), list[str]()
    async with pair_of(case) as pair, Holdfast(case.url, packs=[world.pack], lease="2s") as hf:
        hf.listen(lambda event: troubles.append(event.message) if isinstance(event, StoreTroubled) else None)
        accounts = [account for account in map(str, range(100)) if pair.has(case, world.run_id(hf, account))][
            :TRANSFERS
        ]
        runs = {account: (await hf.start(world.pay(account))).run for account in accounts}
        await until(lambda: world.under_way >= len(runs), "work in all runs")
        await pair.cut()
        world.may_end.set()

        def tries() -> int:
            return sum("replicas confirmed" in trouble for trouble in troubles)

        await until(lambda: tries() >= len(runs) or world.made, "some tries")
        assert not world.made
        await pair.fail_over()
        pair.mend()
        for run in runs.values():
            await patiently(run.result)
    assert world.made == dict.fromkeys(runs, 1)
