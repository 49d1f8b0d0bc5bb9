"""Who is at work, and how much there is to do."""

from __future__ import annotations

from holdfast import wire
from holdfast.gateway.endpoints import Answer, Asked, Endpoint, Nothing
from holdfast.wire import outbound


async def listed(asked: Asked[Nothing, None]) -> Answer:
    return Answer(wire.WorkersView([outbound.worker(each) for each in await asked.caller.verbs.workers()]))


async def backlog(asked: Asked[Nothing, None]) -> Answer:
    return Answer(outbound.backlog(await asked.caller.verbs.backlog()))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/workers",
        handler=listed,
        summary="The live workers",
        scope="read",
        answers={200: wire.WorkersView},
    ),
    Endpoint(
        method="GET",
        path="/v1/backlog",
        handler=backlog,
        summary="How many runs there are by status, and how many wait for a worker",
        scope="read",
        answers={200: wire.BacklogView},
    ),
)
