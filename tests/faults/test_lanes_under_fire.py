"""Processes that start and execute runs of one lane are killed: width and order are kept, and no run is forgotten."""

from __future__ import annotations

import asyncio
import random

import pytest

from holdfast.lab.cluster.redis_cluster import RedisCluster
from holdfast.ports.store import Store
from tests.faults.cases import Case, RedisCase
from tests.faults.lane_process import LANE, LanePlan
from tests.faults.ledger import Line
from tests.faults.processes import KILLED, Process, until

pytestmark = pytest.mark.faults

CLIENTS = 8


class Lane:
    """A lane, and the processes that use it."""

    def __init__(self, case: Case, *, width: int) -> None:
        self.case = case
        self.width = width

    async def process(self, *, client: str = "", starts: int = 0) -> Process:
        case = self.case
        plan = LanePlan(
            url=case.url,
            ledger=str(case.ledger.path),
            stop=str(case.flag("stop")),
            client=client,
            starts=starts,
            width=self.width,
        )
        process = await case.processes.fork(plan, module="tests.faults.lane_process")
        await process.says("ready")
        return process

    def names(self, event: str) -> list[str]:
        """The runs of these lines, in order."""
        return [line[event] for line in self.case.ledger.lines() if event in line]

    async def ends(self, workers: list[Process]) -> None:
        """Every run that was started ends, and the workers go."""
        await until(lambda: set(self.names("ended")) >= set(self.names("started")), "the end of all runs", *workers)
        async with self.case.client() as hf:
            await self._empties(hf.runtime.store)
        self.case.raise_flag("stop")
        for worker in workers:
            assert await worker.ended() == 0, worker

    async def _empties(self, store: Store) -> None:
        async with asyncio.timeout(45):
            while True:
                state = await store.lane("default", LANE)
                if state is not None and (state.active, state.parked) == (0, 0):
                    return
                await asyncio.sleep(0.05)

    def check(self) -> None:
        """No more were at work than may be; and the runs of each client began in the order of its starts.

        Of several that are active at the same time, a worker may be sooner with one, and later with another.
        """
        check_width(self.case.ledger.lines(), self.width)
        if self.width > 1:
            return
        first = list(dict.fromkeys(self.names("begun")))
        for client in {name[:2] for name in first}:
            mine = [name for name in first if name.startswith(client)]
            assert mine == sorted(mine), mine


def check_width(lines: list[Line], width: int) -> None:
    active: dict[str, None] = {}
    for line in lines:
        if "begun" in line:
            active[line["begun"]] = None
            assert len(active) <= width, (list(active), line)
        elif "ended" in line:
            active.pop(line["ended"], None)


async def test_starts_of_eight_processes_on_one_lane_go_one_at_a_time(any_case: Case) -> None:
    lane = Lane(any_case, width=1)
    workers = [await lane.process() for _ in range(2)]
    count = 10 if _is_cluster(any_case) else 20
    clients = [await lane.process(client=f"c{n}", starts=count) for n in range(CLIENTS)]
    assert [await client.ended() for client in clients] == [0] * CLIENTS
    await lane.ends(workers)
    lane.check()
    assert len(set(lane.names("ended"))) == CLIENTS * count


@pytest.mark.slow
async def test_a_thousand_starts_of_eight_processes_on_one_lane(any_case: Case) -> None:
    lane = Lane(any_case, width=1)
    workers = [await lane.process() for _ in range(2)]
    clients = [await lane.process(client=f"c{n}", starts=125) for n in range(CLIENTS)]
    assert [await client.ended(within=180) for client in clients] == [0] * CLIENTS
    await lane.ends(workers)
    lane.check()
    assert len(set(lane.names("ended"))) == 1_000


@pytest.mark.parametrize("width", [1, 3])
async def test_clients_and_workers_that_are_killed_leave_every_run_its_turn(any_case: Case, width: int) -> None:
    chance = random.Random(width)
    lane = Lane(any_case, width=width)
    workers = [await lane.process() for _ in range(3)]
    clients = [await lane.process(client=f"c{n}", starts=10 if _is_cluster(any_case) else 20) for n in range(CLIENTS)]
    for count in range(8):
        seen = len(lane.names("ended"))
        if count % 2 and clients[-1].code is None:
            await until(lambda seen=seen: len(lane.names("started")) > seen, "another start")
            doomed = clients.pop()
        else:
            await until(lambda seen=seen: len(lane.names("ended")) > seen or _all_done(clients), "another end")
            doomed = workers.pop(chance.randrange(len(workers)))
            workers.append(await lane.process())
        doomed.signal(9)
        assert await doomed.ended() in {KILLED, 0}
    assert [await client.ended() for client in clients] == [0] * len(clients)
    await lane.ends(workers)
    lane.check()


def _all_done(clients: list[Process]) -> bool:
    return all(client.code is not None for client in clients)


def _is_cluster(case: Case) -> bool:
    return isinstance(case, RedisCase) and isinstance(case.servers, RedisCluster)
