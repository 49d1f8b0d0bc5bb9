"""Hooks for the holder of a token: a payment provider, a person with a link."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from holdfast import wire
from holdfast.gateway import idempotency
from holdfast.gateway.endpoints import ApiRequest, Endpoint, Header, JsonResponse
from holdfast.wire import outbound


class HookQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which payload it is: one that has come before is not delivered again."""

    dedupe: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=255,
                description="Names the payload: the same one is delivered once.",
                examples=["evt_1042"],
            ),
        ]
        | None
    ) = None


async def deliver(request: ApiRequest[HookQuery, Any]) -> JsonResponse:
    """The body is the payload. It is checked against the type of the hook, and `422` says what does not fit."""
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
            idempotency.HEADER: Header(
                "Names the payload, unless `dedupe` does.",
                length_max=idempotency.LENGTH_MAX,
                example=idempotency.EXAMPLE,
            )
        },
    ),
)
