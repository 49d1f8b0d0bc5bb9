"""Departures: a worker is asked to end in the middle of its work. What it held is free at once, not after its lease."""

from __future__ import annotations

import asyncio

from holdfast.kernel.times import Millis
from holdfast.lab.gate.cluster import of_role
from holdfast.lab.gate.scenario import Findings, ScenarioContext
from holdfast.lab.gate.verdict import Proof

ORDERS = 12
HOLD_MS = Millis(300)
HELD_MIN = 3
BEGUN_SECONDS = 10.0


async def departures(context: ScenarioContext) -> Findings:
    workers = of_role(context.cluster, "worker")
    async with context.load("departures") as load:
        async with asyncio.TaskGroup() as orders:
            for _ in range(ORDERS):
                orders.create_task(load.order(hold_ms=HOLD_MS))
            await context.until(
                lambda: max(context.under_way(name, HOLD_MS) for name in workers) >= HELD_MIN, seconds=BEGUN_SECONDS
            )
            victim = max(workers, key=lambda name: context.under_way(name, HOLD_MS))
            context.tell(f"SIGTERM {victim}", load.done)
            await context.nemesis.terminate(victim)
        await context.nemesis.heal()
        checked = await context.checked(load)
    proofs = (Proof("runs that went on elsewhere", checked.counts.taken_over),)
    return Findings(checked=(checked,), proofs=proofs)
