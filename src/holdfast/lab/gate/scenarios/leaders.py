"""Leaders: the schedulers are asked again and again who leads, while the one that does is stopped and goes on.

When another one leads, the first one goes on as if it had looked at its lease just before it was stopped. It will try
to renew it, and the store must refuse that: at no time may two lead.
"""

from __future__ import annotations

import asyncio

from holdfast.lab.gate import reader
from holdfast.lab.gate.cluster import of_role
from holdfast.lab.gate.evidence import DutySeen
from holdfast.lab.gate.scenario import Findings, Stage
from holdfast.lab.gate.verdict import Proof

DUTY = "rescuer"
PROBES = 4
CHANGE_SECONDS = 20.0


async def leaders(stage: Stage) -> Findings:
    sights: list[DutySeen] = []
    async with stage.load("leaders") as load:
        watching = asyncio.create_task(_watch(stage, sights))
        try:
            await stage.until(lambda: _leader(stage, sights) is not None, seconds=CHANGE_SECONDS)
            await stage.pause(stage.options.lease_ms / 2000)
            first = _leader(stage, sights) or of_role(stage.site, "scheduler")[0]
            stage.tell(f"SIGSTOP {first}")
            await stage.nemesis.stop(first)
            await stage.until(lambda: _leader(stage, sights) not in {None, first}, seconds=CHANGE_SECONDS)
            second = _leader(stage, sights)
            stage.tell(f"SIGCONT {first}: {second} leads")
            await stage.nemesis.resume(first, unaware=True)
            await asyncio.gather(*(load.order() for _ in range(PROBES)), stage.pause(stage.options.lease_ms / 1000))
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        checked = await stage.checked(load, sights=sights)
    proofs = (
        Proof("leaders, one after the other", len({sight.pid for sight in sights if sight.leads}), 2),
        Proof("looks at who leads", len(sights), 20),
    )
    return Findings(checked=(checked,), proofs=proofs)


async def _watch(stage: Stage, sights: list[DutySeen]) -> None:
    while True:
        for name in of_role(stage.site, "scheduler"):
            part = stage.site.parts[name]
            if part.state == "running":
                told = asyncio.to_thread(reader.sights, part, stage.site.api_key, stage.clock.wall_ms())
                sights += await told
        await stage.pause(0.02)


def _leader(stage: Stage, sights: list[DutySeen]) -> str | None:
    """Who leads by the last word of each that runs."""
    last = {sight.pid: sight for sight in sights if sight.duty == DUTY}
    parts = (stage.site.parts[name] for name in of_role(stage.site, "scheduler"))
    running = (part for part in parts if part.state == "running")
    return next((part.name for part in running if part.pid in last and last[part.pid].leads), None)
