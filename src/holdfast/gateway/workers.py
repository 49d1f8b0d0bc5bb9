"""Who is at work, and how much there is to do."""

from __future__ import annotations

from holdfast import wire
from holdfast.gateway.endpoints import ApiRequest, Endpoint, JsonResponse, NoParameters
from holdfast.wire import outbound


async def listed(request: ApiRequest[NoParameters, None]) -> JsonResponse:
    """Each process that executes runs, with its lease and how many runs it holds."""
    return JsonResponse(wire.WorkersView([outbound.worker(each) for each in await request.caller.verbs.workers()]))


async def backlog(request: ApiRequest[NoParameters, None]) -> JsonResponse:
    """Counts by status, and for each workflow how many of its runs are ready and since when."""
    return JsonResponse(outbound.backlog(await request.caller.verbs.backlog()))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/workers",
        handler=listed,
        summary="The live workers",
        scope="read",
        responses={200: wire.WorkersView},
    ),
    Endpoint(
        method="GET",
        path="/v1/backlog",
        handler=backlog,
        summary="How many runs there are by status, and how many wait for a worker",
        scope="read",
        responses={200: wire.BacklogView},
    ),
)
