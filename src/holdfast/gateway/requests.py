"""Reading a request: its headers, its query and its body, each within its limits.

What is not declared is refused: unknown parameters, unknown fields, a body where none belongs.
"""

from __future__ import annotations

import asyncio
import typing
from collections.abc import Callable
from datetime import datetime
from functools import cache, lru_cache
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from holdfast.gateway.problems import BodyTooLarge, Malformed, NotJson, TooSlow

JSON = "application/json"
REMEMBERED_BYTES_MAX = 256


class Sent:
    """A request as it came."""

    __slots__ = ("_headers", "receive", "scope")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.receive = receive
        self._headers: dict[bytes, bytes] = dict(scope["headers"])

    @property
    def path(self) -> str:
        return self.scope["path"]

    def header(self, name: str) -> str | None:
        """The header of this name; the last, if there are several."""
        value = self._headers.get(name.lower().encode())
        return None if value is None else value.decode("latin-1")

    def headers(self, name: str) -> list[str]:
        """All headers of this name."""
        wanted = name.lower().encode()
        return [value.decode("latin-1") for each, value in self.scope["headers"] if each == wanted]

    async def until_gone(self) -> None:
        """Returns when the caller has hung up."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def body(self, *, bytes_max: int, seconds_max: float) -> bytes:
        """The body, as far as it is not too large and does not take too long."""
        declared = self._headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > bytes_max:
            raise _too_large(bytes_max)
        if not declared and b"transfer-encoding" not in self._headers:
            return b""
        try:
            async with asyncio.timeout(seconds_max):
                return await self._whole(bytes_max)
        except TimeoutError:
            raise TooSlow(f"the body did not arrive within {seconds_max:g} s") from None

    async def _whole(self, bytes_max: int) -> bytes:
        body = b""
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            body += message.get("body", b"")
            if len(body) > bytes_max:
                raise _too_large(bytes_max)
            if not message.get("more_body", False):
                return body


def _too_large(bytes_max: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"the body is over {bytes_max:,} bytes", hint="Send less, or a reference to where it is stored."
    )


def query_of(sent: Sent, kind: type[Struct]) -> Struct:
    """The parameters, as the Struct that declares them."""
    text = sent.scope["query_string"]
    return _remembered_query(text, kind) if len(text) <= REMEMBERED_BYTES_MAX else _query(text, kind)


@lru_cache(maxsize=256)
def _remembered_query(text: bytes, kind: type[Struct]) -> Struct:
    """The same few short queries come again and again."""
    return _query(text, kind)


def _query(text: bytes, kind: type[Struct]) -> Struct:
    given: dict[str, Any] = {}
    lists = _fields(kind, lambda each: typing.get_origin(each) is list)
    for name, value in parse_qsl(text.decode("latin-1"), keep_blank_values=True):
        if name in lists:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise Malformed(f"query parameter {name!r} is given more than once", hint="Send it once.")
        else:
            given[name] = value
    for name in _fields(kind, lambda each: each is datetime) & given.keys():
        if "T" not in given[name].upper():  # a number would be taken for seconds since 1970
            raise Malformed(
                f"{name}={given[name]!r:.60} is no instant", hint="Send, for example, 2026-11-16T12:00:00Z."
            )
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        names = ", ".join(kind.__struct_fields__)
        hint = f"It takes: {names}." if names else "It takes no parameters."
        raise Malformed(f"the query does not fit: {error}", hint=hint) from None


def _fields(query: type[Struct], wanted: Callable[[Any], bool]) -> set[str]:
    """The parameters that are of a kind, or may be."""
    hints = typing.get_type_hints(query).items()
    return {name for name, hint in hints if any(map(wanted, (hint, *typing.get_args(hint))))}


def decode(data: bytes, kind: Any, sent: Sent) -> Any:
    """What the body holds, as this type."""
    media = sent.header("content-type") or ""
    if media != JSON:
        media = media.partition(";")[0].strip().lower()
    if media != JSON and not media.endswith("+json"):
        raise NotJson(f"the body is {media or 'of no media type'!r}")
    try:
        data.decode()  # parts of it are kept as they are, so that nothing else looks at each character
        return _decoder(kind).decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(f"the body does not fit: {error}", hint="See /openapi.json for what it takes.") from None


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
