"""Which request this is, however often it is sent: the `Idempotency-Key` header, or what the body says.

It counts for the caller who sends it: two callers may choose the same value, and mean two things.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from holdfast.gateway.endpoints import Asked
from holdfast.gateway.problems import Malformed
from holdfast.kernel.keys import KEY_LENGTH_MAX

HEADER = "Idempotency-Key"
LENGTH_MAX = 200


def request_id(asked: Asked[Any, Any], said: str | None = None) -> str | None:
    """What names this request: what the caller has `said` elsewhere, or the header; None if there is neither."""
    header = _header(asked)
    value = header if said is None else said
    if value is None:
        return None
    name = f"{asked.caller.id}:{value}"
    return name if len(name) <= KEY_LENGTH_MAX else blake2b(name.encode(), digest_size=32).hexdigest()


def _header(asked: Asked[Any, Any]) -> str | None:
    values = asked.sent.headers(HEADER)
    if not values:
        return None
    value = values[0]
    if len(values) > 1 or not 1 <= len(value) <= LENGTH_MAX or not (value.isascii() and value.isprintable()):
        raise Malformed(
            f"{HEADER} cannot be used as it is",
            hint=f"Send it once, with 1 to {LENGTH_MAX} printable ASCII characters: a UUID, for example.",
        )
    return value
