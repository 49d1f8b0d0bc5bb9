"""Endpoints: what the gateway takes and returns, declared once.

An `Endpoint` names its types. From it come the decoding of requests, the check of scopes and the OpenAPI document; a
handler gets an `ApiRequest` whose parts are of these types already, and says nothing about HTTP but the status.

Rules
- A handler raises; `problems` alone turns errors into HTTP.
- All data is reached through `asked.caller.verbs`, which knows the caller's namespace and no other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from holdfast.assembly import Holdfast
from holdfast.client import Caller
from holdfast.errors import HoldfastError, NotPermitted
from holdfast.events import PartFailed
from holdfast.gateway import problems, requests
from holdfast.gateway.metrics_peers import MetricsPeers
from holdfast.gateway.problems import Malformed
from holdfast.gateway.requests import JSON, Sent
from holdfast.gateway.wait_limit import WaitLimit
from holdfast.kernel.apikeys import Scope, allows
from holdfast.wire import NAMESPACE

_encode = msgspec.json.Encoder().encode

Q = TypeVar("Q")
B = TypeVar("B")


class GatewaySettings(Struct, frozen=True, kw_only=True):
    """What a gateway, and the dashboard beside it, take at most, and how long they wait."""

    require_keys: bool = True
    body_bytes_max: int = 1024 * 1024
    body_seconds_max: float = 30.0
    wait_seconds_max: float = 60.0
    waiting_max: int = 1000
    stream_seconds_max: float = 900.0  # then its reader has to come back, and to show the key again
    heartbeat_seconds: float = 15.0  # of a stream on which nothing happens
    store_seconds_max: float = 1.0  # a store that is slower is not ready
    cancel_seconds_max: float = 20.0  # for a page of the dashboard; a cancellation may take longer


class Header(Struct, frozen=True):
    """A request header that an endpoint knows: what it is for, and what it looks like."""

    what: str
    pattern: str = "^[ -~]+$"
    length_max: int = 255


class NoParameters(Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


@dataclass(frozen=True, slots=True)
class ApiCaller:
    """Who sent a request, for which namespace, and with which scope."""

    id: str
    scope: Scope
    verbs: Caller


class Auth(Protocol):
    """Finds out who sent a request."""

    async def caller(self, authorization: str | None) -> ApiCaller:
        """Who shows this `Authorization` header. Raises `NotAuthenticated`."""
        ...


@dataclass(frozen=True, slots=True)
class AppContext:
    """What all handlers share."""

    hf: Holdfast
    auth: Auth
    wait_limit: WaitLimit
    settings: GatewaySettings
    peers: MetricsPeers | None = None  # other processes on the same port


@dataclass(frozen=True, slots=True)
class ApiRequest(Generic[Q, B]):
    """A request whose parts have been decoded and whose caller is known."""

    context: AppContext
    caller: ApiCaller
    path: Mapping[str, str]
    query: Q
    body: B
    sent: Sent


class JsonResponse(Struct, frozen=True):
    """A status and what is said with it: anything that JSON can hold, or bytes that are JSON already."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = {}


Handler = Callable[[Any], Awaitable[JsonResponse | Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one path.

    `responses` are the statuses of success and the types of their bodies, `response_headers` the headers of a response
    by its status; `refuses` are the statuses of problems beyond those that any endpoint may return. `body` is None if
    the endpoint takes none; `body_optional` says that it may be left out, and then all of its fields have their
    defaults. `headers` are the request headers that the endpoint knows. `media` is the media type of its responses, if
    that is not JSON.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    scope: Scope | None
    query: type[Struct] = NoParameters
    body: Any = None
    body_optional: bool = False
    responses: Mapping[int, Any] = field(default_factory=lambda: {200: None})
    refuses: tuple[int, ...] = ()
    headers: Mapping[str, Header] = field(default_factory=dict[str, Header])
    response_headers: Mapping[int, Mapping[str, str]] = field(default_factory=dict[int, Mapping[str, str]])
    media: str = JSON

    async def __call__(self, context: AppContext, sent: Sent) -> Response:
        """The response to a request. Never raises: errors become problems."""
        try:
            return await self._handle(context, sent)
        except ClientDisconnect:
            return Response(status_code=499)  # no one receives it
        except HoldfastError as error:
            return problems.response(error, sent.path)
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end the connection without a response
            context.hf.runtime.emit(PartFailed(f"{self.method} {self.path}", f"{type(error).__name__}: {error}"))
            return problems.response(error, sent.path)

    async def _handle(self, context: AppContext, sent: Sent) -> Response:
        if self.scope is None:  # for all: no key is looked at
            caller = ApiCaller("anyone", "read", context.hf)
        else:
            caller = await context.auth.caller(sent.header("authorization"))
            if not allows(caller.scope, self.scope):
                raise NotPermitted(
                    f"{self.method} {self.path} needs the scope {self.scope!r}; this key has {caller.scope!r}"
                )
        query = requests.query_of(sent, self.query)
        data = await sent.body(bytes_max=context.settings.body_bytes_max, seconds_max=context.settings.body_seconds_max)
        request = ApiRequest(context, caller, sent.scope["path_params"], query, self._decode_body(data, sent), sent)
        response = _response(await self.handler(request))
        if self.scope is not None:  # the key decides it, and the caller may want to know
            response.headers[NAMESPACE] = quote(caller.verbs.namespace, safe="")
        return response

    def _decode_body(self, data: bytes, sent: Sent) -> Any:
        if self.body is None and data:
            raise Malformed(f"{self.method} {self.path} takes no body", hint="Send none.")
        if self.body is None:
            return None
        return self.body() if self.body_optional and not data else requests.decode(data, self.body, sent)


def _response(returned: JsonResponse | Response) -> Response:
    if isinstance(returned, Response):
        return returned
    body = returned.body if isinstance(returned.body, bytes) else _encode(returned.body)
    return Response(body, returned.status, dict(returned.headers), JSON)
