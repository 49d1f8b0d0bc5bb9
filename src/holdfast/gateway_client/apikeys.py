"""API keys, made and revoked over a gateway. It takes a key of scope `admin`, and its namespace is theirs."""

from __future__ import annotations

from urllib.parse import quote

from holdfast import wire
from holdfast.errors import UsageError
from holdfast.gateway_client.transport import Transport
from holdfast.kernel.apikeys import ApiKey, Scope
from holdfast.kernel.units import Duration, milliseconds
from holdfast.wire import inbound


class GatewayApiKeys:
    """The verbs of the engine's `ApiKeys`, over one connection."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(
        self, name: str, *, namespace: str = "", scope: Scope, expires_in: Duration | None = None
    ) -> tuple[str, ApiKey]:
        """A new key of one's own namespace. The token is returned this once."""
        if namespace and namespace != self._transport.namespace:
            raise UsageError(
                "a gateway makes keys for the namespace of the key that asks",
                hint="Leave the namespace out, or make the key on the store itself.",
            )
        seconds = None if expires_in is None else milliseconds(expires_in) / 1000
        body = wire.CreateApiKeyBody(name=name, scope=scope, expires_in=seconds)
        made = (await self._transport.post("/v1/api-keys", body, again=False)).of(wire.NewApiKeyView)
        return made.token, inbound.api_key(made.key)

    async def listed(self, namespace: str = "") -> list[ApiKey]:
        """The keys of one's own namespace."""
        del namespace
        return [inbound.api_key(each) for each in (await self._transport.get("/v1/api-keys")).of(wire.ApiKeysView).keys]

    async def revoke(self, namespace: str, id: str) -> ApiKey:
        """Let a key of one's own namespace work no longer."""
        del namespace
        return inbound.api_key((await self._transport.delete(f"/v1/api-keys/{quote(id, safe='')}")).of(wire.ApiKeyView))
