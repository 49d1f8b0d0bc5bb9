"""Revocations: an API key that all gateways know is revoked at one of them. All must refuse it in the promised time."""

from __future__ import annotations

from holdfast.errors import NotAuthenticated
from holdfast.gateway_client import Client
from holdfast.kernel.times import Millis
from holdfast.lab.gate.evidence import KeyUse
from holdfast.lab.gate.gateway_rules import REVOKED_MS_MAX
from holdfast.lab.gate.scenario import Findings, ScenarioContext
from holdfast.lab.gate.verdict import Proof

SLACK_MS = Millis(300)
LOOKS = 4  # until then, and one behind it


async def revocations(context: ScenarioContext) -> Findings:
    async with context.load("revocations") as load:
        first = load.urls[0]
        async with Client(first, api_key=context.cluster.api_key) as owner:
            token, key = await owner.api_keys.create("to be revoked", scope="read")
            known = [await _is_accepted(url, token) for url in load.urls]
            await owner.api_keys.revoke("", key.id)
        revoked_steady_ms = context.clock.steady_ms()
        for _ in range(LOOKS + 1):
            for url in load.urls:
                after_ms = Millis(int(context.clock.steady_ms() - revoked_steady_ms))
                is_accepted = await _is_accepted(url, token)
                load.key_uses.append(KeyUse(gateway=url, after_ms=after_ms, accepted=is_accepted))
            await context.pause((REVOKED_MS_MAX + SLACK_MS) / LOOKS / 1000)
        checked = await context.checked(load)
    proofs = (
        Proof("gateways that accepted the key before", sum(known), len(load.urls)),
        Proof("gateways that refused it afterwards", sum(not use.accepted for use in load.key_uses), len(load.urls)),
    )
    return Findings(checked=(checked,), proofs=proofs)


async def _is_accepted(url: str, token: str) -> bool:
    async with Client(url, api_key=token) as client:
        try:
            await client.workers()
        except NotAuthenticated:
            return False
        return True
