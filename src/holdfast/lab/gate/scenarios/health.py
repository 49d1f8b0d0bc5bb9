"""Health: every part runs, and every replica of every role says that it lives and is ready."""

from __future__ import annotations

import asyncio

from holdfast.lab.cluster.probes import is_ok
from holdfast.lab.gate.cluster import REPLICAS, of_role
from holdfast.lab.gate.evidence import Violation
from holdfast.lab.gate.scenario import Findings, ScenarioContext
from holdfast.lab.gate.verdict import Proof

PATHS = ("/livez", "/readyz")


async def health(context: ScenarioContext) -> Findings:
    members = context.cluster.members
    dead = [Violation("unhealthy", name, member.state) for name, member in members.items() if member.state != "running"]
    replicas = of_role(context.cluster, *REPLICAS)
    asked = [(name, path) for name in replicas for path in PATHS]
    replies = await asyncio.gather(*(asyncio.to_thread(is_ok, members[name].port, path) for name, path in asked))
    sick = [
        Violation("unhealthy", name, f"{path} did not return 200")
        for (name, path), is_well in zip(asked, replies, strict=True)
        if not is_well
    ]
    return Findings(violations=(*dead, *sick), proofs=(Proof("replicas asked", len(replicas), len(REPLICAS)),))
