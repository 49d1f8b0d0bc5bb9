"""Durations as people write them, and instants as they read them.

A duration is a number of seconds, a `timedelta`, or text: `"1500ms" "30s" "5m" "2h" "3d"`. Inside the
engine every instant and every duration is an integer number of milliseconds, of the types in `kernel.times`.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from holdfast.errors import UsageError
from holdfast.kernel.times import Instant, Millis

_FORMS = "number of seconds, timedelta, or text such as '1500ms', '30s', '5m', '2h', '3d'"
Duration = float | int | str | timedelta

_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TEXT = re.compile(r"(?P<amount>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|h|d)")
_REMEMBERED_MAX = 32  # characters
DURATION_MS_MAX = Millis(1000 * 365 * 86_400_000)  # a thousand years: longer is a mistake, and stays within 64 bits


def utc_of(at_ms: Instant) -> datetime:
    """The instant that lies so many milliseconds after 1970."""
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def utc_or_none(at_ms: Instant | None) -> datetime | None:
    """The instant that lies so many milliseconds after 1970, if there is one."""
    return None if at_ms is None else utc_of(at_ms)


def milliseconds(duration: Duration) -> Millis:
    """`duration` in whole milliseconds; sub-millisecond parts round up, so a wait is never cut short."""
    if isinstance(duration, timedelta):
        amount = duration / timedelta(milliseconds=1)
    elif isinstance(duration, bool):
        raise _not_a_duration(duration)
    elif isinstance(duration, int | float):
        amount = duration * 1000
    elif isinstance(duration, str):
        amount = _remembered(duration) if len(duration) <= _REMEMBERED_MAX else _amount(duration)
    else:
        raise _not_a_duration(duration)
    if not 0 <= amount <= DURATION_MS_MAX:  # also refuses NaN
        raise UsageError(f"duration {duration!r} is out of range", hint="It must be between 0 and 1000 years.")
    return Millis(math.ceil(round(amount, 3)))  # what lies beyond a microsecond is noise of floating point


@lru_cache(maxsize=256)
def _remembered(text: str) -> float:
    """The same few short texts are read again and again."""
    return _amount(text)


def _amount(text: str) -> float:
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise _not_a_duration(text)
    return float(match["amount"]) * _UNIT_MS[match["unit"]]


def _not_a_duration(value: object) -> UsageError:
    return UsageError(f"{value!r} is not a duration", hint=f"Use a {_FORMS}.")
