"""Runs: find them, look at them, and move them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct

from holdfast import wire
from holdfast.client import PAGE, Run
from holdfast.gateway import idempotency, waiting
from holdfast.gateway.endpoints import ApiRequest, Endpoint, Header, JsonResponse, NoParameters
from holdfast.gateway.problems import RETRY_AFTER, Malformed
from holdfast.gateway.waiting import WaitQuery
from holdfast.kernel.searches import PAGE_MAX
from holdfast.run import send
from holdfast.wire import inbound, outbound

DAY = "2026-11-16T00:00:00Z"  # in examples
_decode_filters = msgspec.json.Decoder(dict[str, str | int | float | bool | wire.Filter]).decode


class SearchQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which runs are meant: those for which all of it holds."""

    workflow: (
        Annotated[
            str,
            Meta(max_length=255, description="The name of the workflow, with its pack.", examples=["shop.checkout"]),
        ]
        | None
    ) = None
    status: (
        Annotated[
            list[wire.Status],
            Meta(description="One status, or several: send the parameter once for each.", examples=[["failed"]]),
        ]
        | None
    ) = None
    attributes: (
        Annotated[
            str,
            Meta(
                description="A JSON object: what each attribute is, or the range in which it lies.",
                examples=['{"customer": "c-1", "total": {"ge": 10, "lt": 20}}'],
            ),
        ]
        | None
    ) = None
    key_prefix: (
        Annotated[str, Meta(max_length=255, description="How the key of the run begins.", examples=["checkout:o-1"])]
        | None
    ) = None
    created_after: (
        Annotated[datetime, Meta(tz=True, description="Created at this instant or later.", examples=[DAY])] | None
    ) = None
    created_before: (
        Annotated[datetime, Meta(tz=True, description="Created before this instant.", examples=[DAY])] | None
    ) = None
    finished_after: (
        Annotated[datetime, Meta(tz=True, description="Ended at this instant or later.", examples=[DAY])] | None
    ) = None
    finished_before: (
        Annotated[datetime, Meta(tz=True, description="Ended before this instant.", examples=[DAY])] | None
    ) = None
    newest_first: Annotated[
        bool, Meta(description="Whether the newest come first; if not, the oldest do.", examples=[False])
    ] = True
    roots_only: Annotated[bool, Meta(description="Leave out runs that another run has started.", examples=[True])] = (
        False
    )
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX, description="How many runs a page has.", examples=[100])] = PAGE
    after: (
        Annotated[
            str,
            Meta(
                min_length=1,
                description="The `next` of the page before.",
                examples=["1763424000000.0199a3f0c1d24a6f8b1e5c7d9a0b3e42"],
            ),
        ]
        | None
    ) = None


# -- looking


async def listed(request: ApiRequest[SearchQuery, None]) -> JsonResponse:
    """Runs of this namespace, a page at a time. `next` of a page is the `after` of the following one."""
    query = request.query
    found = request.caller.verbs.runs(
        query.workflow,
        query.status,
        attributes=None if query.attributes is None else _filters(query.attributes),
        key_prefix=query.key_prefix,
        created_after=query.created_after,
        created_before=query.created_before,
        finished_after=query.finished_after,
        finished_before=query.finished_before,
        newest_first=query.newest_first,
        roots_only=query.roots_only,
    )
    return JsonResponse(outbound.page(await found.page(after=query.after, limit=query.limit)))


def _filters(text: str) -> dict[str, Any]:
    try:
        return inbound.conditions(_decode_filters(text))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Malformed(f"attributes={text:.60} does not fit: {error}", hint='Send {"customer": "c-1"}.') from None


async def one(request: ApiRequest[NoParameters, None]) -> JsonResponse:
    """Everything about the run but its payloads: status, key, attributes, markers, what it waits for, why it failed."""
    return JsonResponse(outbound.run(await _run(request)))


async def input_of(request: ApiRequest[NoParameters, None]) -> JsonResponse:
    """The input as it was sent, as a JSON object."""
    return JsonResponse(await (await _run(request)).input_json())


async def journal(request: ApiRequest[NoParameters, None]) -> JsonResponse:
    """Every entry as it is recorded, with its payloads and the traceback of each failure."""
    return JsonResponse(outbound.journal(await (await _run(request)).journal()))


async def explain(request: ApiRequest[NoParameters, None]) -> JsonResponse:
    """The journal in sentences, what the run waits for now, and which verbs are possible."""
    return JsonResponse(outbound.story(await (await _run(request)).explain()))


async def receipt(request: ApiRequest[NoParameters, None]) -> JsonResponse:
    """Every effect that was begun, as performed, undone or unknown; and the children."""
    return JsonResponse(outbound.receipt(await (await _run(request)).receipt()))


# -- moving


async def cancel(request: ApiRequest[WaitQuery, wire.CancelBody]) -> JsonResponse:
    """Asks the run to stop, and waits for its cleanup: at most as long as `wait` says. Its receipt is the response."""
    settings = request.context.settings
    seconds = waiting.seconds_of(request.query.wait, settings, otherwise=settings.wait_seconds_max)
    run = await _run(request)
    with waiting.slot(request, seconds):
        cancelling = await run.ask_cancel(request.body.reason, deadline=request.body.deadline)
        done = await waiting.within(request, seconds, cancelling.receipt())
    if done is None:  # it goes on without us
        return JsonResponse(
            outbound.run(await run.refresh()), 202, {"Location": f"/v1/runs/{run.id}/receipt", **RETRY_AFTER}
        )
    return JsonResponse(outbound.receipt(done.result()))


async def resume(request: ApiRequest[NoParameters, None]) -> JsonResponse:
    """For workflows that are declared as resumable: what was cancelled continues where it stood."""
    return JsonResponse(outbound.run(await (await _run(request)).resume()))


async def retry(request: ApiRequest[NoParameters, None]) -> JsonResponse:
    """What is recorded is not done again; the run goes on with the code of today."""
    return JsonResponse(outbound.run(await (await _run(request)).retry()))


async def decide(request: ApiRequest[NoParameters, wire.DecideBody]) -> JsonResponse:
    """For an effect that may or may not have happened. It is recorded with the name of the API key, and with `by`."""
    body = request.body
    run = await (await _run(request)).decide(
        body.step,
        returned=body.returned,
        failed=body.failed,
        not_performed=body.not_performed,
        by=request.caller.signed(body.by),
        reason=body.reason,
    )
    return JsonResponse(outbound.run(run))


async def retry_now(request: ApiRequest[NoParameters, wire.RetryNowBody]) -> JsonResponse:
    """For an effect that waits for its next attempt. Attempts made still count; recorded with the API key's name."""
    body = request.body
    run = await (await _run(request)).retry_now(body.step, by=request.caller.signed(body.by), reason=body.reason)
    return JsonResponse(outbound.run(run))


async def fork(request: ApiRequest[NoParameters, wire.ForkBody]) -> JsonResponse:
    """What comes before the step is taken over from this run; from the step on the new run is on its own."""
    fork = await (await _run(request)).fork(request.body.at, key=request.body.key)
    return JsonResponse(outbound.run(fork), 201, {"Location": f"/v1/runs/{fork.id}"})


async def signal(request: ApiRequest[NoParameters, wire.SentSignalBody]) -> JsonResponse:
    """The payload waits for the run if its hook is not open yet. It is checked against the type of the hook."""
    run, body = await _run(request), request.body
    said = await send(run, body.hook, body.payload, dedupe=await idempotency.dedupe_id(request, body.dedupe))
    headers = {wire.WARNING: quote(said, safe=" ':,.?")} if said else {}
    return JsonResponse(outbound.run(await run.refresh()), 202, headers)


async def release_key(request: ApiRequest[NoParameters, wire.ReleaseKeyBody]) -> JsonResponse:
    """The run goes on without its key, and the next start under the key is a new run."""
    return JsonResponse(outbound.run(await (await _run(request)).release_key(request.body.reason)))


async def _run(request: ApiRequest[Any, Any]) -> Run[Any]:
    """The run that is meant. Whatever is asked about one of another namespace, there is none."""
    return await request.caller.verbs.get(request.path["run_id"])


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/runs",
        handler=listed,
        summary="Find runs, page by page",
        scope="read",
        query=SearchQuery,
        responses={200: wire.RunPageView},
        refuses=(404,),
    ),
    Endpoint(
        method="GET",
        path="/v1/runs/{run_id}",
        handler=one,
        summary="A run as it is",
        scope="read",
        responses={200: wire.RunView},
        refuses=(404,),
    ),
    Endpoint(
        method="GET",
        path="/v1/runs/{run_id}/input",
        handler=input_of,
        summary="The arguments that a run was started with, by name",
        scope="read",
        responses={200: dict[str, Any]},
        refuses=(404, 409),
    ),
    Endpoint(
        method="GET",
        path="/v1/runs/{run_id}/journal",
        handler=journal,
        summary="What a run has done, since it last began anew",
        scope="read",
        responses={200: wire.JournalView},
        refuses=(404,),
    ),
    Endpoint(
        method="GET",
        path="/v1/runs/{run_id}/explain",
        handler=explain,
        summary="What happened to a run in words, why it waits, and what may be done",
        scope="read",
        responses={200: wire.StoryView},
        refuses=(404,),
    ),
    Endpoint(
        method="GET",
        path="/v1/runs/{run_id}/receipt",
        handler=receipt,
        summary="What the cancellation of an ended run has left behind",
        scope="read",
        responses={200: wire.ReceiptView},
        refuses=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/v1/runs/{run_id}/cancel",
        handler=cancel,
        summary="Cancel a run; 202 if it has not ended when the time is up",
        scope="write",
        query=WaitQuery,
        body=wire.CancelBody,
        body_optional=True,
        responses={200: wire.ReceiptView, 202: wire.RunView},
        refuses=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/v1/runs/{run_id}/resume",
        handler=resume,
        summary="Let a cancelled run go on",
        scope="write",
        responses={200: wire.RunView},
        refuses=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/v1/runs/{run_id}/retry",
        handler=retry,
        summary="Try a failed or blocked run again from its last record",
        scope="write",
        responses={200: wire.RunView},
        refuses=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/v1/runs/{run_id}/decide",
        handler=decide,
        summary="Say what came of a step whose outcome is not known, and let the run go on",
        scope="write",
        body=wire.DecideBody,
        responses={200: wire.RunView},
        refuses=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/v1/runs/{run_id}/retry-now",
        handler=retry_now,
        summary="Let the next attempt of an effect begin at once",
        scope="write",
        body=wire.RetryNowBody,
        responses={200: wire.RunView},
        refuses=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/v1/runs/{run_id}/fork",
        handler=fork,
        summary="A new run that begins with what this one did before a step",
        scope="write",
        body=wire.ForkBody,
        responses={201: wire.RunView},
        refuses=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/v1/runs/{run_id}/signal",
        handler=signal,
        summary="Send a payload to one of the hooks of a run",
        scope="write",
        body=wire.SentSignalBody,
        responses={202: wire.RunView},
        response_headers={
            202: {wire.WARNING: "There if the run waits for other hooks, which are named; percent-encoded."}
        },
        refuses=(404, 409, 422),
        headers={
            idempotency.HEADER: Header(
                "Names the payload, unless `dedupe` does.",
                length_max=idempotency.LENGTH_MAX,
                example=idempotency.EXAMPLE,
            )
        },
    ),
    Endpoint(
        method="POST",
        path="/v1/runs/{run_id}/release-key",
        handler=release_key,
        summary="Take the key from a run, so that it can be used again",
        scope="admin",
        body=wire.ReleaseKeyBody,
        body_optional=True,
        responses={200: wire.RunView},
        refuses=(404, 409),
    ),
)
