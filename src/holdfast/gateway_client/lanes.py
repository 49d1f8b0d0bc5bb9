"""Lanes, as a gateway shows them and sets them."""

from __future__ import annotations

from urllib.parse import quote

from holdfast import wire
from holdfast.engine.api.lanes import FoundLane
from holdfast.errors import UsageError
from holdfast.gateway_client.transport import Transport
from holdfast.kernel import lanes
from holdfast.wire import inbound


class GatewayLanes:
    """The verbs of `Laning`, over HTTP."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def lane(self, name: str) -> FoundLane:
        return self._found((await self._transport.get(_path(name))).of(wire.LaneView))

    async def page(self, after: str, limit: int) -> list[FoundLane]:
        query = {"limit": limit} | ({"after": after} if after else {})
        page = (await self._transport.get("/v1/lanes", query)).of(wire.LanesView)
        return [self._found(each) for each in page.lanes]

    async def set(self, name: str, width: int | None, *, paused: bool | None, by: str) -> FoundLane:
        if width is None and paused is None:
            raise UsageError(f"lane {name!r} is to be set to nothing", hint="Pass width=, paused=, or both.")
        width = None if width is None else lanes.checked_width(width)
        body = wire.SetLaneBody(width=width, paused=paused, by=by or None)
        return self._found((await self._transport.patch(_path(name), body)).of(wire.LaneView))

    def _found(self, shown: wire.LaneView) -> FoundLane:
        return inbound.lane(shown, self._transport.namespace)


def _path(name: str) -> str:
    return f"/v1/lanes/{quote(lanes.checked_name(name), safe='')}"
