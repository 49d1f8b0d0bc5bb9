"""API keys over HTTP: those of the caller's own namespace, and no others."""

from __future__ import annotations

from holdfast import wire
from holdfast.gateway import views
from holdfast.gateway.endpoints import Answer, Asked, Endpoint, Nothing


async def every(asked: Asked[Nothing, None]) -> Answer:
    keys = await asked.house.hf.api_keys.listed(asked.caller.verbs.namespace)
    return Answer(wire.ApiKeys([views.api_key(key) for key in keys]))


async def create(asked: Asked[Nothing, wire.CreateApiKey]) -> Answer:
    token, key = await asked.house.hf.api_keys.create(
        asked.body.name,
        namespace=asked.caller.verbs.namespace,
        scope=asked.body.scope,
        expires_in=asked.body.expires_in,
    )
    # The answer is the only place where the token is ever shown: nothing on the way may keep a copy.
    return Answer(wire.NewApiKey(token=token, key=views.api_key(key)), 201, {"Cache-Control": "no-store"})


async def revoke(asked: Asked[Nothing, None]) -> Answer:
    key = await asked.house.hf.api_keys.revoke(asked.caller.verbs.namespace, asked.path["key_id"])
    return Answer(views.api_key(key))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/api-keys",
        handler=every,
        summary="The API keys of this namespace",
        scope="admin",
        answers={200: wire.ApiKeys},
    ),
    Endpoint(
        method="POST",
        path="/v1/api-keys",
        handler=create,
        summary="Make an API key; its token is shown this once",
        scope="admin",
        body=wire.CreateApiKey,
        answers={201: wire.NewApiKey},
    ),
    Endpoint(
        method="DELETE",
        path="/v1/api-keys/{key_id}",
        handler=revoke,
        summary="Revoke an API key; all processes are told at once, and notice within two seconds if that is lost",
        scope="admin",
        answers={200: wire.ApiKey},
        refuses=(404,),
    ),
)
