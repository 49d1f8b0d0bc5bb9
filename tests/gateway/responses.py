"""Every answer is what its endpoint declares: so what OpenAPI says and what happens cannot drift apart."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import msgspec
from starlette.routing import compile_path

from holdfast import wire
from holdfast.gateway import app, openapi, problems
from holdfast.gateway.endpoints import Endpoint
from holdfast.gateway.requests import JSON

_PLACES = [(compile_path(endpoint.path)[0], endpoint) for endpoint in app.ENDPOINTS]


async def check(response: httpx2.Response) -> None:
    """A hook for httpx2: raises unless the answer is one that is declared, to the last field."""
    if response.request.method == "HEAD":
        return  # what GET answers, without the body
    endpoint = _endpoint(response.request)
    media = response.headers.get("content-type", "").partition(";")[0]
    if endpoint is not None and response.status_code in endpoint.responses:
        assert media == endpoint.media, f"{response} is {media}"
        if media != JSON:
            return  # a stream: who reads it sees what it is
        await response.aread()
        _is_exactly(endpoint.responses[response.status_code], response)
        return
    await response.aread()
    assert media == problems.MEDIA_TYPE, f"{response} is {media}: {response.text:.300}"
    problem: wire.ProblemView = _is_exactly(wire.ProblemView, response)
    assert problem.status == response.status_code
    assert problem.type == f"urn:holdfast:problem:{problem.code}"
    assert all((problem.title, problem.detail, problem.code)), problem
    assert problem.status in _refusals(endpoint), f"{response} is not declared: {problem}"


def _endpoint(request: httpx2.Request) -> Endpoint | None:
    for pattern, endpoint in _PLACES:
        if endpoint.method == request.method and pattern.match(request.url.path):
            return endpoint
    return None


def _refusals(endpoint: Endpoint | None) -> set[int]:
    if endpoint is None:
        return {404, 405}
    return {*openapi.ANYWHERE, *openapi.WITH_A_BODY, *endpoint.refuses}


def _is_exactly(kind: Any, response: httpx2.Response) -> Any:
    """What the answer holds, if it holds all of this type and nothing else."""
    value = msgspec.json.decode(response.content, type=kind)
    assert json.loads(msgspec.json.encode(value)) == response.json(), f"{response.text:.500} is more than {kind}"
    return value
