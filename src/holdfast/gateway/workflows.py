"""Workflows: what they declare, and which run holds a key."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from holdfast import wire
from holdfast.gateway.endpoints import ApiRequest, Endpoint, JsonResponse, NoParameters
from holdfast.wire import outbound


class KeyQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key may have any characters, so it has no place in a path."""

    key: Annotated[
        str, Meta(min_length=1, max_length=255, description="The key, as a whole.", examples=["checkout:o-1"])
    ]


async def listed(request: ApiRequest[NoParameters, None]) -> JsonResponse:
    """Each with its key, its markers, and the JSON schemas of its input and its result."""
    return JsonResponse(
        wire.WorkflowsView([outbound.workflow(each) for each in await request.caller.verbs.workflows()])
    )


async def one(request: ApiRequest[NoParameters, None]) -> JsonResponse:
    """Its key, its markers, its retention, and the JSON schemas from which a form or a client can be made."""
    return JsonResponse(outbound.workflow(await request.caller.verbs.workflow(request.path["name"])))


async def holder(request: ApiRequest[KeyQuery, None]) -> JsonResponse:
    """The run that a start under this key would be led to."""
    return JsonResponse(outbound.run(await request.caller.verbs.find(request.path["name"], request.query.key)))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/workflows",
        handler=listed,
        summary="The workflows that can be started here",
        scope="read",
        responses={200: wire.WorkflowsView},
    ),
    Endpoint(
        method="GET",
        path="/v1/workflows/{name}",
        handler=one,
        summary="What a workflow declares, with the schemas of its input and its result",
        scope="read",
        responses={200: wire.WorkflowView},
        refuses=(404,),
    ),
    Endpoint(
        method="GET",
        path="/v1/workflows/{name}/holder",
        handler=holder,
        summary="The run that holds a key",
        scope="read",
        query=KeyQuery,
        responses={200: wire.RunView},
        refuses=(404,),
    ),
)
