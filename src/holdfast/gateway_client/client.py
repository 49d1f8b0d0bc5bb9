"""`Client`: the verbs of a `Holdfast`, over a gateway."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from holdfast.adapters.machine import SystemClock, SystemIds
from holdfast.adapters.payloads import JsonCodec
from holdfast.client import Caller
from holdfast.errors import UsageError
from holdfast.gateway_client.apikeys import GatewayApiKeys
from holdfast.gateway_client.service import GatewayBackend
from holdfast.gateway_client.transport import Transport
from holdfast.pack import Pack, Workflow
from holdfast.wire.types import LimitsView

if TYPE_CHECKING:
    from holdfast.blocking import Blocking


class Client(Caller):
    """The verbs of a `Holdfast` over a gateway: `async with Client("http://127.0.0.1:8787") as client: ...`.

    It needs an API key where the gateway asks for one, and no credentials for the store. Workflows may be started by
    name, `client.start(client.call("checkout", {"order": "o-1"}))`, or by a call. With their `packs` at hand, inputs
    and results have the types that the workflows declare.
    """

    def __init__(self, url: str, *, api_key: str | None = None, packs: Iterable[Pack] = ()) -> None:
        clock = SystemClock()
        self._transport = Transport(url, api_key=api_key, clock=clock)
        workflows: dict[str, Workflow[..., Any]] = {}
        for pack in packs:
            workflows |= pack.workflows
        super().__init__(
            GatewayBackend(self._transport, workflows=workflows, codec=JsonCodec(), ids=SystemIds(), clock=clock)
        )

    @property
    def namespace(self) -> str:
        """The namespace that this client speaks to: the API key decides it, and the gateway says it with each reply."""
        if not self._transport.namespace:
            raise UsageError(
                "the namespace is not known: no gateway has said it yet",
                hint="Ask the gateway for something first, such as `await client.workflows()`.",
            )
        return self._transport.namespace

    @property
    def api_keys(self) -> GatewayApiKeys:
        """Make, list and revoke API keys. Takes a key of scope `admin`."""
        return GatewayApiKeys(self._transport)

    async def limits(self) -> LimitsView:
        """What the gateway limits, and how much of it is left to the API key that asks. To ask counts as a request."""
        return (await self._transport.get("/v1/limits")).of(LimitsView)

    @staticmethod
    def blocking(url: str, *, api_key: str | None = None, packs: Iterable[Pack] = ()) -> Blocking:
        """The same for code that is not async."""
        from holdfast.blocking import Blocking  # noqa: PLC0415 - only what is used is loaded

        packs = tuple(packs)
        return Blocking(lambda: Client(url, api_key=api_key, packs=packs))

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)
