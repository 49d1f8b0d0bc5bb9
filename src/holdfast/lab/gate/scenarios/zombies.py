"""Zombies: a worker and a scheduler are stopped in the middle of their work, past their leases, and go on later.

The worker is stopped while effects of its runs are under way. Others finish these runs; that is written down. Then the
zombie goes on as if it had looked at its lease just before: it finds the results of its effects, and records them. What
was written down must stay as it is. The store must have refused its writes: if none came, nothing is proved.
"""

from __future__ import annotations

import asyncio

from holdfast.kernel.times import Instant, Millis
from holdfast.lab.gate import reader
from holdfast.lab.gate.cluster import of_role
from holdfast.lab.gate.load import Load
from holdfast.lab.gate.pack import CHILD_STEPS, STEPS
from holdfast.lab.gate.scenario import Findings, ScenarioContext
from holdfast.lab.gate.verdict import Proof, proofs_of

ORDERS = 16
HELD_MIN = 2  # effects of the victim, when it is stopped
HOLD_MS = Millis(500)
BEGUN_SECONDS = 20.0
NOTICED_SECONDS = 15.0
PROBES = 4


async def zombies(context: ScenarioContext) -> Findings:
    workers = of_role(context.cluster, "worker")

    def ready(name: str) -> bool:
        """Whether it holds some, and is about to end one of them."""
        return context.under_way(name, HOLD_MS) >= HELD_MIN and context.under_way(name, HOLD_MS, CHILD_STEPS) > 0

    async with context.load("zombies") as load:
        async with asyncio.TaskGroup() as orders:
            for _ in range(ORDERS):
                orders.create_task(load.order(hold_ms=HOLD_MS))
                await context.pause(HOLD_MS * len(STEPS) / ORDERS / 1000)  # so that they are not all at the same step
            held = await context.until(lambda: any(map(ready, workers)), seconds=BEGUN_SECONDS)
            victim = max(workers, key=lambda name: (ready(name), context.under_way(name, HOLD_MS)))
            victims = [victim, *of_role(context.cluster, "scheduler")[:1]]
            pid = context.cluster.members[victim].pid
            context.tell(f"SIGSTOP {' and '.join(victims)}")
            for name in victims:
                await context.nemesis.stop(name)
        before = await reader.finals(load)
        context.tell(f"SIGCONT {' and '.join(victims)}: {len(before)} runs were done without them", load.done)
        resumed = [await context.nemesis.resume(name, unaware=True) for name in victims]
        noticed = await _noticed(context, load, pid, resumed[0].at_ms)
        checked = await context.checked(load, before=before)
    proofs = (
        Proof("stopped with effects under way", int(held)),
        Proof("runs done without them", len(before)),
        Proof("zombie noticed that it is one", int(noticed)),
        Proof("stale writes refused", checked.counts.stale),
        *proofs_of(checked),
    )
    return Findings(checked=(checked,), proofs=proofs)


async def _noticed(context: ScenarioContext, load: Load, pid: int, since_ms: Instant) -> bool:
    """Whether the zombie has said that it lost its lease or its runs.

    New work is done after that, so time has passed in which it could have written.
    """

    def said() -> bool:
        told = reader.notices(context.cluster.members.values(), since_ms)
        return any(notice.pid == pid and notice.said != "rescued" for notice in told)

    noticed = await context.until(said, seconds=NOTICED_SECONDS)
    await asyncio.gather(*(load.order() for _ in range(PROBES)))
    return noticed
