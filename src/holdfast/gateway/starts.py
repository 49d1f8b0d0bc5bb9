"""Starting runs.

the request has                                            a repetition of it
─────────────────────────────────────────────────────────  ──────────────────────────────────────────────────
a key, or its workflow has one                             returns 200, with the run that holds the key
the same, and an Idempotency-Key                           returns the run and the status of the first time
the same, and another body or workflow                     is refused with 422: the header names one request
an Idempotency-Key and no key                              returns 200: the header is the key
a `request_id` in the body                                 returns 201 again, whether or not there is a key
none of these                                              starts another run

A repetition under an Idempotency-Key has the header `Idempotency-Replayed: true`.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct

from holdfast import wire
from holdfast.calls import Call
from holdfast.client import Run
from holdfast.errors import RunError
from holdfast.gateway import idempotency, waiting
from holdfast.gateway.endpoints import ApiRequest, Endpoint, Header, JsonResponse
from holdfast.gateway.start_replays import StartReplay
from holdfast.gateway.waiting import Wait
from holdfast.kernel import keys
from holdfast.wire import outbound
from holdfast.wire.starts import TRACEPARENT, options_of


class StartQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How long to wait for the end, and whether another's run is good enough."""

    wait: Wait | None = None
    join: Annotated[
        bool,
        Meta(
            description="Whether a live run that holds the key is good enough; if not, it is `409` with `in_flight`.",
            examples=[False],
        ),
    ] = True


async def start(request: ApiRequest[StartQuery, wire.StartBody]) -> JsonResponse:
    """Starts the workflow with the arguments in `input`. If a run holds the key, that run is returned with `200`."""
    body, verbs = request.body, request.caller.verbs
    seconds = waiting.seconds_of(request.query.wait, request.context.settings)
    call = verbs.call(request.path["name"], b"{}" if body.input is UNSET else bytes(body.input))
    assert isinstance(call, Call)
    request_id = idempotency.request_id(request, body.request_id)
    header = idempotency.header_of(request)
    is_key = request_id is not None and body.key is None and body.request_id is None and call.target.key is None
    replay = (
        None
        if header is None or is_key
        else StartReplay(request, header=header, workflow=call.target.name, join=request.query.join)
    )
    with waiting.slot(request, seconds):
        earlier = None if replay is None else await replay.earlier()
        run, created = earlier or await verbs.start(
            call,
            key=keys.of_request(request_id) if is_key and request_id is not None else body.key,
            request_id=None if is_key else request_id,
            replace=None if body.replace is None else await verbs.get(body.replace),
            signal=None if body.signal is None else await _signal(request, body.signal, request_id),
            join=request.query.join,
            traceparent=request.sent.header(TRACEPARENT),
            **options_of(body),
        )
        if replay is not None and earlier is None:
            await replay.keep(run, created=created)
        run = await waiting.wait_until_settled(request, seconds, run)
    status = 201 if created else 200
    repeated = earlier is not None or (replay is not None and created and replay.was_there(run))
    if replay is not None and repeated:
        replay.tell(status)
    view = await _with_its_end(run) if seconds and run.is_settled else outbound.run(run)
    headers = {"Location": f"/v1/runs/{run.id}"}
    if repeated or not created:
        headers["Idempotency-Replayed"] = "true"
    return JsonResponse(view, status, headers)


async def _signal(
    request: ApiRequest[Any, Any], signal: wire.SentSignalBody, request_id: str | None
) -> tuple[str, Any] | tuple[str, Any, str]:
    # A request that is repeated must not deliver twice.
    dedupe = request_id if signal.dedupe is None else await idempotency.own_dedupe(request, signal.dedupe)
    return (signal.hook, signal.payload) if dedupe is None else (signal.hook, signal.payload, dedupe)


async def _with_its_end(run: Run[Any]) -> wire.RunView:
    try:
        return outbound.run(run, result=Raw(await run.result_json()))
    except RunError:  # it has failed, is blocked, or was cancelled
        return outbound.run(run)


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/v1/workflows/{name}/runs",
        handler=start,
        summary="Start a run, once per key",
        starts=True,
        scope="write",
        query=StartQuery,
        body=wire.StartBody,
        body_optional=True,
        responses={201: wire.RunView, 200: wire.RunView},
        response_headers={
            201: {
                "Location": "The address of the run.",
                "Idempotency-Replayed": "`true`: an earlier request with this `Idempotency-Key` started the run.",
            },
            200: {"Location": "The address of the run.", "Idempotency-Replayed": "`true`: the run was there already."},
        },
        refuses=(404, 409, 422, 429),
        headers={
            idempotency.HEADER: Header(
                "Names the request: a repetition gets the run of the first one, another body under it is refused with "
                "422. If the run has no other key, it is the key.",
                length_max=idempotency.LENGTH_MAX,
                example=idempotency.EXAMPLE,
            ),
            TRACEPARENT: Header(
                "The span that causes the start (W3C Trace Context).",
                example="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            ),
        },
    ),
)
