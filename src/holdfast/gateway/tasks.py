"""Serving effects from any language: claim tasks, say that they go on, say how they ended."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw

from holdfast import wire
from holdfast.engine.remote import tasks
from holdfast.engine.remote.tasks import Handed
from holdfast.gateway import waiting
from holdfast.gateway.endpoints import ApiRequest, Endpoint, JsonResponse, NoParameters
from holdfast.gateway.problems import Malformed
from holdfast.kernel.units import milliseconds, utc_of

MARGIN_SECONDS = 5.0  # a claim ends by itself when its time is over; it is not cut short just when it has got something


async def claim(request: ApiRequest[NoParameters, wire.ClaimBody]) -> JsonResponse:
    """Takes tasks of the named effects, for as long as `lease` says. Each has a `fence`, which its end repeats."""
    body, seconds = request.body, milliseconds(request.body.wait) / 1000
    if seconds > (limit := request.context.settings.wait_seconds_max):
        raise Malformed(f"wait={body.wait!r} is too long", hint=f"Wait {limit:g} s at most, and claim again.")
    with waiting.slot(request, seconds):
        work = _tasks(request).claim(body.effects, worker=body.worker, limit=body.limit, lease=body.lease, wait=seconds)
        done = await waiting.within(request, seconds + MARGIN_SECONDS, work)
    return JsonResponse(wire.ClaimedView([] if done is None else [_task(handed) for handed in done.result()]))


async def heartbeat(request: ApiRequest[NoParameters, wire.HeartbeatBody]) -> JsonResponse:
    """Prolongs the lease. `wanted` is false once no run waits for the outcome: then stop."""
    sent = request.body.details
    details = None if sent is UNSET else bytes(sent)
    beat = await _tasks(request).heartbeat(request.path["task_id"], fence=request.body.fence, details=details)
    return JsonResponse(wire.BeatenView(beat.wanted, utc_of(beat.until_ms)))


async def complete(request: ApiRequest[NoParameters, wire.CompleteBody]) -> JsonResponse:
    """The run goes on with `result`. A repetition with the same fence returns the same."""
    task_id, result = request.path["task_id"], request.body.result
    await _tasks(request).complete(
        task_id, fence=request.body.fence, result=b"null" if result is UNSET else bytes(result)
    )
    return JsonResponse(wire.EndedView(task_id))


async def fail(request: ApiRequest[NoParameters, wire.FailBody]) -> JsonResponse:
    """`retry` and `retry_after` are wishes; the policy of the effect decides."""
    task_id, body = request.path["task_id"], request.body
    await _tasks(request).fail(
        task_id,
        fence=body.fence,
        type=body.error.type,
        message=body.error.message,
        retry=body.retry,
        retry_after=body.retry_after,
    )
    return JsonResponse(wire.EndedView(task_id))


def _tasks(request: ApiRequest[Any, Any]) -> tasks.Tasks:
    return request.context.hf.runtime.tasks_in(request.caller.verbs.namespace)


def _task(handed: Handed) -> wire.TaskView:
    task = handed.task
    return wire.TaskView(
        id=handed.place.name,
        effect=handed.place.effect,
        key=task.key,
        run=task.run_id,
        attempt=task.attempt,
        input=Raw(task.input.encode()),
        fence=handed.claim.fence,
        lease_until=utc_of(handed.claim.until_ms),
        last_heartbeat=Raw((task.details or "null").encode()),
        traceparent=task.traceparent or UNSET,
    )


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/v1/tasks/claim",
        handler=claim,
        summary="Claim tasks of effects that this worker serves; waits until there is one",
        scope="write",
        body=wire.ClaimBody,
        responses={200: wire.ClaimedView},
    ),
    Endpoint(
        method="POST",
        path="/v1/tasks/{task_id}/heartbeat",
        handler=heartbeat,
        summary="Say that a task goes on, and how far it has come",
        scope="write",
        body=wire.HeartbeatBody,
        responses={200: wire.BeatenView},
        refuses=(404, 409, 422),
    ),
    Endpoint(
        method="POST",
        path="/v1/tasks/{task_id}/complete",
        handler=complete,
        summary="Say what the effect returned",
        scope="write",
        body=wire.CompleteBody,
        responses={200: wire.EndedView},
        refuses=(404, 409, 422),
    ),
    Endpoint(
        method="POST",
        path="/v1/tasks/{task_id}/fail",
        handler=fail,
        summary="Say that the attempt failed; the effect's retry policy decides what follows",
        scope="write",
        body=wire.FailBody,
        responses={200: wire.EndedView},
        refuses=(404, 409),
    ),
)
