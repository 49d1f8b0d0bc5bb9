"""Breakers and limits, over a gateway."""

from __future__ import annotations

from urllib.parse import quote

from holdfast import wire
from holdfast.gateway_client.transport import Transport
from holdfast.kernel.breakers import BreakerStatus
from holdfast.kernel.effect_limits import LimitStatus
from holdfast.kernel.units import Duration, milliseconds
from holdfast.wire import rules


class GatewayFlow:
    """The verbs of `FlowRuling`, over HTTP."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def breakers(self) -> list[BreakerStatus]:
        """All of them, by name."""
        shown = (await self._transport.get("/v1/breakers")).of(wire.BreakersView)
        return [rules.read_breaker(each) for each in shown.breakers]

    async def breaker(self, name: str) -> BreakerStatus:
        """One of them."""
        return rules.read_breaker((await self._transport.get(_path(name))).of(wire.BreakerView))

    async def open_breaker(self, name: str, by: str, lasts: Duration | None) -> BreakerStatus:
        """Open it."""
        seconds = None if lasts is None else milliseconds(lasts) / 1000
        body = wire.OpenBreakerBody(by=by or None, lasts=seconds)
        return rules.read_breaker(
            (await self._transport.post(f"{_path(name)}/open", body, again=True)).of(wire.BreakerView)
        )

    async def close_breaker(self, name: str, by: str) -> BreakerStatus:
        """Close it."""
        body = wire.CloseBreakerBody(by=by or None)
        return rules.read_breaker(
            (await self._transport.post(f"{_path(name)}/close", body, again=True)).of(wire.BreakerView)
        )

    async def limits(self) -> list[LimitStatus]:
        """The limits at effects, by name."""
        return rules.read_limits((await self._transport.get("/v1/effect-limits")).of(wire.EffectLimitsView))


def _path(name: str) -> str:
    return f"/v1/breakers/{quote(name, safe='')}"
