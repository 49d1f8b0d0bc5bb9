"""Workers: all gateways know the same workers, and these are the processes that live."""

from __future__ import annotations

from holdfast.gateway_client import Client
from holdfast.lab.gate.cluster import of_role
from holdfast.lab.gate.evidence import Violation
from holdfast.lab.gate.scenario import Findings, ScenarioContext
from holdfast.lab.gate.verdict import Proof

LEASES = 4  # after so many, a process that was killed before this scenario has been forgotten everywhere
PAUSE_SECONDS = 0.2
Known = tuple[tuple[str, int], ...]  # each worker by its name and its process


async def workers(context: ScenarioContext) -> Findings:
    alive = sorted(context.cluster.members[name].pid for name in of_role(context.cluster, "worker"))
    give_up_steady_ms = context.clock.steady_ms() + context.options.lease_ms * LEASES
    while True:
        sets = {url: await _known_at(url, context.cluster.api_key) for url in context.cluster.gateway_urls}
        agree = len(set(sets.values())) == 1 and all(_pids(known) == alive for known in sets.values())
        if agree or context.clock.steady_ms() > give_up_steady_ms:
            break
        await context.pause(PAUSE_SECONDS)
    differ = [
        Violation("workers_differ", url, f"knows {_pids(known)}, and {alive} live") for url, known in sets.items()
    ]
    proofs = (Proof("gateways asked", len(sets), 2), Proof("live workers", len(alive), 2))
    return Findings(violations=() if agree else tuple(differ), proofs=proofs)


def _pids(known: Known) -> list[int]:
    return sorted(pid for _, pid in known)


async def _known_at(url: str, api_key: str | None) -> Known:
    async with Client(url, api_key=api_key) as client:
        return tuple(sorted((member.owner, member.serves.pid) for member in await client.workers()))
