"""Rolling restart: every part is asked to end, and started again, one after the other, under load. No call may fail."""

from __future__ import annotations

import asyncio

from holdfast.lab.gate.load import Load
from holdfast.lab.gate.scenario import Findings, ScenarioContext
from holdfast.lab.gate.verdict import Proof, proofs_of

ROLES = ("scheduler", "worker", "gateway", "nats", "sentinel", "redis")
CLIENTS = 4


async def rolling(context: ScenarioContext) -> Findings:
    async with context.load("rolling") as load:
        async with asyncio.TaskGroup() as group:
            restarting = group.create_task(_one_after_another(context, load))
            await load.flow(CLIENTS, lambda: not restarting.done())
        checked = await context.checked(load)
    restarted = {fault.part for fault in context.faults if fault.deed == "terminate"}
    all_of_them = Proof("parts restarted", len(restarted), len(context.cluster.members))
    # Who ends in order gives its runs back: there may be nothing to rescue.
    return Findings(checked=(checked,), proofs=(all_of_them, *proofs_of(checked, rescues=False)))


async def _one_after_another(context: ScenarioContext, load: Load) -> None:
    members = sorted(context.cluster.members.values(), key=lambda part: ROLES.index(part.role))
    for part in members:
        context.tell(f"SIGTERM {part.name}", load.done)
        await context.nemesis.terminate(part.name)
        await context.nemesis.start(part.name)
        await asyncio.to_thread(context.cluster.wait_until_healthy)
