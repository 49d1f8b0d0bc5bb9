"""Serving effects from any language: claim tasks, say that they go on, say how they ended."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from holdfast.engine.remote import tasks
from holdfast.engine.remote.tasks import CLAIM_MAX, EFFECTS_MAX, Handed
from holdfast.gateway import waiting
from holdfast.gateway.endpoints import Answer, Asked, Endpoint, Nothing
from holdfast.gateway.problems import Malformed
from holdfast.kernel.units import milliseconds, utc_of
from holdfast.wire import Duration, Instant, Key

Fence = Annotated[int, Meta(ge=0, le=2**53 - 1, description="As the claim has answered it.")]
MARGIN_SECONDS = 5.0  # a claim ends by itself when its time is over; it is not cut short just when it has got something


class Claim(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker can do, and how long it waits for work."""

    effects: Annotated[list[Key], Meta(min_length=1, max_length=EFFECTS_MAX)]
    worker: Key
    limit: Annotated[int, Meta(ge=1, le=CLAIM_MAX)] = 1
    wait: Duration = 0.0
    lease: Duration = "30s"


class Task(Struct, frozen=True, kw_only=True):
    """One attempt of an effect. `input` has its arguments by name."""

    id: str
    effect: str
    key: str
    run: str
    attempt: int
    input: Raw
    fence: int
    lease_until: Instant
    last_heartbeat: Raw
    traceparent: str | UnsetType = UNSET


class Claimed(Struct, frozen=True):
    """The tasks that are the worker's now; none if there was nothing to do in time."""

    tasks: list[Task]


class Heartbeat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The task goes on; `details` say how far it has come."""

    fence: Fence
    details: Raw | UnsetType = UNSET


class Beaten(Struct, frozen=True):
    """Whether anybody still wants the outcome, and until when the task is the worker's."""

    wanted: bool
    lease_until: Instant


class Complete(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the effect returned."""

    fence: Fence
    result: Raw | UnsetType = UNSET


class TaskError(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What went wrong."""

    type: Key
    message: str = ""


class Fail(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why the attempt failed; without `retry` the effect is not tried again, with `retry_after` not before."""

    fence: Fence
    error: TaskError
    retry: bool = True
    retry_after: Duration | None = None


class Ended(Struct, frozen=True):
    """The task has ended, as this worker has said."""

    id: str


async def claim(asked: Asked[Nothing, Claim]) -> Answer:
    body, seconds = asked.body, milliseconds(asked.body.wait) / 1000
    if seconds > (limit := asked.house.settings.wait_seconds_max):
        raise Malformed(f"wait={body.wait!r} is too long", hint=f"Wait {limit:g} s at most, and claim again.")
    with waiting.place(asked, seconds):
        work = _tasks(asked).claim(body.effects, worker=body.worker, limit=body.limit, lease=body.lease, wait=seconds)
        done = await waiting.within(asked, seconds + MARGIN_SECONDS, work)
    return Answer(Claimed([] if done is None else [_task(handed) for handed in done.result()]))


async def heartbeat(asked: Asked[Nothing, Heartbeat]) -> Answer:
    sent = asked.body.details
    details = None if sent is UNSET else bytes(sent)
    beat = await _tasks(asked).heartbeat(asked.path["task_id"], fence=asked.body.fence, details=details)
    return Answer(Beaten(beat.wanted, utc_of(beat.until_ms)))


async def complete(asked: Asked[Nothing, Complete]) -> Answer:
    task_id, result = asked.path["task_id"], asked.body.result
    await _tasks(asked).complete(task_id, fence=asked.body.fence, result=b"null" if result is UNSET else bytes(result))
    return Answer(Ended(task_id))


async def fail(asked: Asked[Nothing, Fail]) -> Answer:
    task_id, body = asked.path["task_id"], asked.body
    await _tasks(asked).fail(
        task_id,
        fence=body.fence,
        type=body.error.type,
        message=body.error.message,
        retry=body.retry,
        retry_after=body.retry_after,
    )
    return Answer(Ended(task_id))


def _tasks(asked: Asked[Any, Any]) -> tasks.Tasks:
    return asked.house.hf.tasks_in(asked.caller.verbs.namespace)


def _task(handed: Handed) -> Task:
    task = handed.task
    return Task(
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
        body=Claim,
        answers={200: Claimed},
    ),
    Endpoint(
        method="POST",
        path="/v1/tasks/{task_id}/heartbeat",
        handler=heartbeat,
        summary="Say that a task goes on, and how far it has come",
        scope="write",
        body=Heartbeat,
        answers={200: Beaten},
        refuses=(404, 409, 422),
    ),
    Endpoint(
        method="POST",
        path="/v1/tasks/{task_id}/complete",
        handler=complete,
        summary="Say what the effect returned",
        scope="write",
        body=Complete,
        answers={200: Ended},
        refuses=(404, 409, 422),
    ),
    Endpoint(
        method="POST",
        path="/v1/tasks/{task_id}/fail",
        handler=fail,
        summary="Say that the attempt failed; the effect's retry policy decides what follows",
        scope="write",
        body=Fail,
        answers={200: Ended},
        refuses=(404, 409),
    ),
)
