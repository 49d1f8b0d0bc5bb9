"""The words of ASGI, as far as they are needed here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Response = tuple[Message, Message]

DISCONNECTED = "http.disconnect"


def header_values(scope: Scope, name: bytes) -> list[bytes]:
    """The values of a request header, in their order."""
    return [value for header, value in scope["headers"] if header.lower() == name]


def response(status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> Response:
    """A whole response."""
    start: Message = {"type": "http.response.start", "status": status, "headers": list(headers)}
    return start, {"type": "http.response.body", "body": body, "more_body": False}
