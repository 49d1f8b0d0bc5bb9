"""Bulk operations: one verb on all runs that a filter means, as a run of its own; and what it would do."""

from __future__ import annotations

from holdfast import wire
from holdfast.gateway import idempotency
from holdfast.gateway.endpoints import ApiRequest, Endpoint, Header, JsonResponse, NoParameters
from holdfast.wire import bulks, outbound


async def start(request: ApiRequest[NoParameters, wire.BulkBody]) -> JsonResponse:
    """Start a run that applies the verb to each run that is meant, once, though its worker is killed in the middle.

    The runs that are meant were created before it. Its attributes say how far it is, its result what became of them.
    Cancelled, it stands still, and may be resumed.
    """
    body = request.body
    run, created = await bulks.runs_of(request.caller.verbs, body.runs).bulk(
        body.verb,
        rate=body.rate,
        reason=body.reason,
        key=body.key,
        request_id=idempotency.request_id(request, body.request_id),
        deadline=body.deadline,
        hook=body.hook,
        payload=body.payload,
    )
    headers = {"Location": f"/v1/runs/{run.id}"}
    if not created:
        return JsonResponse(outbound.run(run), 200, headers | {"Idempotency-Replayed": "true"})
    return JsonResponse(outbound.run(run), 201, headers)


async def dry_run(request: ApiRequest[NoParameters, wire.DryRunBody]) -> JsonResponse:
    """Count the runs that a bulk operation would take, and show the first ones. Nothing is changed."""
    body = request.body
    found = await bulks.runs_of(request.caller.verbs, body.runs).dry_run(
        body.verb, hook=body.hook, payload=body.payload, first=body.first
    )
    return JsonResponse(bulks.preview(found))


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/v1/bulk",
        handler=start,
        starts=True,
        summary="Retry, cancel, resume or signal all runs that a filter means, as a run of its own",
        scope="write",
        body=wire.BulkBody,
        responses={201: wire.RunView, 200: wire.RunView},
        response_headers={
            201: {"Location": "The address of the bulk run."},
            200: {
                "Location": "The address of the bulk run.",
                "Idempotency-Replayed": "`true`: the run was there already.",
            },
        },
        refuses=(404, 409, 422),
        headers={
            idempotency.HEADER: Header(
                "Names the request, unless `request_id` does.",
                length_max=idempotency.LENGTH_MAX,
                example="retry-after-the-outage",
            )
        },
    ),
    Endpoint(
        method="POST",
        path="/v1/bulk/dry-run",
        handler=dry_run,
        summary="What a bulk operation would do: how many runs are meant, and what would become of the first ones",
        scope="write",
        body=wire.DryRunBody,
        responses={200: wire.BulkPreviewView},
        refuses=(404,),
    ),
)
