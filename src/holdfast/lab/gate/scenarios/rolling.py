"""Rolling restart: every part is asked to end, and started again, one after the other, under load. No call may fail."""

from __future__ import annotations

import asyncio

from holdfast.lab.gate.load import Load
from holdfast.lab.gate.scenario import Findings, Stage
from holdfast.lab.gate.verdict import Proof, proofs_of

ROLES = ("scheduler", "worker", "gateway", "nats", "sentinel", "redis")
CLIENTS = 4


async def rolling(stage: Stage) -> Findings:
    async with stage.load("rolling") as load:
        async with asyncio.TaskGroup() as group:
            restarting = group.create_task(_one_after_another(stage, load))
            await load.flow(CLIENTS, lambda: not restarting.done())
        checked = await stage.checked(load)
    restarted = {fault.part for fault in stage.faults if fault.deed == "terminate"}
    all_of_them = Proof("parts restarted", len(restarted), len(stage.site.parts))
    # Who ends in order gives its runs back: there may be nothing to rescue.
    return Findings(checked=(checked,), proofs=(all_of_them, *proofs_of(checked, rescues=False)))


async def _one_after_another(stage: Stage, load: Load) -> None:
    parts = sorted(stage.site.parts.values(), key=lambda part: ROLES.index(part.role))
    for part in parts:
        stage.tell(f"SIGTERM {part.name}", load.done)
        await stage.nemesis.terminate(part.name)
        await stage.nemesis.start(part.name)
        await asyncio.to_thread(stage.site.wait_until_healthy)
