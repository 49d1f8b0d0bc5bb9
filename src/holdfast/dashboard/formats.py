"""How sizes and values are written on the pages. Instants and durations are written as everywhere: see `wire.times`."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.adapters.payloads import JsonCodec
from holdfast.kernel.journal import Value

CLIP_CHARACTERS = 4_000
_codec = JsonCodec()


def size(count: int) -> str:
    """A number of bytes."""
    if count < 1_024:
        return f"{count} bytes"
    return f"{count / 1_024:.1f} KiB" if count < 1_048_576 else f"{count / 1_048_576:.1f} MiB"


def encoded(value: Any) -> bytes:
    """A value of a user's as JSON."""
    return _codec.encode(value, what="a value")


def pretty(data: bytes) -> str:
    """JSON, laid out for reading."""
    return msgspec.json.format(data, indent=2).decode()


def clipped(text: str, limit: int = CLIP_CHARACTERS) -> tuple[str, bool]:
    """The beginning of a text, and whether anything was left out."""
    return (text, False) if len(text) <= limit else (text[:limit].rstrip() + " …", True)


def kept(value: Value | None) -> str:
    """What the journal keeps of a value, clipped; of a large one only its size, of a sealed one its key."""
    if value is None:
        return ""
    if value.sealed:
        return f"sealed under key {value.sealed}"
    if isinstance(value.json, msgspec.UnsetType):
        return size(value.size)
    return clipped(pretty(bytes(value.json)), 600)[0]
