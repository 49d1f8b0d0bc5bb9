"""Which request this is, however often it is sent: the `Idempotency-Key` header, or what the body says.

It counts for the caller who sends it: two callers may choose the same value, and mean two things.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from holdfast.errors import NotAuthenticated
from holdfast.gateway.endpoints import ApiRequest
from holdfast.gateway.problems import Malformed
from holdfast.kernel.keys import KEY_LENGTH_MAX

HEADER = "Idempotency-Key"
LENGTH_MAX = 200
EXAMPLE = "7f0c2a9e-5d1b-4c3e-9a80-2f6b1c7d4e11"


def request_id(request: ApiRequest[Any, Any], said: str | None = None) -> str | None:
    """What names this request: what the caller has `said` elsewhere, or the header; None if there is neither."""
    header = header_of(request)
    value = header if said is None else said
    if value is None:
        return None
    name = f"{request.caller.id}:{value}"
    return name if len(name) <= KEY_LENGTH_MAX else blake2b(name.encode(), digest_size=32).hexdigest()


async def dedupe_id(request: ApiRequest[Any, Any], said: str | None) -> str | None:
    """What names a payload: what the caller has `said`, or the header; None if there is neither."""
    return request_id(request) if said is None else await own_dedupe(request, said)


async def own_dedupe(request: ApiRequest[Any, Any], said: str) -> str:
    """`said` itself, unless it would name a payload that another caller sends with an `Idempotency-Key`."""
    owner, colon, _ = said.partition(":")
    if not colon or owner == request.caller.id:
        return said
    try:
        key = await request.context.hf.api_keys.known(owner)
    except NotAuthenticated:
        return said  # no caller can send in that name
    if key.namespace != request.caller.verbs.namespace:
        return said  # it is not told whether there is such a key elsewhere
    raise Malformed(
        "dedupe begins with the id of another API key", hint="Begin it otherwise: such ids belong to that caller."
    )


def header_of(request: ApiRequest[Any, Any]) -> str | None:
    """The value of the `Idempotency-Key` header, if there is one. Raises `Malformed`."""
    value = request.sent.header(HEADER)
    if value is None:
        return None
    if (
        len(request.sent.headers(HEADER)) > 1
        or not 1 <= len(value) <= LENGTH_MAX
        or not (value.isascii() and value.isprintable())
    ):
        raise Malformed(
            f"{HEADER} cannot be used as it is",
            hint=f"Send it once, with 1 to {LENGTH_MAX} printable ASCII characters: a UUID, for example.",
        )
    return value
