"""Kills: keyed runs over all gateways while workers, schedulers and gateways are killed, one after another.

Each is started again a moment later, and the next one dies. The load does not end before every replica has died once;
if it takes longer than one round, they die again.
"""

from __future__ import annotations

import asyncio
from itertools import cycle

from holdfast.lab.gate.cluster import REPLICAS, of_role
from holdfast.lab.gate.load import Load
from holdfast.lab.gate.scenario import Findings, Stage
from holdfast.lab.gate.verdict import Proof, proofs_of

GONE_SECONDS = 0.5
CLIENTS_MIN, CLIENTS_MAX = 4, 12
BUSY_SECONDS = 10.0  # how long a worker may take to be in the middle of an effect, where it is to die


async def kills(stage: Stage) -> Findings:
    clients = max(CLIENTS_MIN, min(CLIENTS_MAX, stage.options.runs // 10))
    async with stage.load("kills") as load:
        async with asyncio.TaskGroup() as group:
            killing = group.create_task(_one_after_another(stage, load))
            await load.flow(clients, lambda: not killing.done())
        await stage.nemesis.heal()
        checked = await stage.checked(load)
    killed = {fault.part for fault in stage.faults if fault.deed == "kill"}
    all_died = Proof("replicas killed", len(killed), len(of_role(stage.site, *REPLICAS)))
    enough = Proof("keyed runs", checked.counts.orders, stage.options.runs)
    return Findings(checked=(checked,), proofs=(all_died, enough, *proofs_of(checked)))


async def _one_after_another(stage: Stage, load: Load) -> None:
    """All replicas, in turns; then again, until there are enough runs."""
    replicas = of_role(stage.site, *REPLICAS)
    for nth, name in enumerate(cycle(replicas)):
        if nth >= len(replicas) and len(load.orders) >= stage.options.runs:
            return
        if stage.site.parts[name].role == "worker":
            await stage.until(lambda name=name: stage.under_way(name) > 0, seconds=BUSY_SECONDS)
        stage.tell(f"SIGKILL {name}", load.done)
        await stage.nemesis.kill(name)
        await stage.pause(GONE_SECONDS)
        await stage.nemesis.start(name)
