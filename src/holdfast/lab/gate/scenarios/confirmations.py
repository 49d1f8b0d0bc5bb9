"""Confirmations: all Redis servers that follow a primary are stopped. Nothing that is started now may be confirmed.

A primary that died at this moment would take it along. When the followers go on, the starts are confirmed after all.
"""

from __future__ import annotations

import asyncio
from math import inf

from holdfast.lab.gate.scenario import Findings, ScenarioContext
from holdfast.lab.gate.verdict import Proof

ORDERS = 6
STANDSTILL_SECONDS = 1.5


async def confirmations(context: ScenarioContext) -> Findings:
    followers = context.cluster.followers()
    async with context.load("confirmations") as load:
        await load.order()
        async with asyncio.TaskGroup() as orders:
            context.tell(f"SIGSTOP {' and '.join(followers) or 'nothing'}")
            stopped = [await context.nemesis.stop(name) for name in followers]
            for _ in range(ORDERS):
                orders.create_task(load.order())
            await context.pause(STANDSTILL_SECONDS)
            resumed = [await context.nemesis.resume(name) for name in followers]
        await context.nemesis.heal()
        checked = await context.checked(load)
    since_ms = max((fault.at_ms for fault in stopped), default=inf)
    until_ms = min((fault.at_ms for fault in resumed), default=inf)
    waited = sum(since_ms <= answer.asked_at_ms < until_ms <= answer.at_ms for answer in load.accepted_starts)
    proofs = (Proof("followers stopped", len(followers)), Proof("starts that had to wait for them", waited))
    return Findings(checked=(checked,), proofs=proofs)
