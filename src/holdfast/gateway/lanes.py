"""Lanes: who goes after whom, and how many at once."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from holdfast import wire
from holdfast.client import Lane
from holdfast.gateway.endpoints import ApiRequest, Endpoint, JsonResponse, NoParameters
from holdfast.lanes import PAGE, PAGE_MAX
from holdfast.wire import outbound
from holdfast.wire.types import Key


class LanesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a page begins, and how long it is."""

    after: Annotated[Key | None, Meta(description="The `next` of the page before.", examples=["deploy:api"])] = None
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX, description="How many lanes at most.", examples=[20])] = PAGE


async def listed(request: ApiRequest[LanesQuery, None]) -> JsonResponse:
    """Those that have runs, had some within the last hour, or were set by hand; by name."""
    page = await request.caller.verbs.lanes().page(after=request.query.after, limit=request.query.limit)
    return JsonResponse(wire.LanesView([outbound.lane(each) for each in page.lanes], page.next))


async def one(request: ApiRequest[NoParameters, None]) -> JsonResponse:
    """A lane is forgotten when no run has been in it for an hour."""
    return _shown(await request.caller.verbs.lane(request.path["name"]))


async def change(request: ApiRequest[NoParameters, wire.SetLaneBody]) -> JsonResponse:
    """It counts from now on, and for a lane that no run has entered yet as well. Active runs stay active."""
    body, by = request.body, request.caller.signed(request.body.by)
    verbs = request.caller.verbs
    return _shown(await verbs.set_lane(request.path["name"], width=body.width, paused=body.paused, by=by))


def _shown(lane: Lane) -> JsonResponse:
    return JsonResponse(outbound.lane(lane))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/lanes",
        handler=listed,
        summary="The lanes",
        scope="read",
        query=LanesQuery,
        responses={200: wire.LanesView},
    ),
    Endpoint(
        method="GET",
        path="/v1/lanes/{name:path}",
        handler=one,
        summary="One lane: how many of its runs are active, how many wait, and which are the first",
        scope="read",
        responses={200: wire.LaneView},
        refuses=(404,),
    ),
    Endpoint(
        method="PATCH",
        path="/v1/lanes/{name:path}",
        handler=change,
        summary="Make a lane wider or narrower, pause it or let it go on",
        scope="write",
        body=wire.SetLaneBody,
        responses={200: wire.LaneView},
    ),
)
