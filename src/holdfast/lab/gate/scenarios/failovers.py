"""Failovers: one part of each kind dies and stays dead until a new run is done without it. The time is measured.

Where there is only one of a kind (a single Redis, a single NATS server) nobody can take over: it is started again at
once, and that is part of the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.lab.gate.cluster import of_role
from holdfast.lab.gate.load import HOLD_MS, Load
from holdfast.lab.gate.scenario import Findings, Recovery, Stage
from holdfast.lab.gate.verdict import Proof, proofs_of

UNDER_WAY = 8
PROBES = 6  # enough that no shard is left out for long
ROLES = ("worker", "scheduler", "gateway", "redis", "nats")
BEGUN_SECONDS = 5.0


async def failovers(stage: Stage) -> Findings:
    recoveries: list[Recovery] = []
    roles = [role for role in ROLES if of_role(stage.site, role)]
    async with stage.load("failovers") as load:
        for role in roles:
            victims = [stage.site.primary()] if role == "redis" else of_role(stage.site, role)
            recoveries.append(await recovery_of(stage, load, victims))
            await stage.nemesis.heal()
        checked = await stage.checked(load)
    measured = Proof("failovers measured", len(recoveries), len(roles))
    return Findings(checked=(checked,), proofs=(measured, *proofs_of(checked)), recoveries=tuple(recoveries))


async def recovery_of(stage: Stage, load: Load, victims: Sequence[str]) -> Recovery:
    """Kill one of them with work under way, and measure until new work is done, and until all of it is.

    A worker is killed in the middle of an effect: whichever of them is first in one.
    """
    calls = len(stage.calls())
    async with asyncio.TaskGroup() as orders:
        for _ in range(UNDER_WAY):
            orders.create_task(load.order(hold_ms=HOLD_MS))
        await stage.until(lambda: len(stage.calls()) >= calls + UNDER_WAY // 2, seconds=BEGUN_SECONDS)
        if _are_workers(stage, victims):
            await stage.until(lambda: any(map(stage.under_way, victims)), seconds=BEGUN_SECONDS)
        victim = next(filter(stage.under_way, victims), victims[0])
        stage.tell(f"SIGKILL {victim}", load.done)
        fault = await stage.nemesis.kill(victim)
        if len(of_role(stage.site, fault.role)) == 1:
            await stage.nemesis.start(victim)
        probes = [orders.create_task(load.order()) for _ in range(PROBES)]
        await asyncio.wait(probes, return_when=asyncio.FIRST_COMPLETED)
        next_ms = stage.clock.wall_ms() - fault.at_ms
    caught_up_ms = stage.clock.wall_ms() - fault.at_ms
    stage.tell(f"{victim}: the next run was done after {next_ms:,} ms", load.done)
    return Recovery(part=victim, role=fault.role, at_ms=fault.at_ms, next_ms=next_ms, caught_up_ms=caught_up_ms)


def _are_workers(stage: Stage, names: Sequence[str]) -> bool:
    return all(stage.site.parts[name].role == "worker" for name in names)
