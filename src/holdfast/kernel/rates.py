"""How often something may happen: the generic cell rate algorithm, in whole microseconds of the store's clock.

With T = `per` / `count`, all that is kept of a rate is `due_at_us`: when the next one would be due if all came evenly.
To take `cost` of it moves it on: due' = max(now, due) + cost × T.

    verb       the next one                           used by
    ─────────  ─────────────────────────────────────  ─────────────────────────────────
    `reserve`  may go from due − (burst − 1) × T on   what waits: late, and never refused
    `spend`    may go now if due' ≤ now + burst × T,
               else nothing is taken                  what is refused

Rules
- After a rest, `burst` many may go at once. Left out, it is 1 for what waits: all go evenly. For what is refused it is
  `count`: who counts five in an hour means any five of them.
- A clock that went back lets nothing through: `due_at_us` never moves back.
- A rate whose `due_at_us` has passed is as if it had never been used: it need not be kept.
"""

from __future__ import annotations

from typing import Final, NewType

from msgspec import Struct

from holdfast.errors import UsageError
from holdfast.kernel.times import Instant, Millis
from holdfast.kernel.units import Duration, milliseconds

Micros = NewType("Micros", int)  # since 1970 where the name ends in `_at_us`, else a duration

COUNT_MAX: Final = 1_000_000
_US_PER_MS: Final = 1_000


class Rate(Struct, frozen=True, gc=False):
    """So many in so long: `Rate(90, per="1s")`. After a rest, up to `burst` of them may go at once.

    Left out, `burst` is 1 for what waits (`throttle=`), and `count` for what is refused (`hf.limit`).

    `by` and `cost` are for `throttle=`: the rate is counted for each value of the template `by` (`"{tenant}"`), and
    `cost` names the argument that says how many one run counts for.
    """

    count: int
    per: Duration
    burst: int | None = None
    by: str = ""
    cost: str = ""

    def __post_init__(self) -> None:
        for name, value in (("count", self.count), ("burst", 1 if self.burst is None else self.burst)):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= COUNT_MAX:
                raise UsageError(
                    f"Rate({name}={value!r}) is out of range", hint=f"Use a whole number from 1 to {COUNT_MAX:,}."
                )
        if milliseconds(self.per) * _US_PER_MS < self.count:
            raise UsageError(
                f"Rate({self.count!r}, per={self.per!r}) is more than one in a microsecond",
                hint='Say how many in how long, such as Rate(90, per="1s").',
            )

    @property
    def interval_us(self) -> int:
        """How long after one the next is due, if they come evenly. Rounded up, so that no more pass than are said."""
        return -(-milliseconds(self.per) * _US_PER_MS // self.count)

    @property
    def at_once(self) -> int:
        """How many may go at once after a rest, where the others are refused."""
        return self.burst or self.count

    @property
    def tolerance_us(self) -> int:
        """How long before it is due one may go, where it waits otherwise."""
        return ((self.burst or 1) - 1) * self.interval_us


class Taking(Struct, frozen=True, gc=False):
    """What a run takes of the rate of this name when it is admitted."""

    name: str
    rate: Rate
    cost: int = 1


class Granted(Struct, frozen=True, gc=False):
    """It may go; `remaining` more may go at once, and all `burst` of them after `reset_ms`."""

    due_at_us: Micros
    remaining: int
    reset_ms: Millis


class Exceeded(Struct, frozen=True, gc=False):
    """It may not go yet, and nothing was taken: after `retry_ms` as much may."""

    retry_ms: Millis
    remaining: int
    reset_ms: Millis


def reserve(rate: Rate, due_at_us: Micros, *, now_ms: Instant, cost: int = 1) -> tuple[Micros, Instant]:
    """Take `cost` of the rate, now or later: what is to be kept, and from when on it may go."""
    now_us = now_ms * _US_PER_MS
    goes_at_us = max(now_us, due_at_us - rate.tolerance_us)
    kept_us = max(now_us, due_at_us) + cost * rate.interval_us
    return Micros(kept_us), Instant(-(-goes_at_us // _US_PER_MS))


def spend(rate: Rate, due_at_us: Micros, *, now_ms: Instant, cost: int = 1) -> Granted | Exceeded:
    """Take `cost` of the rate if all of it may go now, else nothing."""
    now_us = now_ms * _US_PER_MS
    interval_us = rate.interval_us
    burst_us = rate.at_once * interval_us
    horizon_us = now_us + burst_us
    idle_us = max(now_us, due_at_us)
    kept_us = idle_us + cost * interval_us
    if kept_us > horizon_us:
        remaining = max(0, horizon_us - idle_us) // interval_us
        return Exceeded(_until(kept_us - burst_us, now_us), remaining, _until(idle_us, now_us))
    return Granted(Micros(kept_us), (horizon_us - kept_us) // interval_us, _until(kept_us, now_us))


def _until(at_us: int, now_us: int) -> Millis:
    return Millis(max(0, -(-(at_us - now_us) // _US_PER_MS)))
