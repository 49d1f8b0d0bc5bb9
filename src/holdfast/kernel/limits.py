"""Several limits at once: all of them are spent, or none is.

    limit      counted for each                       asked
    ─────────  ─────────────────────────────────────  ─────────────────────────────────────────
    `address`  address of a client                    in the process, before authentication
    `api_key`  API key                                in the store, for each request behind that
    `tenant`   namespace                              in the store, for each request behind that
    `start`    namespace                              in the store, for each request that starts a run
    `own`      name that the caller chooses           in the store, by `hf.limit`

Rules
- What is counted has the rate as part of its name: a rate that was changed begins again, and two rates under one name
  are two limits. So five in a second and a hundred in an hour go together.
- If one of them stands in the way, nothing is taken of the others. A cost of 0 takes nothing: it is a look.
- What can never pass, since it costs more than may go at once, is a mistake and no verdict.
- Where the store is away, each of n replicas lets through an n-th of what is allowed. Those that limit anything say so
  in a document each, which expires when they do not say it again.
- A count whose time has come need not be kept: it is as if nothing had ever been taken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from holdfast.errors import UsageError
from holdfast.kernel import rates
from holdfast.kernel.documents import Document, Writing, next_version
from holdfast.kernel.rates import Exceeded, Granted, Micros, Rate
from holdfast.kernel.times import Instant, Millis
from holdfast.kernel.units import milliseconds

KIND: Final = "limiter"
EVERYWHERE: Final = ""
ANNOUNCED_MS: Final = Millis(30_000)
NAME_MAX: Final = 256
COST_MAX: Final = 1_000_000
COUNTS_MAX: Final = 100_000  # that one process keeps
REST_MS_MAX: Final = Millis(366 * 86_400_000)  # the counts of a longer one would not be exact in a script of Redis
UNUSED: Final = Micros(0)
_SWEEP_MS: Final = Millis(1_000)
_TEXT = re.compile(
    r"(?P<count>\d{1,9})\s*/\s*(?P<per>\d{1,9}(?:\.\d{1,3})?\s*)?(?P<unit>ms|s|m|h|d)(?:\s+burst\s+(?P<burst>\d{1,9}))?"
)
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
FORMS: Final = "how many in how long, and how many at once: 100/1s, 1000/m, 100/1s burst 200"

Verdicts = tuple[Granted | Exceeded, ...]


class Cost(Struct, frozen=True, gc=False):
    """What is taken of one limit: `name` says of whose."""

    limit: str
    name: str
    rate: Rate
    cost: int = 1

    @property
    def place(self) -> str:
        """Under which name it is counted."""
        rate = self.rate
        return f"{self.limit}\0{rate.count}/{milliseconds(rate.per)}/{rate.at_once}\0{self.name}"


class LimitVerdict(Struct, frozen=True, gc=False):
    """Whether it is allowed. If so, it is counted; if not, nothing is.

    `remaining` more may go at once. `retry_after` is in how many seconds as much may, 0 if it is allowed: `RetryAfter`
    takes it as it is. After `reset_after` seconds without another one, all may go at once again.
    """

    allowed: bool
    remaining: int
    retry_after: float
    reset_after: float


class Decided(NamedTuple):
    """A verdict on each cost, and what is to be kept from now on; nothing if one of them was refused."""

    verdicts: Verdicts
    kept: tuple[Micros, ...] = ()

    @property
    def are_spent(self) -> bool:
        return bool(self.kept)


def decide(costs: Sequence[Cost], due_at_us: Sequence[Micros], *, now_ms: Instant) -> Decided:
    """Take all of it, or nothing. `due_at_us` is what is kept of each, `UNUSED` where nothing is."""
    found = [
        rates.spend(cost.rate, due, now_ms=now_ms, cost=cost.cost) for cost, due in zip(costs, due_at_us, strict=True)
    ]
    granted = [each for each in found if isinstance(each, Granted)]
    if len(granted) == len(found):
        return Decided(tuple(found), tuple(each.due_at_us for each in granted))
    untouched = [
        rates.spend(cost.rate, due, now_ms=now_ms, cost=0) if isinstance(each, Granted) else each
        for cost, due, each in zip(costs, due_at_us, found, strict=True)
    ]
    return Decided(tuple(untouched))


def share(rate: Rate, replicas: int) -> Rate:
    """What each of so many replicas lets through by itself. At least one of each may go at once."""
    return Rate(rate.count, per=f"{milliseconds(rate.per) * replicas}ms", burst=max(1, rate.at_once // replicas))


def verdict_of(found: Granted | Exceeded) -> LimitVerdict:
    """The same, as callers see it."""
    retry_ms = found.retry_ms if isinstance(found, Exceeded) else 0
    return LimitVerdict(isinstance(found, Granted), found.remaining, retry_ms / 1000, found.reset_ms / 1000)


def checked(cost: Cost) -> Cost:
    """The cost, if it can ever be paid; else a `UsageError`."""
    if not 1 <= len(cost.name) <= NAME_MAX or not cost.name.isprintable():
        raise UsageError(
            f"a limit of the name {cost.name!r:.60} is not possible", hint=f"Use 1 to {NAME_MAX} printable characters."
        )
    if cost.rate.by or cost.rate.cost:
        raise UsageError(
            f"the rate of limit {cost.name!r:.60} has by= or cost=, which belong to throttle=",
            hint='Put what it is counted for into the name, "mail:" + user, and pass cost= to limit().',
        )
    if isinstance(cost.cost, bool) or not isinstance(cost.cost, int) or not 0 <= cost.cost <= COST_MAX:
        raise UsageError(f"cost={cost.cost!r} is not possible", hint=f"Use a whole number from 0 to {COST_MAX:,}.")
    if cost.cost > cost.rate.at_once:
        raise UsageError(
            f"cost={cost.cost} can never pass limit {cost.name!r:.60}, of which {cost.rate.at_once} may go at once",
            hint="Give the rate a burst that is at least as large as the largest cost.",
        )
    checked_rate(cost.rate)
    return cost


def checked_rate(rate: Rate) -> Rate:
    """The rate, if it can be counted exactly; else a `UsageError`."""
    if rate.at_once * rate.interval_us > REST_MS_MAX * 1000:
        raise UsageError(
            f"{text_of(rate)!r} takes more than a year to be full again", hint="Use a shorter time, or a smaller burst."
        )
    return rate


def parse(text: str) -> Rate:
    """The rate that a person means by `100/1s burst 200`, or a `UsageError`."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r:.60} is not a limit", hint=f"Write {FORMS}.")
    burst = match["burst"]
    per = f"{(match['per'] or '1').strip()}{match['unit']}"
    return checked_rate(Rate(int(match["count"]), per=per, burst=None if burst is None else int(burst)))


def text_of(rate: Rate) -> str:
    """The rate as `parse` reads it."""
    per_ms = milliseconds(rate.per)
    unit, unit_ms = next(each for each in _UNITS if per_ms % each[1] == 0)
    per = f"{rate.count}/{per_ms // unit_ms}{unit}"
    return per if rate.at_once == rate.count else f"{per} burst {rate.at_once}"


def announce(instance: str, *, last: Document | None, now_ms: Instant) -> Writing:
    """What a process says that limits something. `last` is what it said before."""
    replaces = None if last is None else last.version
    version = next_version(replaces, now_ms=now_ms)
    return Writing(Document(EVERYWHERE, KIND, instance, version, b"", expires_at_ms=now_ms + ANNOUNCED_MS), replaces)


def withdraw(last: Document, *, now_ms: Instant) -> Writing:
    """What it says when it leaves."""
    version = next_version(last.version, now_ms=now_ms)
    return Writing(msgspec.structs.replace(last, version=version, expires_at_ms=now_ms), last.version)


class RateCounts:
    """What one process keeps by itself: at most `COUNTS_MAX`, of which the oldest give way.

    What need not be kept is removed once a second, by whatever is spent then.
    """

    def __init__(self) -> None:
        self._due_at_us: dict[str, Micros] = {}
        self._swept_at_ms = Instant(0)

    def __len__(self) -> int:
        return len(self._due_at_us)

    def spend(self, costs: Sequence[Cost], *, now_ms: Instant, within: str = "") -> Verdicts:
        """Take all of it, or nothing. `within` parts those who may use the same names."""
        places = [f"{within}\0{cost.place}" for cost in costs]
        kept = self._due_at_us
        decided = decide(costs, [kept.get(place, UNUSED) for place in places], now_ms=now_ms)
        if decided.are_spent:
            for place, due_at_us in zip(places, decided.kept, strict=True):
                if due_at_us > now_ms * 1000:
                    kept[place] = due_at_us
        if now_ms - self._swept_at_ms >= _SWEEP_MS:
            self._sweep(now_ms)
        while len(kept) > COUNTS_MAX:
            del kept[next(iter(kept))]
        return decided.verdicts

    def clear(self) -> None:
        self._due_at_us.clear()

    def _sweep(self, now_ms: Instant) -> None:
        self._swept_at_ms = now_ms
        for place in [place for place, due_at_us in self._due_at_us.items() if due_at_us <= now_ms * 1000]:
            del self._due_at_us[place]
