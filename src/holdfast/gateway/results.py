"""The result of a run, now or as soon as it is there."""

from __future__ import annotations

from msgspec import Raw

from holdfast import wire
from holdfast.gateway import waiting
from holdfast.gateway.endpoints import ApiRequest, Endpoint, JsonResponse
from holdfast.gateway.problems import RETRY_AFTER
from holdfast.gateway.waiting import WaitQuery
from holdfast.wire import outbound


async def result(request: ApiRequest[WaitQuery, None]) -> JsonResponse:
    """`200` with the result, `202` with the run while it goes on, `409` if it failed, was cancelled or is blocked."""
    seconds = waiting.seconds_of(request.query.wait, request.context.settings)
    run = await request.caller.verbs.get(request.path["run_id"])
    with waiting.slot(request, seconds):
        run = await waiting.wait_until_settled(request, seconds, run)
    if not run.is_settled:
        return JsonResponse(outbound.run(run), 202, RETRY_AFTER)
    return JsonResponse(wire.ResultView(Raw(await run.result_json())))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/runs/{run_id}/result",
        handler=result,
        summary="What a run returned; 202 while it goes on",
        scope="read",
        query=WaitQuery,
        responses={200: wire.ResultView, 202: wire.RunView},
        refuses=(404, 409),
    ),
)
