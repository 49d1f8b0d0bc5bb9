"""Crossings: workers die between the end of a run and the message about it to a run in another shard.

The process that commits such a message delivers it; these die before that. The relay has to: a parent whose child has
ended must hear of it, and a token that is free must be.
"""

from __future__ import annotations

import asyncio

from holdfast.lab.gate.cluster import of_role
from holdfast.lab.gate.load import Load
from holdfast.lab.gate.scenario import Findings, Stage
from holdfast.lab.gate.verdict import Proof

CLIENTS = 4
DIES_SECONDS = 10.0


async def crossings(stage: Stage) -> Findings:
    deaths: list[bool] = []
    async with stage.load("crossings") as load:
        async with asyncio.TaskGroup() as group:
            killing = group.create_task(_one_after_another(stage, load, deaths))
            await load.flow(CLIENTS, lambda: not killing.done())
        await stage.nemesis.heal()
        checked = await stage.checked(load)
    return Findings(checked=(checked,), proofs=(Proof("workers that died over a message", sum(deaths)),))


async def _one_after_another(stage: Stage, load: Load, deaths: list[bool]) -> None:
    for name in of_role(stage.site, "worker"):
        stage.tell(f"{name} dies over its next message", load.done)
        deaths.append(await stage.nemesis.kill_over_mail(name, DIES_SECONDS))
        if deaths[-1]:
            await stage.nemesis.start(name)
