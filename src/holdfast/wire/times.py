"""Instants and durations, as people write and read them. Pure: the present is an argument."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from holdfast.errors import UsageError
from holdfast.kernel.units import milliseconds

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def instant_of(text: str | None, *, now: datetime | None = None) -> datetime | None:
    """The instant that a person means: RFC 3339, in UTC if it names no zone; None for no text.

    With `now`, how long ago it was may be written as well: 2h, 3d.
    """
    if text is None:
        return None
    if now is not None and (ago := _duration_of(text)) is not None:
        return now - ago
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        relative = "" if now is None else ", or how long ago: 2h"
        raise UsageError(
            f"{text!r:.40} is not an instant", hint=f"Write 2026-11-16 or 2026-11-16T09:30Z{relative}."
        ) from None
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)


def _duration_of(text: str) -> timedelta | None:
    try:
        return timedelta(milliseconds=milliseconds(text))
    except UsageError:
        return None


def duration(ms: float) -> str:
    """`73 ms`, `1.2 s`, `3 min 4 s`, `2 d 5 h`: two parts at most."""
    if ms < 1_000:
        return f"{max(ms, 0):.0f} ms"
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
