"""Whether this process lives, whether it should be sent requests, and what it has done.

`/livez` touches nothing but the event loop: a store in trouble is no reason to restart this process. Where several
processes share a port, one of them says whether it lives and is ready; `/metrics` are those of all.
"""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from holdfast import wire
from holdfast.assembly import Holdfast
from holdfast.errors import HoldfastError
from holdfast.gateway.endpoints import ApiRequest, Endpoint, JsonResponse, NoParameters
from holdfast.gateway.problems import NoSuchPath


async def livez(request: ApiRequest[NoParameters, None]) -> JsonResponse:  # noqa: ARG001 - it depends on nothing
    """For a supervisor: as long as it responds, there is no reason to restart the process."""
    return JsonResponse(wire.AliveView())


async def readyz(request: ApiRequest[NoParameters, None]) -> JsonResponse:
    """For a load balancer: `503` while the store is slow or failing, the lease is lost, or the process stops."""
    context = request.context
    parts: dict[str, wire.PartState] = {"gateway": "closing" if context.wait_limit.closing.is_set() else "ok"}
    parts["store"] = await _store(context.hf, seconds_max=context.settings.store_seconds_max)
    if (reliable := context.hf.runtime.lease_reliable) is not None:
        parts["worker"] = "ok" if reliable else "lost"
    ready = all(state == "ok" for state in parts.values())
    return JsonResponse(wire.ReadyView(ready, parts), 200 if ready else 503)


async def metrics(request: ApiRequest[NoParameters, None]) -> Response:
    """In the text format of Prometheus, or as OpenMetrics if that is accepted."""
    hf, peers = request.context.hf, request.context.peers
    if request.caller.verbs.namespace != hf.namespace:
        raise NoSuchPath(
            "there are no metrics of this namespace here", hint="Ask a process that serves it, with a key of its own."
        )
    render = hf.metrics().render if peers is None else peers.metrics
    text, content_type = await render(request.sent.header("accept") or "")
    return Response(text, headers={"Content-Type": content_type})


async def _store(hf: Holdfast, *, seconds_max: float) -> wire.PartState:
    try:
        async with asyncio.timeout(seconds_max):
            await hf.runtime.store.document("", "health", "any")  # there is none: it is enough that the store says so
    except TimeoutError:
        return "slow"
    except HoldfastError:
        return "failing"
    return "ok"


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/livez",
        is_limited=False,
        handler=livez,
        summary="Whether this process answers",
        scope=None,
        responses={200: wire.AliveView},
    ),
    Endpoint(
        method="GET",
        path="/readyz",
        is_limited=False,
        handler=readyz,
        summary="Whether requests should be sent here",
        scope=None,
        responses={200: wire.ReadyView, 503: wire.ReadyView},
    ),
    Endpoint(
        method="GET",
        path="/metrics",
        is_limited=False,
        handler=metrics,
        summary="What this process has done and has to do, for Prometheus",
        scope="read",
        responses={200: str},
        refuses=(404,),
        media="text/plain",
    ),
)
PATHS = frozenset(endpoint.path for endpoint in ENDPOINTS)
