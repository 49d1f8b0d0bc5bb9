"""Workflows: what they declare, and which run holds a key."""

from __future__ import annotations

from msgspec import Struct

from holdfast import wire
from holdfast.gateway.endpoints import Answer, Asked, Endpoint, Nothing
from holdfast.wire import outbound


class OfKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key may have any characters, so it has no place in a path."""

    key: wire.Key


async def listed(asked: Asked[Nothing, None]) -> Answer:
    return Answer(wire.WorkflowsView([outbound.workflow(each) for each in await asked.caller.verbs.workflows()]))


async def one(asked: Asked[Nothing, None]) -> Answer:
    return Answer(outbound.workflow(await asked.caller.verbs.workflow(asked.path["name"])))


async def holder(asked: Asked[OfKey, None]) -> Answer:
    return Answer(outbound.run(await asked.caller.verbs.find(asked.path["name"], asked.query.key)))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/workflows",
        handler=listed,
        summary="The workflows that can be started here",
        scope="read",
        answers={200: wire.WorkflowsView},
    ),
    Endpoint(
        method="GET",
        path="/v1/workflows/{name}",
        handler=one,
        summary="What a workflow declares, with the schemas of its input and its result",
        scope="read",
        answers={200: wire.WorkflowView},
        refuses=(404,),
    ),
    Endpoint(
        method="GET",
        path="/v1/workflows/{name}/holder",
        handler=holder,
        summary="The run that holds a key",
        scope="read",
        query=OfKey,
        answers={200: wire.RunView},
        refuses=(404,),
    ),
)
