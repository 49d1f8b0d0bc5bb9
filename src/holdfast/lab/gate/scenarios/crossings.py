"""Crossings: workers die between the end of a run and the message about it to a run in another shard.

The process that commits such a message delivers it; these die before that. The relay has to: a parent whose child has
ended must hear of it, and a token that is free must be.
"""

from __future__ import annotations

import asyncio

from holdfast.lab.gate.cluster import of_role
from holdfast.lab.gate.load import Load
from holdfast.lab.gate.scenario import Findings, ScenarioContext
from holdfast.lab.gate.verdict import Proof

CLIENTS = 4
DIES_SECONDS = 10.0


async def crossings(context: ScenarioContext) -> Findings:
    deaths: list[bool] = []
    async with context.load("crossings") as load:
        async with asyncio.TaskGroup() as group:
            killing = group.create_task(_one_after_another(context, load, deaths))
            await load.flow(CLIENTS, lambda: not killing.done())
        await context.nemesis.heal()
        checked = await context.checked(load)
    return Findings(checked=(checked,), proofs=(Proof("workers that died over a message", sum(deaths)),))


async def _one_after_another(context: ScenarioContext, load: Load, deaths: list[bool]) -> None:
    for name in of_role(context.cluster, "worker"):
        context.tell(f"{name} dies over its next message", load.done)
        deaths.append(await context.nemesis.kill_over_mail(name, DIES_SECONDS))
        if deaths[-1]:
            await context.nemesis.start(name)
