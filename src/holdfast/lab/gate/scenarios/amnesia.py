"""Amnesia: Redis dies and has forgotten its last writes, as one may that does not sync each of them.

Runs are taken up after the moment to which Redis goes back, and their effects are under way when it dies. Their
holders have lost no lease, so they go on; but Redis holds the runs for free, and other workers take them up. The
store issues the same epoch a second time: only the nonce tells the two holders apart. The first one, which stood still
meanwhile, comes back with its value, and dies. The second one must not take that value's record for its own: a run
returns what its journal holds.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection

from holdfast.kernel.times import Millis
from holdfast.lab.gate.cluster import of_role
from holdfast.lab.gate.evidence import EffectCall
from holdfast.lab.gate.load import Load
from holdfast.lab.gate.pack import nap
from holdfast.lab.gate.scenario import Findings, ScenarioContext
from holdfast.lab.gate.verdict import Proof

NAPS = 12
DELAY_MS = Millis(400)  # from the start of the runs: enough for all of them to be admitted
PROBES = 6
ROUNDS_MAX = 3  # until another process has taken up what the first one held
BEGUN_SECONDS = 10.0
WRITTEN_MS = Millis(80)  # an effect has returned, and its record is written


async def amnesia(context: ScenarioContext) -> Findings:
    redis, hold_ms = context.cluster.primary(), context.options.lease_ms // 2
    async with context.load("amnesia") as load:
        for _ in range(ROUNDS_MAX):
            await _forget(context, load, redis, hold_ms)
            await context.nemesis.heal()
            if _held_twice(context, load):
                break
        checked = await context.checked(load)
    proofs = (
        Proof("runs with two holders at once", len(_held_twice(context, load))),
        Proof("stale writes refused", checked.counts.stale),
    )
    return Findings(checked=(checked,), proofs=proofs)


async def _forget(context: ScenarioContext, load: Load, redis: str, hold_ms: Millis) -> None:
    known = len(load.accepted_starts)
    async with asyncio.TaskGroup() as naps:
        for _ in range(NAPS):
            naps.create_task(load.other(lambda order: nap(order, hold_ms, hold_ms=hold_ms), delay_ms=DELAY_MS))
        await context.until(lambda: len(load.accepted_starts) >= known + NAPS, seconds=BEGUN_SECONDS)
        written = context.cluster.written(redis)
        await context.until(lambda: context.holding("doze", hold_ms) >= NAPS, seconds=BEGUN_SECONDS)
        victim = max(of_role(context.cluster, "worker"), key=lambda name: context.under_way(name, hold_ms))
        pid = context.cluster.members[victim].pid
        await context.nemesis.stop(victim)
        context.tell(f"SIGSTOP {victim}; {redis} forgets")
        await context.nemesis.forget(redis, written)
        for _ in range(PROBES):  # a worker that is told of new work finds the rest as well
            naps.create_task(load.order())
        await context.until(lambda: bool(_held_twice(context, load)), seconds=hold_ms / 1000)
        await context.nemesis.resume(victim)
        held = [call for call in context.calls() if call.pid == pid and call.order.startswith(load.name)]
        over_at_ms = max((call.at_ms + hold_ms for call in held), default=0)
        await context.until(lambda: context.clock.wall_ms() > over_at_ms + WRITTEN_MS, seconds=BEGUN_SECONDS)
        context.tell(f"SIGKILL {victim}")
        await context.nemesis.kill(victim)


def _held_twice(context: ScenarioContext, load: Load) -> list[list[EffectCall]]:
    """The calls of the first effect of each run that two processes performed at the same time."""
    return overlapping(context.calls(), {other.key for other in load.others})


def overlapping(calls: Collection[EffectCall], orders: Collection[str]) -> list[list[EffectCall]]:
    dozing: dict[str, list[EffectCall]] = defaultdict(list)
    for call in calls:
        if call.step == "doze" and call.order in orders:
            dozing[call.run].append(call)
    return [
        of_run
        for of_run in dozing.values()
        if len({call.pid for call in of_run if call.at_ms < of_run[0].at_ms + of_run[0].hold_ms}) > 1
    ]
