"""When a failed attempt of an effect is repeated, and after how long.

    the attempt raised               answer
    ───────────────────────────────  ──────────────────────────────────────────
    Permanent, or a UsageError       give up: trying again cannot help
    one of `never_on`                give up
    anything, in the last attempt    give up
    RetryAfter(s)                    again after s seconds; after full jitter if its class has made no seconds of them
    not one of `on`                  give up
    anything else                    again after full jitter: chance × min(cap, base × factorⁿ)

The `deadline` counts from when the workflow asked for the effect. A wait that would not end before it is not begun, an
attempt that is under way then is cut short, and none is begun at or after it, in whatever process: `begin` is asked
where the effect is entered.
Attempts are counted by their records, so a crash or an expired lease uses none up.
"""

from __future__ import annotations

from msgspec import Struct

from holdfast.errors import Permanent, RetryAfter, UsageError
from holdfast.kernel.times import NO_TIME, Instant, Millis
from holdfast.kernel.units import Duration, milliseconds

FACTOR_MAX = 1000
_EXPONENT_MAX = 64  # beyond it every sensible cap is long reached, and floats would overflow


class Retry(Struct, frozen=True, gc=False, kw_only=True):
    """A retry policy. It belongs to effects alone: only they touch the world.

    `attempts` counts the first one too. `base`, `cap` and `deadline` are durations. An exception is retried if
    it is one of `on` and none of `never_on`.
    """

    attempts: int = 3
    base: Duration = 0.5
    factor: float = 2.0
    cap: Duration = 20.0
    deadline: Duration | None = None
    on: tuple[type[BaseException], ...] = (Exception,)
    never_on: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise UsageError(
                f"Retry(attempts={self.attempts!r}) would never call the effect", hint="Use 1 for no retry."
            )
        if not 1 <= self.factor <= FACTOR_MAX:
            raise UsageError(f"Retry(factor={self.factor!r}) is out of range", hint=f"Use 1 to {FACTOR_MAX}.")
        for name, classes in (("on", self.on), ("never_on", self.never_on)):
            if not isinstance(classes, tuple) or not all(isinstance(each, type) for each in classes):
                raise UsageError(
                    f"Retry({name}={classes!r}) is not a tuple of exception classes", hint="Write (OSError,)."
                )
        for duration in (self.base, self.cap, self.deadline or 0):
            milliseconds(duration)


DEFAULT = Retry()
ONCE = Retry(attempts=1)


class RetryIn(Struct, frozen=True, gc=False):
    """Repeat the attempt after this delay."""

    delay_ms: Millis


class GiveUp(Struct, frozen=True, gc=False):
    """The effect has failed for good."""


def decide(
    policy: Retry, error: BaseException, *, attempt: int, asked_at_ms: Instant, now_ms: Instant, chance: float
) -> RetryIn | GiveUp:
    """What follows the failure of attempt number `attempt`; `chance` is drawn from [0, 1)."""
    assert 0 <= chance < 1, chance
    if isinstance(error, (Permanent, UsageError, *policy.never_on)) or attempt >= policy.attempts:
        return GiveUp()
    wished_ms = _wished_ms(error) if isinstance(error, RetryAfter) else None
    if wished_ms is not None:
        delay_ms = wished_ms
    elif isinstance(error, (RetryAfter, *policy.on)):
        delay_ms = Millis(int(chance * ceiling_ms(policy, attempt)))
    else:
        return GiveUp()
    left = left_ms(policy, asked_at_ms=asked_at_ms, now_ms=now_ms)
    return RetryIn(delay_ms) if left is None or delay_ms < left else GiveUp()


class Begin(Struct, frozen=True, gc=False):
    """The attempt may begin, and take this long; None: as long as it likes."""

    limit_ms: Millis | None


def begin(policy: Retry, timeout_ms: Millis | None, *, asked_at_ms: Instant, now_ms: Instant) -> Begin | GiveUp:
    """Whether an attempt may begin now. It may take its own timeout, or what is left until the deadline."""
    if policy.deadline is None:
        return Begin(timeout_ms)
    left = left_ms(policy, asked_at_ms=asked_at_ms, now_ms=now_ms)
    if not left:
        return GiveUp()
    return Begin(left if timeout_ms is None else min(timeout_ms, left))


def _wished_ms(error: RetryAfter) -> Millis | None:
    """The wait that the error asks for; None if it is a class of its own that says something else there."""
    try:
        return milliseconds(error.seconds)
    except Exception:  # noqa: BLE001 - code of an exception may raise anything
        return None


def left_ms(policy: Retry, *, asked_at_ms: Instant, now_ms: Instant) -> Millis | None:
    """How long it is until the deadline, and never less than nothing; None if there is none."""
    if policy.deadline is None:
        return None
    return max(NO_TIME, asked_at_ms + milliseconds(policy.deadline) - now_ms)


def ceiling_ms(policy: Retry, attempt: int) -> Millis:
    """The longest possible wait after this attempt."""
    grown = milliseconds(policy.base) * policy.factor ** min(attempt - 1, _EXPONENT_MAX)
    return Millis(int(min(milliseconds(policy.cap), grown)))
