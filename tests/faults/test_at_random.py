"""A nemesis: workers are killed and stopped at random moments while orders are worked on. A seed repeats its plan.

What is checked is what a caller and the world can see: every order ends with its result, and no effect is called
again that had been recorded, nor repeated unless its caller was lost.
"""

from __future__ import annotations

import asyncio
import random
import signal

import pytest

from tests.faults.cases import Case
from tests.faults.processes import Process
from tests.faults.workflows_checkout import STEPS, checkout, expected, notice

pytestmark = pytest.mark.faults

LEASE = "1s"
PAUSE = 1.5  # longer than the lease, shorter than a caller's patience with a lock that the stopped one may hold
WORKERS = 3
BLOWS = 8
ORDERS = 24


class Nemesis:
    """Strikes one of the workers, and sees to it that there are always enough."""

    def __init__(self, case: Case, chance: random.Random) -> None:
        self.killed: set[int] = set()
        self.stopped: set[int] = set()
        self._resting: list[Process] = []
        self._case = case
        self._chance = chance
        self._workers: list[Process] = []

    async def rage(self) -> None:
        await self._replace()
        for _ in range(BLOWS):
            await asyncio.sleep(self._chance.uniform(0.05, 0.5))  # part of the plan, not a wait for something
            victim = self._chance.choice(self._workers)
            if self._chance.random() < 0.7:
                victim.signal(signal.SIGKILL)
                self.killed.add(victim.pid)
            else:
                victim.signal(signal.SIGSTOP)
                asyncio.get_running_loop().call_later(PAUSE, victim.signal, signal.SIGCONT)
                self._resting.append(victim)
                self.stopped.add(victim.pid)
            self._workers.remove(victim)
            await self._replace()

    async def rest(self) -> None:
        await asyncio.gather(*(worker.leaves() for worker in self._workers + self._resting))

    async def _replace(self) -> None:
        while len(self._workers) < WORKERS:
            self._workers.append(await self._case.fork(stay=True, lease=LEASE, concurrency=4))


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
async def test_whatever_strikes_every_order_ends_and_no_effect_is_repeated_without_cause(case: Case, seed: int) -> None:
    nemesis = Nemesis(case, random.Random(seed))
    orders = [f"o{n}" for n in range(ORDERS)]
    async with case.client() as hf:
        raging = asyncio.create_task(nemesis.rage())
        runs = [(await hf.start(checkout(order))).run for order in orders]
        await raging
        for order, run in zip(orders, runs, strict=True):
            assert await run.result("45s") == expected(order)
            assert await (await hf.find(notice, f"notice:{order}")).result("45s") == f"{order} told"
    await nemesis.rest()
    case.ledger.check(lost=nemesis.killed | case.processes.overtaken(), stopped=nemesis.stopped)
    for order in orders:
        assert {line["step"] for line in case.ledger.calls() if line["order"] == order} == STEPS
    assert case.ask("SELECT status, count(*) FROM runs GROUP BY 1") == [("completed", 3 * ORDERS)]
    assert case.ask("SELECT count(*) FROM inbox WHERE body IS NOT NULL") == [(0,)]
    assert case.ask("PRAGMA integrity_check") == [("ok",)]
    assert nemesis.killed
