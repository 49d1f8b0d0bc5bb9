"""Hooks for the holder of a token: a payment provider, a person with a link."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from holdfast import wire
from holdfast.gateway import idempotency
from holdfast.gateway.endpoints import ApiRequest, Endpoint, Header, JsonResponse
from holdfast.wire import outbound


class HookQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which payload it is: one that has come before is not delivered again."""

    dedupe: wire.Key | None = None


async def deliver(request: ApiRequest[HookQuery, Any]) -> JsonResponse:
    dedupe = await idempotency.dedupe_id(request, request.query.dedupe)
    return JsonResponse(
        outbound.run(await request.caller.verbs.resume_hook(request.path["token"], request.body, dedupe=dedupe)), 202
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
        responses={202: wire.RunView},
        refuses=(404, 422),
        headers={
            idempotency.HEADER: Header("Names the payload, unless `dedupe` does.", length_max=idempotency.LENGTH_MAX)
        },
    ),
)
