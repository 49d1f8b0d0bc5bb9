"""API keys over HTTP: those of the caller's own namespace, and no others."""

from __future__ import annotations

from holdfast import wire
from holdfast.gateway.endpoints import Answer, Asked, Endpoint, Nothing
from holdfast.wire import outbound


async def every(asked: Asked[Nothing, None]) -> Answer:
    keys = await asked.house.hf.api_keys.listed(asked.caller.verbs.namespace)
    return Answer(wire.ApiKeysView([outbound.api_key(key) for key in keys]))


async def create(asked: Asked[Nothing, wire.CreateApiKeyBody]) -> Answer:
    token, key = await asked.house.hf.api_keys.create(
        asked.body.name,
        namespace=asked.caller.verbs.namespace,
        scope=asked.body.scope,
        expires_in=asked.body.expires_in,
    )
    # The answer is the only place where the token is ever shown: nothing on the way may keep a copy.
    return Answer(wire.NewApiKeyView(token=token, key=outbound.api_key(key)), 201, {"Cache-Control": "no-store"})


async def revoke(asked: Asked[Nothing, None]) -> Answer:
    key = await asked.house.hf.api_keys.revoke(asked.caller.verbs.namespace, asked.path["key_id"])
    return Answer(outbound.api_key(key))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/api-keys",
        handler=every,
        summary="The API keys of this namespace",
        scope="admin",
        answers={200: wire.ApiKeysView},
    ),
    Endpoint(
        method="POST",
        path="/v1/api-keys",
        handler=create,
        summary="Make an API key; its token is shown this once",
        scope="admin",
        body=wire.CreateApiKeyBody,
        answers={201: wire.NewApiKeyView},
    ),
    Endpoint(
        method="DELETE",
        path="/v1/api-keys/{key_id}",
        handler=revoke,
        summary="Revoke an API key; all processes are told at once, and notice within two seconds if that is lost",
        scope="admin",
        answers={200: wire.ApiKeyView},
        refuses=(404,),
    ),
)
