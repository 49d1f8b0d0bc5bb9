"""Gateway and dashboard as one application, and how it is served: what `holdfast dev` and `holdfast serve` run.

Stop: not ready → take no more work → finish the requests under way, within the drain → close. What is under way in the
Holdfast itself has its own grace meanwhile; leaving it gives the rest, and its leases, back.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

from starlette.types import ASGIApp

from holdfast.assembly import Holdfast
from holdfast.dashboard import app as dashboard_app
from holdfast.gateway import app as gateway_app, health
from holdfast.gateway.auth import ApiKeyAuth, OpenAuth, is_loopback
from holdfast.gateway.endpoints import AppContext, GatewaySettings
from holdfast.gateway.server import HttpServer, check_exposure


def context(hf: Holdfast, *, settings: GatewaySettings) -> AppContext:
    """What gateway and dashboard share."""
    return gateway_app.context(hf, auth=ApiKeyAuth(hf) if settings.require_keys else OpenAuth(hf), settings=settings)


def application(context: AppContext, *, api: bool = True, dashboard: bool = True) -> ASGIApp:
    """The ASGI application. Without `api` it serves only health checks and metrics."""
    if not api:
        return gateway_app.create(context, endpoints=health.ENDPOINTS)
    if not dashboard:
        return gateway_app.create(context)
    pages = dashboard_app.routes(
        context.hf,
        require_keys=context.settings.require_keys,
        wait_limit=context.wait_limit,
        cancel_seconds_max=context.settings.cancel_seconds_max,
    )
    return gateway_app.create(context, more=pages)


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
    """Serve until SIGTERM or SIGINT, then finish the requests under way and close.

    Without `require_keys` every caller may do everything, so that is possible on a loopback address only, and the
    default there. `on_ready` is told the address as soon as it can be used.
    """
    require_keys = keys_are_required(host, require_keys)
    check_exposure(host, require_keys=require_keys)
    shared = context(hf, settings=GatewaySettings(require_keys=require_keys))
    server = HttpServer(shared.wait_limit)
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    url = await server.start(application(shared, api=api, dashboard=dashboard), host, port)
    try:
        with _startup_not_collected():
            if on_ready is not None:
                on_ready(url)
            await asked.wait()
        hf.runtime.wind_down()  # so that its grace and that of the requests are one
    finally:
        await server.stop()


@contextmanager
def _startup_not_collected() -> Generator[None]:
    """Let the collector pass over what there is now: modules and routes, which stay as long as the process does.

    A full collection looked through all of it, about every thousand requests, and no request was served meanwhile.
    """
    gc.collect()  # or what is garbage already would stay
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
