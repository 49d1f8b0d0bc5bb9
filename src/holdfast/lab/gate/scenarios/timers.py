"""Timers: short and long ones, delayed starts, and one that is pending while its run changes hands.

The ledger's clock measures each. The worker that holds most of the runs whose timers are pending is killed; another one
takes them over long before the timers are due, and must not take them for elapsed.
"""

from __future__ import annotations

import asyncio

from holdfast.kernel.times import Millis
from holdfast.lab.gate.cluster import of_role
from holdfast.lab.gate.pack import nap
from holdfast.lab.gate.scenario import Findings, ScenarioContext
from holdfast.lab.gate.verdict import Proof

SHORT_MS = (20, 150, 400, 1_300, 1_700)  # those above a second are let go, and wait in the store
DELAYS_MS = (Millis(300), Millis(1_200))
HELD = 4
BUSY_SECONDS = 10.0


async def timers(context: ScenarioContext) -> Findings:
    lease_ms = context.options.lease_ms
    async with context.load("timers") as load:
        async with asyncio.TaskGroup() as group:
            for sleep_ms in SHORT_MS:
                group.create_task(load.other(lambda order, sleep_ms=sleep_ms: nap(order, sleep_ms)))
            for delay_ms in DELAYS_MS:
                group.create_task(load.other(lambda order: nap(order, 20), delay_ms=delay_ms))
            for _ in range(HELD):
                group.create_task(load.other(lambda order: nap(order, 2 * lease_ms, busy_ms=lease_ms)))
            await context.until(lambda: context.holding("hum", lease_ms) >= HELD, seconds=BUSY_SECONDS)
            victim = max(of_role(context.cluster, "worker"), key=lambda name: context.under_way(name, lease_ms))
            context.tell(f"SIGKILL {victim}")
            await context.nemesis.kill(victim)
        await context.nemesis.heal()
        checked = await context.checked(load)
    proofs = (
        Proof("timers measured", checked.counts.timers, len(SHORT_MS) + 2 * len(DELAYS_MS) + HELD),
        Proof("runs taken over with a timer pending", checked.counts.taken_over),
    )
    return Findings(checked=(checked,), proofs=proofs)
