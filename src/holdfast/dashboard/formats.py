"""How instants, durations, sizes and values are written on the pages. Pure: the present is an argument."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec

from holdfast.adapters.payloads import JsonCodec
from holdfast.kernel.journal import Value

CLIP_CHARACTERS = 4_000
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
_codec = JsonCodec()


def duration(ms: float) -> str:
    """`73 ms`, `1.2 s`, `3 min 4 s`, `2 d 5 h`: two parts at most."""
    if ms < 1_000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1_000:.3g} s"
    for (size, unit), (smaller, its_unit) in pairwise(_UNITS):
        if ms >= size:
            rest = int(ms % size // smaller)
            return f"{int(ms // size)} {unit}" + (f" {rest} {its_unit}" if rest else "")
    raise AssertionError(ms)


def ago(at: datetime, now: datetime) -> str:
    """How long ago, or how far ahead, in one unit."""
    ms = (now - at).total_seconds() * 1_000
    size, unit = next(((size, unit) for size, unit in _UNITS if abs(ms) >= size), (1_000, "s"))
    count = int(abs(ms) // size)
    if count == 0:
        return "now"
    return f"{count} {unit} ago" if ms > 0 else f"in {count} {unit}"


def instant(at: datetime) -> str:
    """In UTC, to the second, as a table shows it."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def exact(at: datetime) -> str:
    """In UTC, to the millisecond, as machines read it."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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
    """What the journal keeps of a value, clipped; of a large one only its size."""
    if value is None:
        return ""
    if isinstance(value.json, msgspec.UnsetType):
        return size(value.size)
    return clipped(pretty(bytes(value.json)), 600)[0]
