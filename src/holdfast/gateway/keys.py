"""API keys over HTTP: those of the caller's own namespace, and no others."""

from __future__ import annotations

from holdfast import wire
from holdfast.gateway.endpoints import ApiRequest, Endpoint, JsonResponse, NoParameters
from holdfast.wire import outbound


async def every(request: ApiRequest[NoParameters, None]) -> JsonResponse:
    """Those that were revoked or have expired included; without their secrets."""
    keys = await request.context.hf.api_keys.listed(request.caller.verbs.namespace)
    return JsonResponse(wire.ApiKeysView([outbound.api_key(key) for key in keys]))


async def create(request: ApiRequest[NoParameters, wire.CreateApiKeyBody]) -> JsonResponse:
    """The token cannot be shown again: only a digest of it is kept."""
    token, key = await request.context.hf.api_keys.create(
        request.body.name,
        namespace=request.caller.verbs.namespace,
        scope=request.body.scope,
        expires_in=request.body.expires_in,
    )
    # The response is the only place where the token is ever shown: nothing on the way may keep a copy.
    return JsonResponse(wire.NewApiKeyView(token=token, key=outbound.api_key(key)), 201, {"Cache-Control": "no-store"})


async def revoke(request: ApiRequest[NoParameters, None]) -> JsonResponse:
    """Requests with the key are refused from then on. A key that is revoked already stays as it is."""
    key = await request.context.hf.api_keys.revoke(request.caller.verbs.namespace, request.path["key_id"])
    return JsonResponse(outbound.api_key(key))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/api-keys",
        handler=every,
        summary="The API keys of this namespace",
        scope="admin",
        responses={200: wire.ApiKeysView},
    ),
    Endpoint(
        method="POST",
        path="/v1/api-keys",
        handler=create,
        summary="Make an API key; its token is shown this once",
        scope="admin",
        body=wire.CreateApiKeyBody,
        responses={201: wire.NewApiKeyView},
    ),
    Endpoint(
        method="DELETE",
        path="/v1/api-keys/{key_id}",
        handler=revoke,
        summary="Revoke an API key; all processes are told at once, and notice within two seconds if that is lost",
        scope="admin",
        responses={200: wire.ApiKeyView},
        refuses=(404,),
    ),
)
