"""Durations as people write them, and instants as they read them.

A duration is a number of seconds, a `timedelta`, or text: `"1500ms" "30s" "5m" "2h" "3d"`. Inside the
engine every instant and every duration is an integer number of milliseconds, of the types in `kernel.times`.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from holdfast import durations
from holdfast.errors import UsageError
from holdfast.kernel.times import Instant, Millis

Duration = durations.Duration
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
        read = durations.text_in_ms(duration)
        if read is None:
            raise _not_a_duration(duration)
        amount = read
    else:
        raise _not_a_duration(duration)
    if not 0 <= amount <= DURATION_MS_MAX:  # also refuses NaN
        raise UsageError(f"duration {duration!r} is out of range", hint="It must be between 0 and 1000 years.")
    return Millis(math.ceil(round(amount, 3)))  # what lies beyond a microsecond is noise of floating point


def _not_a_duration(value: object) -> UsageError:
    return UsageError(f"{value!r} is not a duration", hint=f"Use a {durations.FORMS}.")
