"""Failovers: one part of each kind dies and stays dead until a new run is done without it. The time is measured.

Where there is only one of a kind (a single Redis, a single NATS server) none can take over: it is started again at
once, and that is part of the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.lab.gate.cluster import of_role
from holdfast.lab.gate.load import HOLD_MS, Load
from holdfast.lab.gate.scenario import Findings, Recovery, ScenarioContext
from holdfast.lab.gate.verdict import Proof, proofs_of

UNDER_WAY = 8
PROBES = 6  # enough that no shard is left out for long
ROLES = ("worker", "scheduler", "gateway", "redis", "nats")
BEGUN_SECONDS = 5.0


async def failovers(context: ScenarioContext) -> Findings:
    recoveries: list[Recovery] = []
    roles = [role for role in ROLES if of_role(context.cluster, role)]
    async with context.load("failovers") as load:
        for role in roles:
            victims = [context.cluster.primary()] if role == "redis" else of_role(context.cluster, role)
            recoveries.append(await recovery_of(context, load, victims))
            await context.nemesis.heal()
        checked = await context.checked(load)
    measured = Proof("failovers measured", len(recoveries), len(roles))
    return Findings(checked=(checked,), proofs=(measured, *proofs_of(checked)), recoveries=tuple(recoveries))


async def recovery_of(context: ScenarioContext, load: Load, victims: Sequence[str]) -> Recovery:
    """Kill one of them with work under way, and measure until new work is done, and until all of it is.

    A worker is killed in the middle of an effect: whichever of them is first in one.
    """
    calls = len(context.calls())
    async with asyncio.TaskGroup() as orders:
        for _ in range(UNDER_WAY):
            orders.create_task(load.order(hold_ms=HOLD_MS))
        await context.until(lambda: len(context.calls()) >= calls + UNDER_WAY // 2, seconds=BEGUN_SECONDS)
        if _are_workers(context, victims):
            await context.until(lambda: any(map(context.under_way, victims)), seconds=BEGUN_SECONDS)
        victim = next(filter(context.under_way, victims), victims[0])
        context.tell(f"SIGKILL {victim}", load.done)
        fault = await context.nemesis.kill(victim)
        if len(of_role(context.cluster, fault.role)) == 1:
            await context.nemesis.start(victim)
        probes = [orders.create_task(load.order()) for _ in range(PROBES)]
        await asyncio.wait(probes, return_when=asyncio.FIRST_COMPLETED)
        next_ms = context.clock.wall_ms() - fault.at_ms
    caught_up_ms = context.clock.wall_ms() - fault.at_ms
    context.tell(f"{victim}: the next run was done after {next_ms:,} ms", load.done)
    return Recovery(part=victim, role=fault.role, at_ms=fault.at_ms, next_ms=next_ms, caught_up_ms=caught_up_ms)


def _are_workers(context: ScenarioContext, names: Sequence[str]) -> bool:
    return all(context.cluster.members[name].role == "worker" for name in names)
