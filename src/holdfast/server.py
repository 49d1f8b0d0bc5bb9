"""Gateway and dashboard as one application, and how it is served: what `holdfast dev` and `holdfast serve` run.

Stop: not ready → take no more work → finish the requests under way, within the drain → close. What is under way in the
Holdfast itself has its own grace meanwhile; leaving it gives the rest, and its leases, back.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import NamedTuple

from starlette.types import ASGIApp

from holdfast.assembly import Holdfast
from holdfast.config import RateLimitSettings
from holdfast.dashboard import app as dashboard_app
from holdfast.gateway import app as gateway_app, health
from holdfast.gateway.auth import ApiKeyAuth, OpenAuth, is_loopback
from holdfast.gateway.endpoints import AppContext, GatewaySettings
from holdfast.gateway.listener import bind, url_of
from holdfast.gateway.metrics_peers import MetricsPeers, bind_peers, remove_peers
from holdfast.gateway.server import HttpServer, check_exposure


def context(hf: Holdfast, *, settings: GatewaySettings, peers: MetricsPeers | None = None) -> AppContext:
    """What gateway and dashboard share."""
    auth = ApiKeyAuth(hf) if settings.require_keys else OpenAuth(hf)
    return gateway_app.context(hf, auth=auth, settings=settings, peers=peers)


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
        rates=context.settings.rate_limits.by_name,
    )
    return gateway_app.create(context, more=pages)


def keys_are_required(host: str, wanted: bool | None) -> bool:  # noqa: FBT001 - None is the third value
    """Whether requests need an API key: as `wanted`, or else where others than this machine can reach `host`."""
    return not is_loopback(host) if wanted is None else wanted


class SharedPort(NamedTuple):
    """A port that several processes serve, in one of them: what to accept from, and what the others ask it by."""

    listener: socket.socket
    peers: socket.socket | None = None


@contextmanager
def shared_port(
    host: str, port: int, *, require_keys: bool | None, processes: int
) -> Generator[tuple[str, list[SharedPort]]]:
    """Its address, and what each of so many processes is to be given of it. Raises as `serve` does."""
    check_exposure(host, require_keys=keys_are_required(host, require_keys))
    listener = bind(host, port)
    try:
        peers = bind_peers(processes)
    except OSError:  # no directory for them: then `/metrics` are those of the process that replies
        peers = []
    addresses = [each.getsockname() for each in peers]
    try:
        yield url_of(listener, host), [SharedPort(listener, each) for each in peers or [None] * processes]
    finally:
        for each in (listener, *peers):
            each.close()
        for address in addresses:
            remove_peers(address)


async def serve(
    hf: Holdfast,
    *,
    host: str = "127.0.0.1",
    port: int = 8787,
    api: bool = True,
    dashboard: bool = True,
    require_keys: bool | None = None,
    rate_limits: RateLimitSettings | None = None,
    shared: SharedPort | None = None,
    is_orphaned: Callable[[], bool] = lambda: False,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then finish the requests under way and close.

    Without `require_keys` every caller may do everything, so that is possible on a loopback address only, and the
    default there. `on_ready` is told the address as soon as it can be used. If the port is `shared`, other processes
    serve it as well; the one that `shared_port` was asked by cleans up, unless they are orphaned by then.
    """
    require_keys = keys_are_required(host, require_keys)
    check_exposure(host, require_keys=require_keys)
    peers = None if shared is None or shared.peers is None else MetricsPeers(shared.peers, hf.metrics().render)
    settings = GatewaySettings(require_keys=require_keys, rate_limits=rate_limits or RateLimitSettings())
    served = context(hf, settings=settings, peers=peers)
    server = HttpServer(served.wait_limit)
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    app = application(served, api=api, dashboard=dashboard)
    url = await server.start(app, host, port, shared=None if shared is None else shared.listener)
    try:
        if peers is not None:
            peers.start()
        with _startup_not_collected():
            if on_ready is not None:
                on_ready(url)
            await asked.wait()
        hf.runtime.wind_down()  # so that its grace and that of the requests are one
    finally:
        await server.stop()
        if peers is not None:
            peers.close()
            if is_orphaned():
                remove_peers(peers.address)


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
