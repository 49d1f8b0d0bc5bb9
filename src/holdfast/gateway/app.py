"""The gateway as an ASGI application: every endpoint there is, behind one gatekeeper."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from holdfast.assembly import Holdfast
from holdfast.gateway import (
    health,
    hooks,
    keys,
    openapi,
    problems,
    results,
    runs,
    starts,
    streams,
    tasks,
    workers,
    workflows,
)
from holdfast.gateway.auth import LoopbackOnly
from holdfast.gateway.endpoints import AppContext, Auth, Endpoint, GatewaySettings
from holdfast.gateway.metrics_peers import MetricsPeers
from holdfast.gateway.problems import NoSuchMethod, NoSuchPath
from holdfast.gateway.requests import Sent
from holdfast.gateway.wait_limit import WaitLimit

_MAIN: tuple[Endpoint, ...] = (
    *starts.ENDPOINTS,
    *runs.ENDPOINTS,
    *results.ENDPOINTS,
    *streams.ENDPOINTS,
    *hooks.ENDPOINTS,
    *workflows.ENDPOINTS,
    *workers.ENDPOINTS,
    *tasks.ENDPOINTS,
    *keys.ENDPOINTS,
    *health.ENDPOINTS,
)
ENDPOINTS: tuple[Endpoint, ...] = (*_MAIN, openapi.endpoint(_MAIN))


def context(hf: Holdfast, *, auth: Auth, settings: GatewaySettings, peers: MetricsPeers | None = None) -> AppContext:
    """What the handlers of one gateway share."""
    hf.metrics()  # which counts from its first call on
    return AppContext(hf, auth, WaitLimit(settings.waiting_max), settings, peers)


def routes(context: AppContext, endpoints: Iterable[Endpoint] = ENDPOINTS) -> list[BaseRoute]:
    """The endpoints as routes; those of one path side by side."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return [Route(path, _PathApp(context, methods), name=path) for path, methods in by_path.items()]


def create(
    context: AppContext, *, endpoints: Iterable[Endpoint] = ENDPOINTS, more: Iterable[BaseRoute] = ()
) -> Starlette:
    """The application; `more` are routes that come behind its own."""
    return Starlette(
        routes=[*routes(context, endpoints), *more],
        exception_handlers={HTTPException: _no_such_path},
        middleware=[] if context.settings.require_keys else [Middleware(LoopbackOnly)],
    )


class _PathApp:
    """All methods of one path, as an ASGI application."""

    def __init__(self, context: AppContext, methods: dict[str, Endpoint]) -> None:
        self._context = context
        self._methods = dict(methods)
        if "GET" in methods and methods["GET"].media != streams.MEDIA_TYPE:
            self._methods["HEAD"] = methods["GET"]  # the server leaves the body out
        self._allowed = ", ".join(sorted(self._methods))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._methods.get(scope["method"])
        if endpoint is None:
            refusal = NoSuchMethod(scope["method"], scope["path"], self._allowed)
            response: Response = problems.response(refusal, scope["path"])
        else:
            response = await endpoint(self._context, Sent(scope, receive))
        await response(scope, receive, send)


async def _no_such_path(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problems.response(NoSuchPath(f"there is nothing at {request.url.path}"), request.url.path)
