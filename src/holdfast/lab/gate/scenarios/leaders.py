"""Leaders: the schedulers are asked again and again who leads, while the one that does is stopped and goes on.

When another one leads, the first one goes on as if it had looked at its lease just before it was stopped. It will try
to renew it, and the store must refuse that: at no time may two lead.
"""

from __future__ import annotations

import asyncio

from holdfast.lab.gate import reader
from holdfast.lab.gate.cluster import of_role
from holdfast.lab.gate.evidence import DutySeen
from holdfast.lab.gate.scenario import Findings, ScenarioContext
from holdfast.lab.gate.verdict import Proof

DUTY = "rescuer"
PROBES = 4
CHANGE_SECONDS = 20.0
LEASES_WATCHED = 1.5  # the first one goes by before the process that went on has to know better


async def leaders(context: ScenarioContext) -> Findings:
    sights: list[DutySeen] = []
    async with context.load("leaders") as load:
        watching = asyncio.create_task(_watch(context, sights))
        try:
            await context.until(lambda: _leader(context, sights) is not None, seconds=CHANGE_SECONDS)
            await context.pause(context.options.lease_ms / 2000)
            first = _leader(context, sights) or of_role(context.cluster, "scheduler")[0]
            context.tell(f"SIGSTOP {first}")
            await context.nemesis.stop(first)
            await context.until(lambda: _leader(context, sights) not in {None, first}, seconds=CHANGE_SECONDS)
            second = _leader(context, sights)
            context.tell(f"SIGCONT {first}: {second} leads")
            await context.nemesis.resume(first, unaware=True)
            watched = context.pause(LEASES_WATCHED * context.options.lease_ms / 1000)
            await asyncio.gather(*(load.order() for _ in range(PROBES)), watched)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        checked = await context.checked(load, sights=sights)
    proofs = (
        Proof("leaders, one after the other", len({sight.pid for sight in sights if sight.leads}), 2),
        Proof("looks at who leads", len(sights), 20),
    )
    return Findings(checked=(checked,), proofs=proofs)


async def _watch(context: ScenarioContext, sights: list[DutySeen]) -> None:
    while True:
        for name in of_role(context.cluster, "scheduler"):
            member = context.cluster.members[name]
            if member.state == "running":
                told = asyncio.to_thread(reader.sights, member, context.cluster.api_key, context.clock.wall_ms())
                sights += await told
        await context.pause(0.02)


def _leader(context: ScenarioContext, sights: list[DutySeen]) -> str | None:
    """Who leads by the last word of each that runs."""
    last = {sight.pid: sight for sight in sights if sight.duty == DUTY}
    members = (context.cluster.members[name] for name in of_role(context.cluster, "scheduler"))
    running = (member for member in members if member.state == "running")
    return next((member.name for member in running if member.pid in last and last[member.pid].leads), None)
