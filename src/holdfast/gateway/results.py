"""The result of a run, now or as soon as it is there."""

from __future__ import annotations

from msgspec import Raw

from holdfast import wire
from holdfast.gateway import waiting
from holdfast.gateway.endpoints import Answer, Asked, Endpoint
from holdfast.gateway.problems import RETRY_AFTER
from holdfast.gateway.waiting import WaitQuery
from holdfast.wire import outbound


async def result(asked: Asked[WaitQuery, None]) -> Answer:
    seconds = waiting.seconds_of(asked.query.wait, asked.house.settings)
    run = await asked.caller.verbs.get(asked.path["run_id"])
    with waiting.place(asked, seconds):
        run = await waiting.settled(asked, seconds, run)
    if not run.is_settled:
        return Answer(outbound.run(run), 202, RETRY_AFTER)
    return Answer(wire.ResultView(Raw(await run.result_json())))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/runs/{run_id}/result",
        handler=result,
        summary="What a run returned; 202 while it goes on",
        scope="read",
        query=WaitQuery,
        answers={200: wire.ResultView, 202: wire.RunView},
        refuses=(404, 409),
    ),
)
