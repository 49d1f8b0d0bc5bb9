"""Kills: keyed runs over all gateways while workers, schedulers and gateways are killed, one after another.

Each is started again a moment later, and the next one dies. The load does not end before every replica has died once;
if it takes longer than one round, they die again.
"""

from __future__ import annotations

import asyncio
from itertools import cycle

from holdfast.lab.gate.cluster import REPLICAS, of_role
from holdfast.lab.gate.load import Load
from holdfast.lab.gate.scenario import Findings, ScenarioContext
from holdfast.lab.gate.verdict import Proof, proofs_of

GONE_SECONDS = 0.5
CLIENTS_MIN, CLIENTS_MAX = 4, 12
BUSY_SECONDS = 10.0  # how long a worker may take to be in the middle of an effect, where it is to die


async def kills(context: ScenarioContext) -> Findings:
    clients = max(CLIENTS_MIN, min(CLIENTS_MAX, context.options.runs // 10))
    async with context.load("kills") as load:
        async with asyncio.TaskGroup() as group:
            killing = group.create_task(_one_after_another(context, load))
            await load.flow(clients, lambda: not killing.done())
        await context.nemesis.heal()
        checked = await context.checked(load)
    killed = {fault.part for fault in context.faults if fault.deed == "kill"}
    all_died = Proof("replicas killed", len(killed), len(of_role(context.cluster, *REPLICAS)))
    enough = Proof("keyed runs", checked.counts.orders, context.options.runs)
    return Findings(checked=(checked,), proofs=(all_died, enough, *proofs_of(checked)))


async def _one_after_another(context: ScenarioContext, load: Load) -> None:
    """All replicas, in turns; then again, until there are enough runs."""
    replicas = of_role(context.cluster, *REPLICAS)
    for nth, name in enumerate(cycle(replicas)):
        if nth >= len(replicas) and len(load.orders) >= context.options.runs:
            return
        if context.cluster.members[name].role == "worker":
            await context.until(lambda name=name: context.under_way(name) > 0, seconds=BUSY_SECONDS)
        context.tell(f"SIGKILL {name}", load.done)
        await context.nemesis.kill(name)
        await context.pause(GONE_SECONDS)
        await context.nemesis.start(name)
