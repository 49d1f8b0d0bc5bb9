"""Serving effects from any language: claim tasks, say that they go on, say how they ended."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw

from holdfast import wire
from holdfast.engine.remote import tasks
from holdfast.engine.remote.tasks import Handed
from holdfast.gateway import waiting
from holdfast.gateway.endpoints import Answer, Asked, Endpoint, Nothing
from holdfast.gateway.problems import Malformed
from holdfast.kernel.units import milliseconds, utc_of

MARGIN_SECONDS = 5.0  # a claim ends by itself when its time is over; it is not cut short just when it has got something


async def claim(asked: Asked[Nothing, wire.ClaimBody]) -> Answer:
    body, seconds = asked.body, milliseconds(asked.body.wait) / 1000
    if seconds > (limit := asked.house.settings.wait_seconds_max):
        raise Malformed(f"wait={body.wait!r} is too long", hint=f"Wait {limit:g} s at most, and claim again.")
    with waiting.place(asked, seconds):
        work = _tasks(asked).claim(body.effects, worker=body.worker, limit=body.limit, lease=body.lease, wait=seconds)
        done = await waiting.within(asked, seconds + MARGIN_SECONDS, work)
    return Answer(wire.ClaimedView([] if done is None else [_task(handed) for handed in done.result()]))


async def heartbeat(asked: Asked[Nothing, wire.HeartbeatBody]) -> Answer:
    sent = asked.body.details
    details = None if sent is UNSET else bytes(sent)
    beat = await _tasks(asked).heartbeat(asked.path["task_id"], fence=asked.body.fence, details=details)
    return Answer(wire.BeatenView(beat.wanted, utc_of(beat.until_ms)))


async def complete(asked: Asked[Nothing, wire.CompleteBody]) -> Answer:
    task_id, result = asked.path["task_id"], asked.body.result
    await _tasks(asked).complete(task_id, fence=asked.body.fence, result=b"null" if result is UNSET else bytes(result))
    return Answer(wire.EndedView(task_id))


async def fail(asked: Asked[Nothing, wire.FailBody]) -> Answer:
    task_id, body = asked.path["task_id"], asked.body
    await _tasks(asked).fail(
        task_id,
        fence=body.fence,
        type=body.error.type,
        message=body.error.message,
        retry=body.retry,
        retry_after=body.retry_after,
    )
    return Answer(wire.EndedView(task_id))


def _tasks(asked: Asked[Any, Any]) -> tasks.Tasks:
    return asked.house.hf.runtime.tasks_in(asked.caller.verbs.namespace)


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
        answers={200: wire.ClaimedView},
    ),
    Endpoint(
        method="POST",
        path="/v1/tasks/{task_id}/heartbeat",
        handler=heartbeat,
        summary="Say that a task goes on, and how far it has come",
        scope="write",
        body=wire.HeartbeatBody,
        answers={200: wire.BeatenView},
        refuses=(404, 409, 422),
    ),
    Endpoint(
        method="POST",
        path="/v1/tasks/{task_id}/complete",
        handler=complete,
        summary="Say what the effect returned",
        scope="write",
        body=wire.CompleteBody,
        answers={200: wire.EndedView},
        refuses=(404, 409, 422),
    ),
    Endpoint(
        method="POST",
        path="/v1/tasks/{task_id}/fail",
        handler=fail,
        summary="Say that the attempt failed; the effect's retry policy decides what follows",
        scope="write",
        body=wire.FailBody,
        answers={200: wire.EndedView},
        refuses=(404, 409),
    ),
)
