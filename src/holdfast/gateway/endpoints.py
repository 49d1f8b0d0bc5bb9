"""Endpoints: what the gateway takes and returns, declared once.

An `Endpoint` names its types. From it come the decoding of requests, the check of scopes and the OpenAPI document; a
handler gets an `ApiRequest` whose parts are of these types already, and says nothing about HTTP but the status.

Rules
- A handler raises; `problems` alone turns errors into HTTP.
- All data is reached through `asked.caller.verbs`, which knows the caller's namespace and no other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope as AsgiScope, Send

from holdfast.assembly import Holdfast
from holdfast.client import Caller
from holdfast.config import RateLimitSettings
from holdfast.errors import HoldfastError, NotPermitted
from holdfast.events import PartFailed
from holdfast.gateway import problems, requests
from holdfast.gateway.limiting import RequestLimits
from holdfast.gateway.metrics_peers import MetricsPeers
from holdfast.gateway.problems import Malformed
from holdfast.gateway.requests import JSON, Sent
from holdfast.gateway.wait_limit import WaitLimit
from holdfast.kernel.apikeys import Scope, allows
from holdfast.wire import NAMESPACE

_encode = msgspec.json.Encoder().encode
_JSON_TYPE = (b"content-type", JSON.encode())

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
    rate_limits: RateLimitSettings = RateLimitSettings()


class Header(Struct, frozen=True):
    """A request header that an endpoint knows: what it is for, and what it looks like."""

    what: str
    pattern: str = "^[ -~]+$"
    length_max: int = 255
    example: str = ""


class NoParameters(Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


@dataclass(frozen=True, slots=True)
class ApiCaller:
    """Who sent a request, for which namespace, and with which scope; `name` is that of the API key, if there is one."""

    id: str
    scope: Scope
    verbs: Caller
    name: str = ""

    def signed(self, said: str | None) -> str | None:
        """Who is recorded as the one that acts: the API key, and what is `said` beside it; if there is none, that."""
        if not self.name:
            return said
        return f"{self.name} ({said})" if said else self.name


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
    limits: RequestLimits | None = None  # None: nothing is limited


class ApiRequest(Struct, Generic[Q, B], frozen=True):
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


class EncodedResponse(Struct, frozen=True):
    """What a handler said, as it is sent."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's shape
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


Handler = Callable[[Any], Awaitable[JsonResponse | Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one path.

    `responses` are the statuses of success and the types of their bodies, `response_headers` the headers of a response
    by its status; `refuses` are the statuses of problems beyond those that any endpoint may return. `body` is None if
    the endpoint takes none; `body_optional` says that it may be left out, and then all of its fields have their
    defaults. `headers` are the request headers that the endpoint knows. `media` is the media type of its responses, if
    that is not JSON. The docstring of the handler is the description of the operation.
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
    is_limited: bool = True  # by what the gateway limits for each API key
    starts: bool = False  # whether it counts as a start

    async def __call__(self, context: AppContext, sent: Sent) -> ASGIApp:
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

    async def _handle(self, context: AppContext, sent: Sent) -> ASGIApp:
        rate_headers: tuple[tuple[bytes, bytes], ...] = ()
        if self.scope is None:  # for all: no key is looked at
            caller = ApiCaller("anyone", "read", context.hf)
        else:
            caller = await context.auth.caller(sent.header("authorization"))
            if context.limits is not None and self.is_limited:
                passage = await context.limits.admit(caller.id, caller.verbs.namespace, starts=self.starts)
                if passage.refusal is not None:
                    refused = problems.response(passage.refusal, sent.path)
                    refused.raw_headers += passage.headers
                    return refused
                rate_headers = passage.headers
            if not allows(caller.scope, self.scope):
                raise NotPermitted(
                    f"{self.method} {self.path} needs the scope {self.scope!r}; this key has {caller.scope!r}"
                )
        query = requests.query_of(sent, self.query)
        data = await sent.body(bytes_max=context.settings.body_bytes_max, seconds_max=context.settings.body_seconds_max)
        request = ApiRequest(context, caller, sent.scope["path_params"], query, self._decode_body(data, sent), sent)
        # The key decides the namespace, and the caller may want to know.
        known = () if self.scope is None else (*_namespace_header(caller.verbs.namespace), *rate_headers)
        response = await self.handler(request)
        if isinstance(response, JsonResponse):
            return _encoded(response, known)
        response.raw_headers += known
        return response

    def _decode_body(self, data: bytes, sent: Sent) -> Any:
        if self.body is None and data:
            raise Malformed(f"{self.method} {self.path} takes no body", hint="Send none.")
        if self.body is None:
            return None
        return self.body() if self.body_optional and not data else requests.decode(data, self.body, sent)


def _encoded(response: JsonResponse, more: Iterable[tuple[bytes, bytes]]) -> EncodedResponse:
    body = response.body if isinstance(response.body, bytes) else _encode(response.body)
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in response.headers.items()]
    headers += (b"content-length", b"%d" % len(body)), _JSON_TYPE, *more
    return EncodedResponse(response.status, headers, body)


@lru_cache(maxsize=256)
def _namespace_header(namespace: str) -> tuple[tuple[bytes, bytes]]:
    return ((NAMESPACE.lower().encode(), quote(namespace, safe="").encode()),)
