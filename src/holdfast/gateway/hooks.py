"""Hooks for whoever has the token: a payment provider, a person with a link."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from holdfast import wire
from holdfast.gateway import idempotency
from holdfast.gateway.endpoints import Answer, Asked, Endpoint, Header
from holdfast.wire import outbound


class HookQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which payload it is: one that has come before is not delivered again."""

    dedupe: wire.Key | None = None


async def deliver(asked: Asked[HookQuery, Any]) -> Answer:
    dedupe = await idempotency.dedupe_id(asked, asked.query.dedupe)
    return Answer(
        outbound.run(await asked.caller.verbs.resume_hook(asked.path["token"], asked.body, dedupe=dedupe)), 202
    )


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/v1/hooks/{token:path}",
        handler=deliver,
        summary="Send a payload to whichever run holds the token: any JSON",
        scope="write",
        query=HookQuery,
        body=Any,
        answers={202: wire.RunView},
        refuses=(404, 422),
        headers={
            idempotency.HEADER: Header("Names the payload, unless `dedupe` does.", length_max=idempotency.LENGTH_MAX)
        },
    ),
)
