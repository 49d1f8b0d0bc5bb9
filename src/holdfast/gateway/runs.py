"""Runs: find them, look at them, and move them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from holdfast import wire
from holdfast.client import PAGE, Run
from holdfast.gateway import idempotency, waiting
from holdfast.gateway.endpoints import Answer, Asked, Endpoint, Header, Nothing
from holdfast.gateway.problems import RETRY_AFTER, Malformed
from holdfast.gateway.waiting import WaitQuery
from holdfast.kernel.searches import PAGE_MAX
from holdfast.wire import inbound, outbound

_decode_filters = msgspec.json.Decoder(dict[str, str | int | float | bool | wire.Filter]).decode


class SearchQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which runs are meant: those for which all of it holds."""

    workflow: wire.Text | None = None
    status: list[wire.Status] | None = None
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
    key_prefix: wire.Text | None = None
    created_after: wire.Instant | None = None
    created_before: wire.Instant | None = None
    finished_after: wire.Instant | None = None
    finished_before: wire.Instant | None = None
    newest_first: bool = True
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = PAGE
    after: Annotated[str, Meta(min_length=1, description="The `next` of the page before.")] | None = None


# -- looking


async def listed(asked: Asked[SearchQuery, None]) -> Answer:
    query = asked.query
    found = asked.caller.verbs.runs(
        query.workflow,
        query.status,
        attributes=None if query.attributes is None else _filters(query.attributes),
        key_prefix=query.key_prefix,
        created_after=query.created_after,
        created_before=query.created_before,
        finished_after=query.finished_after,
        finished_before=query.finished_before,
        newest_first=query.newest_first,
    )
    return Answer(outbound.page(await found.page(after=query.after, limit=query.limit)))


def _filters(text: str) -> dict[str, Any]:
    try:
        return inbound.conditions(_decode_filters(text))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Malformed(f"attributes={text:.60} does not fit: {error}", hint='Send {"customer": "c-1"}.') from None


async def one(asked: Asked[Nothing, None]) -> Answer:
    return Answer(outbound.run(await _run(asked)))


async def input_of(asked: Asked[Nothing, None]) -> Answer:
    return Answer(await (await _run(asked)).input_json())


async def journal(asked: Asked[Nothing, None]) -> Answer:
    return Answer(outbound.journal(await (await _run(asked)).recorded()))


async def explain(asked: Asked[Nothing, None]) -> Answer:
    return Answer(outbound.story(await (await _run(asked)).explain()))


async def receipt(asked: Asked[Nothing, None]) -> Answer:
    return Answer(outbound.receipt(await (await _run(asked)).receipt()))


# -- moving


async def cancel(asked: Asked[WaitQuery, wire.CancelBody]) -> Answer:
    settings = asked.house.settings
    seconds = waiting.seconds_of(asked.query.wait, settings, otherwise=settings.wait_seconds_max)
    run = await _run(asked)
    with waiting.place(asked, seconds):
        cancelling = await run.ask_cancel(asked.body.reason, deadline=asked.body.deadline)
        done = await waiting.within(asked, seconds, cancelling.receipt())
    if done is None:  # it goes on without us
        return Answer(outbound.run(await run.refresh()), 202, {"Location": f"/v1/runs/{run.id}/receipt", **RETRY_AFTER})
    return Answer(outbound.receipt(done.result()))


async def resume(asked: Asked[Nothing, None]) -> Answer:
    return Answer(outbound.run(await (await _run(asked)).resume()))


async def retry(asked: Asked[Nothing, None]) -> Answer:
    return Answer(outbound.run(await (await _run(asked)).retry()))


async def fork(asked: Asked[Nothing, wire.ForkBody]) -> Answer:
    fork = await (await _run(asked)).fork(asked.body.at, key=asked.body.key)
    return Answer(outbound.run(fork), 201, {"Location": f"/v1/runs/{fork.id}"})


async def signal(asked: Asked[Nothing, wire.SentSignalBody]) -> Answer:
    run, body = await _run(asked), asked.body
    await run.signal(body.hook, body.payload, dedupe=await idempotency.dedupe_id(asked, body.dedupe))
    return Answer(outbound.run(await run.refresh()), 202)


async def release_key(asked: Asked[Nothing, wire.ReleaseKeyBody]) -> Answer:
    return Answer(outbound.run(await (await _run(asked)).release_key(asked.body.reason)))


async def _run(asked: Asked[Any, Any]) -> Run[Any]:
    """The run that is meant. Whatever is asked about one of another namespace, there is none."""
    return await asked.caller.verbs.get(asked.path["run_id"])


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/runs",
        handler=listed,
        summary="Find runs, page by page",
        scope="read",
        query=SearchQuery,
        answers={200: wire.RunPageView},
        refuses=(404,),
    ),
    Endpoint(
        method="GET",
        path="/v1/runs/{run_id}",
        handler=one,
        summary="A run as it is",
        scope="read",
        answers={200: wire.RunView},
        refuses=(404,),
    ),
    Endpoint(
        method="GET",
        path="/v1/runs/{run_id}/input",
        handler=input_of,
        summary="The arguments that a run was started with, by name",
        scope="read",
        answers={200: dict[str, Any]},
        refuses=(404,),
    ),
    Endpoint(
        method="GET",
        path="/v1/runs/{run_id}/journal",
        handler=journal,
        summary="What a run has done, since it last began anew",
        scope="read",
        answers={200: wire.JournalView},
        refuses=(404,),
    ),
    Endpoint(
        method="GET",
        path="/v1/runs/{run_id}/explain",
        handler=explain,
        summary="What happened to a run in words, why it waits, and what may be done",
        scope="read",
        answers={200: wire.StoryView},
        refuses=(404,),
    ),
    Endpoint(
        method="GET",
        path="/v1/runs/{run_id}/receipt",
        handler=receipt,
        summary="What the cancellation of an ended run has left behind",
        scope="read",
        answers={200: wire.ReceiptView},
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
        answers={200: wire.ReceiptView, 202: wire.RunView},
        refuses=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/v1/runs/{run_id}/resume",
        handler=resume,
        summary="Let a cancelled run go on",
        scope="write",
        answers={200: wire.RunView},
        refuses=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/v1/runs/{run_id}/retry",
        handler=retry,
        summary="Try a failed or blocked run again from its last record",
        scope="write",
        answers={200: wire.RunView},
        refuses=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/v1/runs/{run_id}/fork",
        handler=fork,
        summary="A new run that begins with what this one did before a step",
        scope="write",
        body=wire.ForkBody,
        answers={201: wire.RunView},
        refuses=(404, 409),
    ),
    Endpoint(
        method="POST",
        path="/v1/runs/{run_id}/signal",
        handler=signal,
        summary="Send a payload to one of the hooks of a run",
        scope="write",
        body=wire.SentSignalBody,
        answers={202: wire.RunView},
        refuses=(404, 409, 422),
        headers={
            idempotency.HEADER: Header("Names the payload, unless `dedupe` does.", length_max=idempotency.LENGTH_MAX)
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
        answers={200: wire.RunView},
        refuses=(404, 409),
    ),
)
