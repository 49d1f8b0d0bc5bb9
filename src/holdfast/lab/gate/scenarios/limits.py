"""Limits: several gateways are asked more than their limit lets through. What passes is counted, to the last request.

With B at once and one more for each T of Redis' clock, B + ⌊(t - t₀) / T⌋ requests have passed at t, if one was refused
then: t₀ is when the first of them passed. Clients know both instants only within the time that a request takes. So
when the rush is over, requests go on one at a time until one is refused at an instant about which there is no doubt:
then both ends of what is known come to the same number.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import chain
from typing import NamedTuple

import httpx2

from holdfast.gateway_client import Client
from holdfast.kernel.times import Instant
from holdfast.lab.gate.evidence import Violation
from holdfast.lab.gate.scenario import Findings, ScenarioContext
from holdfast.lab.gate.verdict import Proof
from holdfast.ports.clock import Clock

GATEWAYS = 3
AT_ONCE = 20
INTERVAL_MS = 250
RUSH_SECONDS = 3.0
CLIENTS = 4  # at each gateway
PAUSE_SECONDS = 0.01
ASKED_MAX = 5_000  # in all, until there is no doubt
PASSED, REFUSED = 200, 429
PATH = "/v1/workflows"
SETTINGS = {
    "HOLDFAST_LIMITS_API_KEY": f"1/{INTERVAL_MS}ms burst {AT_ONCE}",
    "HOLDFAST_LIMITS_PATIENCE": "10s",  # with a machine that is busy: what each lets pass alone is not what is counted
}


class LimitReplies(NamedTuple):
    """One request: its status, and between which instants a gateway has held it against its limit."""

    status: int
    since_ms: Instant
    until_ms: Instant


async def limits(context: ScenarioContext) -> Findings:
    cluster = context.cluster
    async with Client(cluster.gateway_urls[0], api_key=cluster.api_key) as owner:
        token, _ = await owner.api_keys.create("to be limited", scope="read")
    with cluster.further_gateways(GATEWAYS, SETTINGS) as urls:
        context.tell(f"{GATEWAYS} gateways, {CLIENTS} clients at each, {AT_ONCE} at once and one for {INTERVAL_MS} ms")
        return await _limited(context, urls, token)


async def _limited(context: ScenarioContext, urls: tuple[str, ...], token: str) -> Findings:
    headers = {"Authorization": f"Bearer {token}"}
    clients = [httpx2.AsyncClient(base_url=url, headers=headers, trust_env=False) for url in urls]
    try:
        first = await _ask(clients[0], context.clock)
        rushes = [asyncio.create_task(_rush(client, context)) for client in clients for _ in range(CLIENTS)]
        asked = [first, *chain.from_iterable(await asyncio.gather(*rushes))]
        last = first
        while len(asked) < ASKED_MAX and not _is_certain(first, last):
            await context.pause(PAUSE_SECONDS)
            asked.append(last := await _ask(clients[len(asked) % len(clients)], context.clock))
    finally:
        for client in clients:
            await client.aclose()
    low, high = _passed(first, last)
    statuses = Counter(each.status for each in asked)
    passed, refused = statuses.pop(PASSED, 0), statuses.pop(REFUSED, 0)
    context.tell(f"{passed} passed, {refused} were refused")
    violations: list[Violation] = []
    if not low <= passed <= high:
        words = f"{passed} requests passed, of {low} that the limit lets through"
        violations.append(Violation("limit_missed", "limits", words))
    if statuses:
        violations.append(Violation("limit_missed", "limits", f"other statuses: {dict(statuses)}"))
    proofs = (
        Proof("requests that passed", passed, AT_ONCE + 1),
        Proof("requests refused with 429", refused, passed),
        Proof("a last request without doubt about its instant", int(_is_certain(first, last))),
    )
    return Findings(violations=tuple(violations), proofs=proofs)


async def _rush(client: httpx2.AsyncClient, context: ScenarioContext) -> list[LimitReplies]:
    asked: list[LimitReplies] = []
    until_steady_ms = context.clock.steady_ms() + RUSH_SECONDS * 1000
    while context.clock.steady_ms() < until_steady_ms:
        asked.append(await _ask(client, context.clock))
        await context.pause(PAUSE_SECONDS)
    return asked


async def _ask(client: httpx2.AsyncClient, clock: Clock) -> LimitReplies:
    since_ms = clock.wall_ms()
    reply = await client.get(PATH)
    return LimitReplies(reply.status_code, since_ms, clock.wall_ms())


def _is_certain(first: LimitReplies, last: LimitReplies) -> bool:
    """Whether there is one number that can have passed until the last one was refused."""
    low, high = _passed(first, last)
    return low == high and last.status == REFUSED


def _passed(first: LimitReplies, last: LimitReplies) -> tuple[int, int]:
    """How many have passed when the last one was held against the limit: at least, and at most."""
    shortest_ms, longest_ms = last.since_ms - first.until_ms, last.until_ms - first.since_ms
    return AT_ONCE + shortest_ms // INTERVAL_MS, AT_ONCE + longest_ms // INTERVAL_MS
