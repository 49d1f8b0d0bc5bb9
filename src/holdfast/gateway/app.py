"""The gateway as an ASGI application: every endpoint there is, behind one gatekeeper.

A request goes from the server straight to its endpoint. What no endpoint has as its path is for the framework: pages,
redirects, and the problem that there is nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.assembly import Holdfast
from holdfast.gateway import (
    auth,
    bulk,
    flow,
    health,
    hooks,
    keys,
    lanes,
    limiting,
    openapi,
    problems,
    rate_limits,
    results,
    runs,
    starts,
    streams,
    tasks,
    workers,
    workflows,
)
from holdfast.gateway.endpoints import AppContext, Auth, Endpoint, GatewaySettings
from holdfast.gateway.metrics_peers import MetricsPeers
from holdfast.gateway.paths import PathTree
from holdfast.gateway.problems import NoSuchMethod, NoSuchPath
from holdfast.gateway.requests import Sent
from holdfast.gateway.wait_limit import WaitLimit

_MAIN: tuple[Endpoint, ...] = (
    *starts.ENDPOINTS,
    *runs.ENDPOINTS,
    *bulk.ENDPOINTS,
    *results.ENDPOINTS,
    *streams.ENDPOINTS,
    *hooks.ENDPOINTS,
    *workflows.ENDPOINTS,
    *lanes.ENDPOINTS,
    *workers.ENDPOINTS,
    *flow.ENDPOINTS,
    *tasks.ENDPOINTS,
    *keys.ENDPOINTS,
    *rate_limits.ENDPOINTS,
    *health.ENDPOINTS,
)
ENDPOINTS: tuple[Endpoint, ...] = (*_MAIN, *openapi.endpoints(_MAIN))


def context(hf: Holdfast, *, auth: Auth, settings: GatewaySettings, peers: MetricsPeers | None = None) -> AppContext:
    """What the handlers of one gateway share."""
    hf.metrics()  # which counts from its first call on
    limits = limiting.request_limits(settings.rate_limits, hf.runtime.limits)
    return AppContext(hf, auth, WaitLimit(settings.waiting_max), settings, peers, limits)


def create(
    context: AppContext, *, endpoints: Iterable[Endpoint] = ENDPOINTS, more: Iterable[BaseRoute] = ()
) -> ASGIApp:
    """The application; `more` are routes that come behind its own."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    return GatewayApp({path: _PathApp(context, methods) for path, methods in by_path.items()}, context, more)


class GatewayApp:
    """The ASGI application of a gateway."""

    def __init__(self, apps: Mapping[str, ASGIApp], context: AppContext, more: Iterable[BaseRoute]) -> None:
        self._guard = limiting.address_guard(context.settings.rate_limits, context.hf.runtime)
        self._is_open = not context.settings.require_keys
        self._paths = PathTree[ASGIApp]()
        for path, app in apps.items():
            self._paths.add(path, app)
        own = [Route(path, app, name=path) for path, app in apps.items()]
        self._framework = Starlette(routes=[*own, *more], exception_handlers={HTTPException: _no_such_path})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._guard is not None and scope["path"] not in health.PATHS:
            passage = self._guard.admit(scope)
            if passage.refusal is not None:
                refused = problems.response(passage.refusal, scope["path"])
                refused.raw_headers += passage.headers
                await refused(scope, receive, send)
                return
        if self._is_open and (refusal := auth.refuse_foreign(scope["headers"])) is not None:
            app: ASGIApp = problems.response(refusal, scope["path"])
        elif (found := self._paths.find(scope["path"])) is not None:
            app, scope["path_params"] = found
        else:
            app = self._framework
        await app(scope, receive, send)


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
            response: ASGIApp = problems.response(refusal, scope["path"])
        else:
            response = await endpoint(self._context, Sent(scope, receive))
        await response(scope, receive, send)


async def _no_such_path(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problems.response(NoSuchPath(f"there is nothing at {request.url.path}"), request.url.path)
