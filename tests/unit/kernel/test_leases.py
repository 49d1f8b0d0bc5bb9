from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.errors import UsageError
from holdfast.kernel.leases import TTL_MS_MIN, Standing, checked_ttl, look_again_in_ms, reliable_for_ms, standing


@pytest.mark.parametrize(
    ("age_ms", "expected"),
    [
        (0, Standing.FRESH),
        (9_999, Standing.FRESH),
        (10_000, Standing.DUE),
        (19_999, Standing.DUE),
        (20_000, Standing.DOUBTFUL),
        (23_999, Standing.DOUBTFUL),
        (24_000, Standing.LOST),
        (30_000, Standing.LOST),
        (10**12, Standing.LOST),
    ],
)
def test_the_standing_of_a_lease_of_thirty_seconds(age_ms, expected):
    assert standing(age_ms, ttl_ms=30_000) is expected


@pytest.mark.parametrize(
    ("age_ms", "look_in_ms"),
    [(0, 10_000), (4_000, 6_000), (10_000, 2_000), (20_000, 2_000), (23_000, 1_000), (24_000, 0), (10**9, 0)],
)
def test_how_long_the_holder_may_sleep(age_ms, look_in_ms):
    assert look_again_in_ms(age_ms, ttl_ms=30_000) == look_in_ms


@pytest.mark.parametrize("ttl_ms", [TTL_MS_MIN, 1_000, 30_000])
def test_work_may_be_begun_until_the_lease_becomes_doubtful(ttl_ms):
    reliable_ms = reliable_for_ms(ttl_ms)
    assert standing(reliable_ms - 0.01, ttl_ms=ttl_ms) is Standing.DUE
    assert standing(reliable_ms + 0.01, ttl_ms=ttl_ms) is Standing.DOUBTFUL


def test_a_lease_too_short_to_be_renewed_in_time_is_refused():
    assert checked_ttl(TTL_MS_MIN) == TTL_MS_MIN
    with pytest.raises(UsageError, match="199 ms is too short") as caught:
        checked_ttl(TTL_MS_MIN - 1)
    assert "200 ms" in caught.value.hint


ORDER = [Standing.FRESH, Standing.DUE, Standing.DOUBTFUL, Standing.LOST]


@given(st.integers(TTL_MS_MIN, 10**7), st.floats(0, 2e7), st.floats(0, 2e7))
def test_a_lease_only_ever_gets_worse_with_age(ttl_ms, one, other):
    younger, older = sorted((one, other))
    assert ORDER.index(standing(younger, ttl_ms=ttl_ms)) <= ORDER.index(standing(older, ttl_ms=ttl_ms))


@given(st.integers(TTL_MS_MIN, 10**7), st.floats(0, 1e7))
def test_the_holder_never_sleeps_through_the_loss_of_its_lease(ttl_ms, age_ms):
    """L6: however long it sleeps, it wakes before the store lets anybody else have its runs."""
    sleep_ms = look_again_in_ms(age_ms, ttl_ms=ttl_ms)
    assert sleep_ms >= 0
    if standing(age_ms, ttl_ms=ttl_ms) is not Standing.LOST:
        assert age_ms + sleep_ms <= ttl_ms * 4 / 5 + 1e-6 * ttl_ms


class Lease(RuleBasedStateMachine):
    """A holder that keeps its lease as it is told to, a store that decides its expiry, and a link that may fail.

    Time goes on by what the holder sleeps; while it renews, the request and the reply take their time. The store
    counts from when the request arrives, the holder from before it was sent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ttl_ms = 3_000
        self.now_ms = 0.0
        self.renewed_ms = 0.0  # as the holder knows it
        self.expires_at_ms = float(self.ttl_ms)  # as the store knows it
        self.stopped = False

    @property
    def age_ms(self) -> float:
        return self.now_ms - self.renewed_ms

    @precondition(lambda self: not self.stopped)
    @rule(oversleep_ms=st.integers(0, 400))
    def sleep(self, oversleep_ms: int) -> None:
        """The holder wakes when it was told to, or a little later because the machine is busy."""
        self.now_ms += look_again_in_ms(self.age_ms, ttl_ms=self.ttl_ms) + oversleep_ms
        self._look()

    @precondition(lambda self: not self.stopped)
    @rule(
        there_ms=st.integers(0, 250), back_ms=st.integers(0, 250), outcome=st.sampled_from(["ok", "no reply", "lost"])
    )
    def renew(self, there_ms: int, back_ms: int, outcome: str) -> None:
        sent_ms = self.now_ms
        self.now_ms += there_ms
        extended = outcome != "lost" and self.now_ms < self.expires_at_ms
        if extended:
            self.expires_at_ms = self.now_ms + self.ttl_ms
        self.now_ms += back_ms
        if extended and outcome == "ok":
            self.renewed_ms = sent_ms
        self._look()

    def _look(self) -> None:
        """Until now it has been at work."""
        assert self.now_ms < self.expires_at_ms, "the lease was gone before the holder knew"
        self.stopped = standing(self.age_ms, ttl_ms=self.ttl_ms) is Standing.LOST

    @precondition(lambda self: self.stopped)
    @rule()
    def begin_anew(self) -> None:
        """It joins under another name: a fresh lease."""
        self.renewed_ms, self.expires_at_ms, self.stopped = self.now_ms, self.now_ms + self.ttl_ms, False

    @invariant()
    def the_holder_thinks_its_lease_shorter_than_it_is(self) -> None:
        if not self.stopped:
            assert self.renewed_ms + self.ttl_ms <= self.expires_at_ms

    @invariant()
    def effects_begin_only_well_before_expiry(self) -> None:
        if standing(self.age_ms, ttl_ms=self.ttl_ms) in {Standing.FRESH, Standing.DUE} and not self.stopped:
            assert self.expires_at_ms - self.now_ms >= self.ttl_ms / 3 - 1e-6


TestLease = Lease.TestCase
TestLease.settings = settings(max_examples=settings().max_examples // 2)
