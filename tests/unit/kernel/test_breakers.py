"""The states of a circuit breaker: which calls open it, who may probe, and what closes it again."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.errors import Permanent, RetryAfter, UsageError
from holdfast.kernel import breakers
from holdfast.kernel.breakers import (
    NEW,
    OPEN_MS_MAX,
    PROBE_MS_MAX,
    Breaker,
    BreakerClosed,
    BreakerHalfOpen,
    BreakerOpen,
    BreakerState,
    CallsReported,
    ClosedByHand,
    MayBegin,
    MayProbe,
    MustWait,
    OpenedByHand,
    Probe,
    ProbeFailed,
    ProbeSucceeded,
    ProbeUnknown,
    ProbeWanted,
    decide,
    kept_in,
    look,
    stay_ms,
    writing,
)
from holdfast.kernel.times import END_OF_TIME, Instant, Millis

NOW = Instant(1_000_000)
RULE = Breaker("stripe", of=20, within="10s", stays="30s")
OPEN = BreakerState(BreakerOpen(NOW, Instant(NOW + 30_000)), 1)
PROBE = Probe("w.1", Instant(NOW + 40_000))
HALF_OPEN = BreakerState(BreakerHalfOpen(NOW, 0, probe=PROBE), 2)


def reported(owner: str, calls: int, failures: int, era: int = 0) -> CallsReported:
    return CallsReported(owner, era, calls, failures)


def after(kept: BreakerState, *events: breakers.Event, at: int = NOW, rule: Breaker = RULE) -> BreakerState:
    for event in events:
        kept = decide(rule, kept, event, now_ms=Instant(at)) or kept
    return kept


@pytest.mark.parametrize(
    ("events", "opens"),
    [
        ([reported("a", 19, 19)], False),
        ([reported("a", 20, 20)], True),
        ([reported("a", 20, 10)], True),
        ([reported("a", 20, 9)], False),
        ([reported("a", 10, 10), reported("b", 9, 9)], False),
        ([reported("a", 10, 10), reported("b", 10, 10)], True),
        ([reported("a", 10, 10), reported("a", 19, 19)], False),  # the newer report takes the place of the older
        ([reported("a", 20, 20, era=1)], False),
    ],
)
def test_a_breaker_opens_when_enough_calls_of_all_replicas_failed(events: list[CallsReported], opens: bool) -> None:
    assert isinstance(after(NEW, *events).state, BreakerOpen if opens else BreakerClosed)


def test_what_was_reported_too_long_ago_does_not_count() -> None:
    first = after(NEW, reported("a", 10, 10))
    assert isinstance(after(first, reported("b", 10, 10), at=NOW + 9_999).state, BreakerOpen)
    assert isinstance(after(first, reported("b", 10, 10), at=NOW + 10_000).state, BreakerClosed)


def test_an_open_breaker_hears_no_reports() -> None:
    assert decide(RULE, OPEN, reported("a", 99, 99, era=1), now_ms=NOW) is None


@pytest.mark.parametrize(
    ("kept", "at", "verdict"),
    [
        (NEW, NOW, MayBegin()),
        (OPEN, NOW + 29_999, MustWait(Instant(NOW + 30_000))),
        (OPEN, NOW + 30_000, MayProbe()),
        (HALF_OPEN, NOW + 39_999, MustWait(Instant(NOW + 40_000), "w.1")),
        (HALF_OPEN, NOW + 40_000, MayProbe()),
        (BreakerState(BreakerHalfOpen(NOW, 0, 1)), NOW, MayProbe()),
    ],
)
def test_whether_an_effect_may_begin(kept: BreakerState, at: int, verdict: object) -> None:
    assert look(kept, now_ms=Instant(at)) == verdict


def test_the_first_one_that_asks_after_the_time_is_the_probe_and_no_other() -> None:
    assert decide(RULE, OPEN, ProbeWanted("w.1"), now_ms=NOW) is None
    later = Instant(NOW + 30_000)
    kept = after(OPEN, ProbeWanted("w.1", Millis(2_000)), at=later)
    assert kept.state == BreakerHalfOpen(later, 0, probe=Probe("w.1", Instant(later + 2_000)))
    assert decide(RULE, kept, ProbeWanted("w.2"), now_ms=later) is None
    freed = after(kept, ProbeWanted("w.2"), at=later + 2_000)
    assert freed.state == BreakerHalfOpen(later, 0, probe=Probe("w.2", Instant(later + 2_000 + PROBE_MS_MAX)))
    assert freed.era == kept.era


def test_three_probes_in_a_row_close_it() -> None:
    kept = HALF_OPEN
    for successes in (1, 2):
        kept = after(kept, ProbeSucceeded(PROBE))
        assert kept.state == BreakerHalfOpen(NOW, 0, successes)
        kept = after(kept, ProbeWanted("w.1", Millis(30_000)), at=NOW + 10_000)
    assert after(kept, ProbeSucceeded(PROBE)).state == BreakerClosed(NOW, 0)


def test_a_failed_probe_opens_it_for_longer() -> None:
    assert after(HALF_OPEN, ProbeFailed(PROBE)).state == BreakerOpen(NOW, Instant(NOW + 45_000), 1)


def test_a_probe_of_which_nothing_is_known_makes_room_for_the_next() -> None:
    kept = after(HALF_OPEN, ProbeUnknown(PROBE))
    assert kept.state == BreakerHalfOpen(NOW, 0)


@pytest.mark.parametrize("outcome", [ProbeSucceeded, ProbeFailed, ProbeUnknown])
def test_what_a_probe_says_too_late_changes_nothing(outcome: type[ProbeSucceeded]) -> None:
    assert decide(RULE, HALF_OPEN, outcome(PROBE), now_ms=PROBE.until_ms) is None
    assert decide(RULE, HALF_OPEN, outcome(Probe("w.2", PROBE.until_ms)), now_ms=NOW) is None
    assert decide(RULE, NEW, outcome(PROBE), now_ms=NOW) is None


def test_it_stays_open_longer_each_time_and_ten_minutes_at_most() -> None:
    assert [stay_ms(RULE, level) for level in (0, 1, 2)] == [30_000, 45_000, 67_500]
    assert stay_ms(RULE, 8) == stay_ms(RULE, 10_000) == OPEN_MS_MAX


@pytest.mark.parametrize(
    ("closed_for", "level"),
    [(1, 3), (stay_ms(RULE, 2) - 1, 3), (stay_ms(RULE, 2), 0)],
)
def test_one_that_opens_again_soon_stays_open_longer(closed_for: int, level: int) -> None:
    kept = BreakerState(BreakerClosed(NOW, 2), 7)
    state = after(kept, reported("a", 20, 20, era=7), at=NOW + closed_for).state
    assert isinstance(state, BreakerOpen)
    assert state.level == level


def test_a_person_opens_and_closes_it_and_that_is_kept() -> None:
    opened = after(NEW, OpenedByHand("ada"))
    assert opened.state == BreakerOpen(NOW, END_OF_TIME)
    assert after(NEW, OpenedByHand("ada", Millis(5_000))).state == BreakerOpen(NOW, Instant(NOW + 5_000))
    closed = after(opened, ClosedByHand("eve"))
    assert closed.state == BreakerClosed(NOW)
    assert closed.by_hand == breakers.ByPerson("eve", NOW, "closed")
    assert after(closed, reported("a", 20, 20, era=closed.era)).by_hand == closed.by_hand


class Refused(OSError):
    """What a service raises."""


@pytest.mark.parametrize(
    ("on", "error", "is_failure"),
    [
        ((Exception,), OSError(), True),
        ((Exception,), RetryAfter(1), True),
        ((Exception,), Permanent("no"), False),
        ((Exception,), UsageError("no"), False),
        ((OSError,), Refused(), True),
        ((OSError,), ValueError(), False),
    ],
)
def test_which_errors_speak_against_the_service(
    on: tuple[type[BaseException], ...], error: Exception, is_failure: bool
) -> None:
    assert Breaker("stripe", on=on).is_failure(error) is is_failure


@pytest.mark.parametrize(
    ("calls", "failures", "reports"), [(4, 0, False), (4, 1, True), (100, 24, False), (100, 25, True)]
)
def test_a_replica_reports_when_half_as_many_fail_as_open_it(calls: int, failures: int, reports: bool) -> None:
    assert breakers.is_suspicious(RULE, calls, failures) is reports


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": 7},
        {"opens": 0},
        {"opens": 1.5},
        {"opens": True},
        {"opens": "half"},
        {"of": 0},
        {"of": 2.5},
        {"of": True},
        {"within": "1ms"},
        {"within": "1h"},
        {"stays": 0},
        {"on": OSError},
        {"on": ()},
        {"on": ("OSError",)},
        {"on": (int,)},
    ],
)
def test_a_breaker_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Breaker(**{"name": "stripe"} | wrong)  # pyright: ignore[reportArgumentType]


def test_it_is_kept_in_a_document() -> None:
    assert kept_in(None) == NEW
    first = writing("default", "stripe", None, OPEN, now_ms=NOW)
    assert (first.replaces, first.document.kind, first.document.id) == (None, "breaker", "stripe")
    assert kept_in(first.document) == OPEN
    assert writing("default", "stripe", first.document, NEW, now_ms=NOW).replaces == first.document.version


def test_people_see_how_it_stands() -> None:
    fresh = breakers.status("stripe", NEW)
    assert (fresh.state, fresh.since, fresh.until, fresh.by_at) == ("closed", None, None, None)
    opened = breakers.status("stripe", after(NEW, OpenedByHand("ada")))
    assert (opened.state, opened.until, opened.by, opened.did) == ("open", None, "ada", "opened")
    assert opened.by_at == opened.since is not None
    assert breakers.status("stripe", OPEN).until_ms == NOW + 30_000
    probed = breakers.status("stripe", HALF_OPEN)
    assert (probed.state, probed.prober, probed.until_ms) == ("half-open", "w", PROBE.until_ms)
    told = breakers.status("stripe", after(NEW, reported("a", 10, 3), reported("b", 4, 4)))
    assert (told.calls, told.failures) == (14, 7)


class Replicas(RuleBasedStateMachine):
    """Replicas that call a service which works or not, and all go by one document."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.kept = NEW
        self.openings: list[Instant] = []
        self.probes: list[Probe] = []

    def apply(self, event: breakers.Event) -> BreakerState | None:
        before, found = self.kept, decide(RULE, self.kept, event, now_ms=self.now)
        self.kept = found or before
        if found is not None and isinstance(found.state, BreakerOpen) and not isinstance(before.state, BreakerOpen):
            self.openings.append(self.now)
        return found

    @rule(ms=st.integers(1, 60_000))
    def time_passes(self, ms: int) -> None:
        self.now = Instant(self.now + ms)

    @rule(owner=st.sampled_from("abc"), calls=st.integers(1, 40), share=st.floats(0, 1))
    def a_replica_reports(self, owner: str, calls: int, share: float) -> None:
        self.apply(CallsReported(owner, self.kept.era, calls, int(calls * share)))

    @rule(owner=st.sampled_from("abc"), timeout=st.none() | st.integers(1, 60_000))
    def a_replica_wants_to_probe(self, owner: str, timeout: int | None) -> None:
        live = [probe for probe in self.probes if probe.until_ms > self.now]
        found = self.apply(ProbeWanted(owner, None if timeout is None else Millis(timeout)))
        if found is not None:
            assert isinstance(found.state, BreakerHalfOpen)
            assert found.state.probe is not None
            assert not live, "two probes at once"
            self.probes = [found.state.probe]

    @precondition(lambda self: self.probes)
    @rule(outcome=st.sampled_from([ProbeSucceeded, ProbeFailed, ProbeUnknown]))
    def a_probe_ends(self, outcome: type[ProbeSucceeded]) -> None:
        probe = self.probes.pop()
        is_late = probe.until_ms <= self.now
        assert (self.apply(outcome(probe)) is None) == is_late

    @invariant()
    def no_opening_comes_sooner_than_it_stays_open(self) -> None:
        pairs = zip(self.openings, self.openings[1:], strict=False)
        assert all(later - earlier >= 30_000 for earlier, later in pairs)

    @invariant()
    def an_open_breaker_lets_nothing_begin(self) -> None:
        state, verdict = self.kept.state, look(self.kept, now_ms=self.now)
        if isinstance(state, BreakerOpen) and self.now < state.until_ms:
            assert isinstance(verdict, MustWait)
        assert isinstance(verdict, MayBegin) == isinstance(state, BreakerClosed)


TestReplicas = Replicas.TestCase
