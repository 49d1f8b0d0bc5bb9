"""Bulk operations, carried out by a gateway."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from holdfast import wire
from holdfast.engine.api.start_options import StartOptions
from holdfast.gateway_client.transport import Transport
from holdfast.kernel.bulks import BulkOrder, Preview
from holdfast.kernel.runs import Run
from holdfast.ports.codec import Codec
from holdfast.ports.ids import Ids
from holdfast.wire import bulks, inbound


class GatewayBulk:
    """The verbs of `Bulking`, over HTTP."""

    def __init__(self, transport: Transport, *, codec: Codec, ids: Ids) -> None:
        self._transport = transport
        self._codec = codec
        self._ids = ids

    async def start(self, order: BulkOrder, options: StartOptions) -> tuple[Run, bool]:
        """Start a bulk run; a request that is repeated after a broken connection is the same one."""
        body = bulks.body(order, options, self._payload(order), self._ids.nonce())
        reply = await self._transport.post("/v1/bulk", body, again=True)
        return inbound.run(reply.of(wire.RunView), self._transport.namespace), reply.status == 201

    async def preview(self, order: BulkOrder, first: int) -> Preview:
        """What a bulk run would do if it began now."""
        body = bulks.dry_run_body(order, self._payload(order), first)
        reply = await self._transport.post("/v1/bulk/dry-run", body, again=True)
        return bulks.previewed(reply.of(wire.BulkPreviewView), self._transport.namespace)

    def _payload(self, order: BulkOrder) -> Any:
        return Raw(self._codec.encode(order.payload, what=f"the payload for hook {order.hook!r}"))
