"""Amnesia: Redis dies and has forgotten its last writes, as one may that does not sync each of them.

Runs are taken up after the moment to which Redis goes back, and their effects are under way when it dies. Nobody has
lost a lease, so their holders go on; but by what Redis knows the runs are free, and other workers take them up. The
store issues the same epoch a second time: only the nonce tells the two holders apart. The first one, which stood still
meanwhile, comes back with its value, and dies. The second one must not take that value's record for its own: a run
returns what its journal holds.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection

from holdfast.lab.gate.cluster import of_role
from holdfast.lab.gate.evidence import Call
from holdfast.lab.gate.load import Load
from holdfast.lab.gate.pack import nap
from holdfast.lab.gate.scenario import Findings, Stage
from holdfast.lab.gate.verdict import Proof

NAPS = 12
DELAY_MS = 400  # from the start of the runs: enough for all of them to be admitted
PROBES = 6
ROUNDS_MAX = 3  # until another process has taken up what the first one held
BEGUN_SECONDS = 10.0
WRITTEN_MS = 80  # an effect has returned, and its record is written


async def amnesia(stage: Stage) -> Findings:
    redis, hold_ms = stage.site.primary(), stage.options.lease_ms // 2
    async with stage.load("amnesia") as load:
        for _ in range(ROUNDS_MAX):
            await _forget(stage, load, redis, hold_ms)
            await stage.nemesis.heal()
            if _held_twice(stage, load):
                break
        checked = await stage.checked(load)
    proofs = (
        Proof("runs with two holders at once", len(_held_twice(stage, load))),
        Proof("stale writes refused", checked.counts.stale),
    )
    return Findings(checked=(checked,), proofs=proofs)


async def _forget(stage: Stage, load: Load, redis: str, hold_ms: int) -> None:
    known = len(load.answers)
    async with asyncio.TaskGroup() as naps:
        for _ in range(NAPS):
            naps.create_task(load.other(lambda order: nap(order, hold_ms, hold_ms=hold_ms), delay_ms=DELAY_MS))
        await stage.until(lambda: len(load.answers) >= known + NAPS, seconds=BEGUN_SECONDS)
        written = stage.site.written(redis)
        await stage.until(lambda: stage.holding("doze", hold_ms) >= NAPS, seconds=BEGUN_SECONDS)
        victim = max(of_role(stage.site, "worker"), key=lambda name: stage.under_way(name, hold_ms))
        pid = stage.site.parts[victim].pid
        await stage.nemesis.stop(victim)
        stage.tell(f"SIGSTOP {victim}; {redis} forgets")
        await stage.nemesis.forget(redis, written)
        for _ in range(PROBES):  # a worker that is told of new work finds the rest as well
            naps.create_task(load.order())
        await stage.until(lambda: bool(_held_twice(stage, load)), seconds=hold_ms / 1000)
        await stage.nemesis.resume(victim)
        held = [call for call in stage.calls() if call.pid == pid and call.order.startswith(load.name)]
        over_ms = max((call.at_ms + hold_ms for call in held), default=0)
        await stage.until(lambda: stage.clock.wall_ms() > over_ms + WRITTEN_MS, seconds=BEGUN_SECONDS)
        stage.tell(f"SIGKILL {victim}")
        await stage.nemesis.kill(victim)


def _held_twice(stage: Stage, load: Load) -> list[list[Call]]:
    """The calls of the first effect of each run that two processes performed at the same time."""
    return overlapping(stage.calls(), {other.key for other in load.others})


def overlapping(calls: Collection[Call], orders: Collection[str]) -> list[list[Call]]:
    dozing: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        if call.step == "doze" and call.order in orders:
            dozing[call.run].append(call)
    return [
        of_run
        for of_run in dozing.values()
        if len({call.pid for call in of_run if call.at_ms < of_run[0].at_ms + of_run[0].hold_ms}) > 1
    ]
