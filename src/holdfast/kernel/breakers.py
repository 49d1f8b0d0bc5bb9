"""Circuit breakers: effects on a service that fails do not begin, until one call at a time has shown that it works.

A breaker is one document that all replicas share.

    the breaker is    what happens                                becomes
    ────────────────  ──────────────────────────────────────────  ───────────────────────────────────────────────
    closed            a replica reports its calls, and all of     open for `stays` × 1.5ⁿ
                      them fail too often
                      any other report                            closed; the report is kept for `within`
    open              its time is not over                        open
                      its time is over, and an effect wants to    half-open: that effect is the probe
                      begin
    half-open         a probe is under way                        half-open
                      there is none, or the lease of the one is   half-open: the next effect that wants to begin is
                      over                                        the probe
                      the probe succeeds                          closed, if it is the third in a row; else half-open
                      the probe fails                             open for longer
                      nothing is known of the probe               half-open, without a probe
    any               a person opens it                           open until a person closes it, or for a time
                      a person closes it                          closed; n is 0 again

Rules
- Calls fail too often when those of the last `within` are at least `of`, and at least the share `opens` of them failed.
  They are added up over all replicas, as each has last reported its own.
- n counts openings without a rest: a failed probe adds one, and so does an opening after less time closed than the
  breaker was open before. A longer time closed begins again at 0. A breaker is open for ten minutes at most.
- A probe has a lease, as long as its effect may take and 30 s at most. What it says after that does not count.
- A report counts only for the era that it was made in: each change of state begins a new one.
- What is `Permanent`, a `UsageError` or none of `on` is no failure: the service has answered, or was never asked.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Final, assert_never

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import Permanent, UsageError
from holdfast.kernel.documents import Document, Writing, in_place_of
from holdfast.kernel.keys import checked
from holdfast.kernel.leases import instance_of
from holdfast.kernel.times import END_OF_TIME, EPOCH, Instant, Millis
from holdfast.kernel.units import Duration, milliseconds, utc_of, utc_or_none

KIND: Final = "breaker"
BUCKETS: Final = 10  # into which a replica divides the time `within`
SUCCESSES: Final = 3  # of probes, in a row, that close a breaker
GROWTH: Final = 1.5
OPEN_MS_MAX: Final = Millis(600_000)
PROBE_MS_MAX: Final = Millis(30_000)
OF_MAX: Final = 1_000_000
_LEVEL_MAX: Final = 64  # beyond it every stay has long reached its maximum, and floats would overflow


class Breaker(Struct, frozen=True, gc=False):
    """A circuit breaker for effects: `@pack.effect(breaker=Breaker("stripe"))`. Effects may share one.

    It opens when at least `of` calls were made `within` this time, by all replicas together, and the share `opens` of
    them failed with one of `on`. Then it stays open, longer each time, before one call at a time is tried.
    """

    name: str
    opens: float = 0.5
    of: int = 20
    within: Duration = "10s"
    stays: Duration = "30s"
    on: tuple[type[BaseException], ...] = (Exception,)

    def __post_init__(self) -> None:
        checked(self.name, what="name of a breaker")
        if isinstance(self.opens, bool) or not isinstance(self.opens, int | float) or not 0 < self.opens <= 1:
            raise UsageError(
                f"Breaker(opens={self.opens!r}) is no share", hint="Use more than 0 and up to 1, such as 0.5."
            )
        if isinstance(self.of, bool) or not isinstance(self.of, int) or not 1 <= self.of <= OF_MAX:
            raise UsageError(f"Breaker(of={self.of!r}) is out of range", hint=f"Use a whole number of 1 to {OF_MAX:,}.")
        for name, duration in (("within", self.within), ("stays", self.stays)):
            if not BUCKETS <= milliseconds(duration) <= OPEN_MS_MAX:
                raise UsageError(f"Breaker({name}={duration!r}) is out of range", hint="Use 10 ms to 10 minutes.")
        if not isinstance(self.on, tuple) or not self.on or not all(map(_is_exception, self.on)):
            raise UsageError(f"Breaker(on={self.on!r}) is not a tuple of exceptions", hint="Write (OSError,).")

    @property
    def within_ms(self) -> Millis:
        return milliseconds(self.within)

    def is_failure(self, error: BaseException) -> bool:
        """Whether a call that raised this speaks against the service."""
        return isinstance(error, self.on) and not isinstance(error, Permanent | UsageError)


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


# -- what is kept


class _BreakerStanding(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="is"):
    pass


class BreakerClosed(_BreakerStanding, frozen=True, tag="closed"):
    """Effects begin. `level` is that of the last opening; -1 if there was none."""

    since_ms: Instant = EPOCH
    level: int = -1


class BreakerOpen(_BreakerStanding, frozen=True, tag="open"):
    """Effects wait."""

    since_ms: Instant
    until_ms: Instant
    level: int = 0


class Probe(Struct, frozen=True, gc=False):
    """The call that is tried: of which worker, by the name of its lease, and until when it has that to itself."""

    owner: str
    until_ms: Instant


class BreakerHalfOpen(_BreakerStanding, frozen=True, tag="half-open"):
    """One effect at a time begins. `successes` counts those that returned, in a row."""

    since_ms: Instant
    level: int
    successes: int = 0
    probe: Probe | None = None


class CallTally(Struct, frozen=True, gc=False):
    """What a replica has last reported: its calls of the time `within`, and how many of them failed."""

    calls: int
    failures: int
    at_ms: Instant


class ByPerson(Struct, frozen=True, gc=False):
    """Who has opened or closed it last, and when."""

    who: str
    at_ms: Instant
    did: str


class BreakerState(Struct, frozen=True, gc=False, omit_defaults=True):
    """A breaker, as its document has it."""

    state: BreakerClosed | BreakerOpen | BreakerHalfOpen = BreakerClosed()
    era: int = 0
    tallies: dict[str, CallTally] = {}
    by_hand: ByPerson | None = None


NEW = BreakerState()
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(BreakerState).decode


def kept_in(document: Document | None) -> BreakerState:
    """The breaker that a document holds. One that was never written is closed."""
    return NEW if document is None else _decode(document.body)


def writing(namespace: str, name: str, found: Document | None, kept: BreakerState, *, now_ms: Instant) -> Writing:
    """What is written to keep it so."""
    return in_place_of(found, namespace, KIND, name, _encode(kept), now_ms=now_ms)


# -- whether an effect may begin


class MayBegin(Struct, frozen=True, gc=False):
    """It may begin at once."""


class MayProbe(Struct, frozen=True, gc=False):
    """It may begin if it gets to be the probe."""


class MustWait(Struct, frozen=True, gc=False):
    """It may not begin before this time, unless the breaker changes. `prober` is the worker whose call is tried."""

    until_ms: Instant
    prober: str = ""


def look(kept: BreakerState, *, now_ms: Instant) -> MayBegin | MayProbe | MustWait:
    """Whether an effect may begin now."""
    match kept.state:
        case BreakerClosed():
            return MayBegin()
        case BreakerOpen(until_ms=until_ms):
            return MustWait(until_ms) if now_ms < until_ms else MayProbe()
        case BreakerHalfOpen(probe=probe):
            return MayProbe() if probe is None or probe.until_ms <= now_ms else MustWait(probe.until_ms, probe.owner)
        case _:  # pragma: no cover
            assert_never(kept.state)


# -- events


class CallsReported(Struct, frozen=True, gc=False):
    """A replica says how many calls it has made in the last `within`, and how many failed."""

    owner: str
    era: int
    calls: int
    failures: int


class ProbeWanted(Struct, frozen=True, gc=False):
    """An effect wants to begin as the probe; it may take this long."""

    owner: str
    timeout_ms: Millis | None = None


class ProbeSucceeded(Struct, frozen=True, gc=False):
    probe: Probe


class ProbeFailed(Struct, frozen=True, gc=False):
    probe: Probe


class ProbeUnknown(Struct, frozen=True, gc=False):
    """It was cancelled, or its run was taken away."""

    probe: Probe


class OpenedByHand(Struct, frozen=True, gc=False):
    """A person opens it, for a time or until it is closed by hand."""

    who: str
    for_ms: Millis | None = None


class ClosedByHand(Struct, frozen=True, gc=False):
    who: str


Event = CallsReported | ProbeWanted | ProbeSucceeded | ProbeFailed | ProbeUnknown | OpenedByHand | ClosedByHand


def decide(breaker: Breaker | None, kept: BreakerState, event: Event, *, now_ms: Instant) -> BreakerState | None:
    """The breaker after `event`; None if nothing changes. Only what a person does needs no declaration."""
    match event:
        case CallsReported():
            assert breaker is not None
            return _report(breaker, kept, event, now_ms)
        case ProbeWanted(owner=owner, timeout_ms=timeout_ms):
            return _probe(kept, owner, timeout_ms, now_ms)
        case ProbeSucceeded(probe=probe):
            state = _probed(kept, probe, now_ms)
            if state is None:
                return None
            if state.successes + 1 >= SUCCESSES:
                return _turn(kept, BreakerClosed(now_ms, state.level))
            return replace(kept, state=replace(state, successes=state.successes + 1, probe=None))
        case ProbeFailed(probe=probe):
            assert breaker is not None
            state = _probed(kept, probe, now_ms)
            return None if state is None else _turn(kept, _opened(breaker, state.level + 1, now_ms))
        case ProbeUnknown(probe=probe):
            state = _probed(kept, probe, now_ms)
            return None if state is None else replace(kept, state=replace(state, probe=None))
        case OpenedByHand(who=who, for_ms=for_ms):
            until_ms = END_OF_TIME if for_ms is None else now_ms + for_ms
            return replace(_turn(kept, BreakerOpen(now_ms, until_ms)), by_hand=ByPerson(who, now_ms, "opened"))
        case ClosedByHand(who=who):
            return replace(_turn(kept, BreakerClosed(now_ms)), by_hand=ByPerson(who, now_ms, "closed"))
        case _:  # pragma: no cover
            assert_never(event)


def stay_ms(breaker: Breaker, level: int) -> Millis:
    """How long the breaker stays open the n-th time in a row."""
    return Millis(int(min(OPEN_MS_MAX, milliseconds(breaker.stays) * GROWTH ** min(level, _LEVEL_MAX))))


def is_suspicious(breaker: Breaker, calls: int, failures: int) -> bool:
    """Whether a replica reports its calls: at least half as many of its own fail as open the breaker."""
    return failures > 0 and failures * 2 >= math.ceil(breaker.opens * calls)


def _report(breaker: Breaker, kept: BreakerState, event: CallsReported, now_ms: Instant) -> BreakerState | None:
    if not isinstance(kept.state, BreakerClosed) or event.era != kept.era:
        return None
    since_ms = now_ms - breaker.within_ms
    tallies = {owner: each for owner, each in kept.tallies.items() if each.at_ms > since_ms}
    tallies[event.owner] = CallTally(event.calls, event.failures, now_ms)
    calls, failures = sum(each.calls for each in tallies.values()), sum(each.failures for each in tallies.values())
    if calls >= breaker.of and failures >= breaker.opens * calls:
        return _turn(kept, _opened(breaker, _level_after(breaker, kept.state, now_ms), now_ms))
    return replace(kept, tallies=tallies)


def _level_after(breaker: Breaker, closed: BreakerClosed, now_ms: Instant) -> int:
    has_rested = now_ms - closed.since_ms >= stay_ms(breaker, max(0, closed.level))
    return 0 if has_rested else closed.level + 1


def _opened(breaker: Breaker, level: int, now_ms: Instant) -> BreakerOpen:
    return BreakerOpen(now_ms, now_ms + stay_ms(breaker, level), level)


def _probe(kept: BreakerState, owner: str, timeout_ms: Millis | None, now_ms: Instant) -> BreakerState | None:
    if not isinstance(look(kept, now_ms=now_ms), MayProbe):
        return None
    lease_ms = PROBE_MS_MAX if timeout_ms is None else min(timeout_ms, PROBE_MS_MAX)
    probe = Probe(owner, now_ms + lease_ms)
    if isinstance(kept.state, BreakerHalfOpen):
        return replace(kept, state=replace(kept.state, probe=probe))
    assert isinstance(kept.state, BreakerOpen), kept
    return _turn(kept, BreakerHalfOpen(now_ms, kept.state.level, probe=probe))


def _probed(kept: BreakerState, probe: Probe, now_ms: Instant) -> BreakerHalfOpen | None:
    """The state whose probe this is still; None if it comes too late."""
    state = kept.state
    if isinstance(state, BreakerHalfOpen) and state.probe == probe and now_ms < probe.until_ms:
        return state
    return None


def _turn(kept: BreakerState, state: BreakerClosed | BreakerOpen | BreakerHalfOpen) -> BreakerState:
    """Another state: what was reported before says nothing about it."""
    return BreakerState(state, kept.era + 1, by_hand=kept.by_hand)


# -- what is shown


class BreakerStatus(Struct, frozen=True, gc=False):
    """How a breaker stands: "closed", "open" or "half-open".

    `calls` and `failures` are those that replicas have reported lately, since one of theirs failed. While it is open,
    `until_ms` says when an effect is tried; None if a person has to close it. `prober` is the instance whose call is
    tried, and `successes` how many of such calls returned. `by` is the person who opened or closed it last.
    """

    name: str
    state: str
    since_ms: Instant
    until_ms: Instant | None = None
    calls: int = 0
    failures: int = 0
    successes: int = 0
    prober: str = ""
    by: str = ""
    did: str = ""
    by_at_ms: Instant | None = None

    @property
    def since(self) -> datetime | None:
        """Since when it is so; None if it has always been."""
        return utc_of(self.since_ms) if self.since_ms else None

    @property
    def until(self) -> datetime | None:
        """When an effect is tried next, if that is known."""
        return utc_or_none(self.until_ms)

    @property
    def by_at(self) -> datetime | None:
        """When a person opened or closed it last."""
        return utc_or_none(self.by_at_ms)


def named(state: BreakerClosed | BreakerOpen | BreakerHalfOpen) -> str:
    """The state in one word."""
    match state:
        case BreakerClosed():
            return "closed"
        case BreakerOpen():
            return "open"
        case BreakerHalfOpen():
            return "half-open"
        case _:  # pragma: no cover
            assert_never(state)


def status(name: str, kept: BreakerState) -> BreakerStatus:
    """The breaker, as people see it."""
    state, tallies, hand = kept.state, kept.tallies.values(), kept.by_hand
    probe = state.probe if isinstance(state, BreakerHalfOpen) else None
    until_ms = state.until_ms if isinstance(state, BreakerOpen) and state.until_ms < END_OF_TIME else None
    return BreakerStatus(
        name,
        named(state),
        state.since_ms,
        until_ms if probe is None else probe.until_ms,
        sum(each.calls for each in tallies),
        sum(each.failures for each in tallies),
        state.successes if isinstance(state, BreakerHalfOpen) else 0,
        "" if probe is None else instance_of(probe.owner),
        "" if hand is None else hand.who,
        "" if hand is None else hand.did,
        None if hand is None else hand.at_ms,
    )
