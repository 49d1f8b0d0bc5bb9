"""Soak: faults at random for as long as it is asked for, in rounds that are checked one by one.

A round is a minute of load under faults of all kinds, sometimes two at once, then everything heals, all orders are
waited for, and the round is checked. So a soak of any length needs no more memory than one round, and says early what
is wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from holdfast.adapters.machine import SystemIds
from holdfast.kernel.times import Millis, Steady
from holdfast.lab.gate.cluster import REPLICAS, of_role
from holdfast.lab.gate.load import Load
from holdfast.lab.gate.scenario import Findings, Recovery, ScenarioContext
from holdfast.lab.gate.scenarios.failovers import recovery_of
from holdfast.lab.gate.verdict import Checked, Proof, proofs_of

T = TypeVar("T")
ROUND_MS = Millis(60_000)
CLIENTS = 4
DEEDS = ("kill", "kill", "kill two", "stop", "terminate", "server")
_ids = SystemIds()


async def soak(context: ScenarioContext) -> Findings:
    end_steady_ms = context.clock.steady_ms() + context.options.soak_ms
    rounds: list[Checked] = []
    recoveries: list[Recovery] = []
    while (now_steady_ms := context.clock.steady_ms()) < end_steady_ms:
        context.begin("soak")
        until_steady_ms = min(end_steady_ms, now_steady_ms + ROUND_MS)
        async with context.load(f"soak{len(rounds) + 1}") as load:
            async with asyncio.TaskGroup() as group:
                harming = group.create_task(_harm(context, load, until_steady_ms, recoveries))
                await load.flow(CLIENTS, lambda harming=harming: not harming.done())
            rounds.append(await context.checked(load))
        context.tell(f"round {len(rounds)} is over", sum(each.counts.orders for each in rounds))
    together = [proofs_of(each) for each in rounds]
    proofs = tuple(
        Proof(same[0].what, sum(each.seen for each in same), same[0].needed) for same in zip(*together, strict=True)
    )
    return Findings(checked=tuple(rounds), proofs=proofs, recoveries=tuple(recoveries))


async def _harm(context: ScenarioContext, load: Load, until_steady_ms: Steady, recoveries: list[Recovery]) -> None:
    while context.clock.steady_ms() < until_steady_ms:
        replica = _any_of(of_role(context.cluster, *REPLICAS))
        match _any_of(DEEDS):
            case "kill":
                recoveries.append(await recovery_of(context, load, [replica]))
            case "kill two":
                context.tell(f"SIGKILL {replica}", load.done)
                await context.nemesis.kill(replica)
                recoveries.append(await recovery_of(context, load, [_other(context, replica)]))
            case "stop":
                await _stop(context, load, _any_of(of_role(context.cluster, "worker", "scheduler")))
            case "terminate":
                context.tell(f"SIGTERM {replica}", load.done)
                await context.nemesis.terminate(replica)
            case _:
                servers = [context.cluster.primary(), *of_role(context.cluster, "nats")]
                recoveries.append(await recovery_of(context, load, [_any_of(servers)]))
        await context.nemesis.heal()
        await context.pause(_ids.chance())


async def _stop(context: ScenarioContext, load: Load, victim: str) -> None:
    """Past its lease; it goes on when everything heals."""
    context.tell(f"SIGSTOP {victim}", load.done)
    await context.nemesis.stop(victim)
    await context.pause(1.5 * context.options.lease_ms / 1000)


def _other(context: ScenarioContext, name: str) -> str:
    """A replica of another role: two of one role could be all there are."""
    role = context.cluster.members[name].role
    return _any_of(of_role(context.cluster, *(each for each in REPLICAS if each != role)))


def _any_of(things: Sequence[T]) -> T:
    return things[int(_ids.chance() * len(things))]
