"""Gateway and dashboard as one application, and how it is served: what `holdfast dev` and `holdfast serve` run.

Stop: not ready → take no more work → answer what is under way, within the drain → close. What is under way in the
Holdfast itself has its own grace meanwhile; leaving it gives the rest, and its leases, back.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from starlette.applications import Starlette

from holdfast.assembly import Holdfast
from holdfast.dashboard import app as dashboard_app
from holdfast.gateway import app as gateway_app, health
from holdfast.gateway.auth import KeyedDoor, OpenDoor, is_loopback
from holdfast.gateway.endpoints import House, Settings
from holdfast.gateway.server import Server, check_exposure


def house(hf: Holdfast, *, settings: Settings) -> House:
    """What gateway and dashboard share."""
    return gateway_app.house(hf, gatekeeper=KeyedDoor(hf) if settings.require_keys else OpenDoor(hf), settings=settings)


def application(house: House, *, api: bool = True, dashboard: bool = True) -> Starlette:
    """The ASGI application. Without `api` it answers only those who watch over the process."""
    if not api:
        return gateway_app.create(house, endpoints=health.ENDPOINTS)
    if not dashboard:
        return gateway_app.create(house)
    pages = dashboard_app.routes(house.hf, require_keys=house.settings.require_keys, lobby=house.lobby)
    return gateway_app.create(house, more=pages)


def keys_are_required(host: str, wanted: bool | None) -> bool:  # noqa: FBT001 - None is the third value
    """Whether requests need an API key: as `wanted`, or else where others than this machine can reach `host`."""
    return not is_loopback(host) if wanted is None else wanted


async def serve(
    hf: Holdfast,
    *,
    host: str = "127.0.0.1",
    port: int = 8787,
    api: bool = True,
    dashboard: bool = True,
    require_keys: bool | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then answer what is under way and close.

    Without `require_keys` everybody may do everything, so that is possible on a loopback address only, and the default
    there. `on_ready` is told the address as soon as it can be used.
    """
    require_keys = keys_are_required(host, require_keys)
    check_exposure(host, require_keys=require_keys)
    shared = house(hf, settings=Settings(require_keys=require_keys))
    server = Server(shared.lobby)
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    url = await server.start(application(shared, api=api, dashboard=dashboard), host, port)
    try:
        if on_ready is not None:
            on_ready(url)
        await asked.wait()
        hf.runtime.wind_down()  # so that its grace and that of the requests are one
    finally:
        await server.stop()
