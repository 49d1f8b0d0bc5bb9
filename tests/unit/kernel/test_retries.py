from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from holdfast.errors import NotSerializable, Permanent, RetryAfter, TimedOut, UsageError
from holdfast.kernel.retries import DEFAULT, FACTOR_MAX, ONCE, Begin, GiveUp, Retry, RetryIn, begin, ceiling_ms, decide
from tests.odd_exceptions import NoSeconds

BOOM = ValueError("boom")


def verdict(policy: Retry, error: BaseException, *, attempt: int = 1, chance: float = 0.5, waited_ms: int = 0):
    return decide(policy, error, attempt=attempt, asked_at_ms=1_000, now_ms=1_000 + waited_ms, chance=chance)


@pytest.mark.parametrize(
    ("policy", "error", "attempt", "answer"),
    [
        (DEFAULT, BOOM, 1, RetryIn(250)),
        (DEFAULT, BOOM, 2, RetryIn(500)),
        (DEFAULT, BOOM, 3, GiveUp()),
        (DEFAULT, BOOM, 4, GiveUp()),
        (ONCE, BOOM, 1, GiveUp()),
        (DEFAULT, TimedOut("late"), 1, RetryIn(250)),
        (DEFAULT, Permanent("no"), 1, GiveUp()),
        (DEFAULT, UsageError("no"), 1, GiveUp()),
        (DEFAULT, NotSerializable("no"), 1, GiveUp()),
        (DEFAULT, KeyboardInterrupt(), 1, GiveUp()),  # not an Exception: not one of `on`
        (DEFAULT, RetryAfter(7), 1, RetryIn(7_000)),
        (DEFAULT, RetryAfter("24m"), 1, RetryIn(24 * 60_000)),
        (DEFAULT, RetryAfter("1500ms", "no paper"), 1, RetryIn(1_500)),
        (DEFAULT, RetryAfter(timedelta(hours=2)), 1, RetryIn(7_200_000)),
        (DEFAULT, RetryAfter(7), 3, GiveUp()),
        (DEFAULT, NoSeconds(), 1, RetryIn(250)),  # a class of its own, which says nothing that can be waited for
        (DEFAULT, NoSeconds(), 3, GiveUp()),
        (Retry(on=(ConnectionError,)), NoSeconds(), 1, RetryIn(250)),
        (Retry(on=(ConnectionError,)), BOOM, 1, GiveUp()),
        (Retry(on=(ConnectionError,)), ConnectionResetError(), 1, RetryIn(250)),
        (Retry(on=(ConnectionError,)), RetryAfter(7), 1, RetryIn(7_000)),  # it says itself that it may be tried again
        (Retry(never_on=(ValueError,)), BOOM, 1, GiveUp()),
        (Retry(never_on=(ValueError,)), KeyError("k"), 1, RetryIn(250)),
        (Retry(never_on=(RetryAfter,)), RetryAfter(7), 1, GiveUp()),
        (Retry(on=(Permanent,)), Permanent("no"), 1, GiveUp()),
        (Retry(attempts=10, cap="1s"), BOOM, 9, RetryIn(500)),
        (Retry(attempts=10, base="100ms", factor=3), BOOM, 3, RetryIn(450)),
        (Retry(base=0), BOOM, 1, RetryIn(0)),
    ],
)
def test_what_follows_a_failed_attempt(policy, error, attempt, answer):
    assert verdict(policy, error, attempt=attempt) == answer


@pytest.mark.parametrize(
    ("waited_ms", "chance", "answer"),
    [
        (0, 0.999, RetryIn(499)),
        (9_500, 0.999, RetryIn(499)),
        (9_501, 0.999, GiveUp()),  # at the deadline no attempt may begin any more
        (9_502, 0.999, GiveUp()),
        (9_999, 0.0, RetryIn(0)),
        (10_000, 0.0, GiveUp()),
        (10_001, 0.0, GiveUp()),
    ],
)
def test_a_wait_that_would_end_after_the_deadline_is_not_begun(waited_ms, chance, answer):
    """E11."""
    assert verdict(Retry(deadline="10s"), BOOM, chance=chance, waited_ms=waited_ms) == answer


def test_the_deadline_holds_for_retry_after_too():
    assert verdict(Retry(deadline="10s"), RetryAfter(11)) == GiveUp()
    assert verdict(Retry(deadline=timedelta(seconds=10)), RetryAfter(10)) == GiveUp()
    assert verdict(Retry(deadline=timedelta(seconds=10)), RetryAfter(9.999)) == RetryIn(9_999)


@pytest.mark.parametrize(
    ("deadline", "timeout_ms", "waited_ms", "answer"),
    [
        (None, None, 99_000, Begin(None)),
        (None, 3_000, 99_000, Begin(3_000)),
        ("10s", None, 4_000, Begin(6_000)),
        ("10s", 3_000, 4_000, Begin(3_000)),
        ("10s", 3_000, 8_000, Begin(2_000)),
        ("10s", 3_000, 9_999, Begin(1)),
        ("10s", 3_000, 10_000, GiveUp()),
        ("10s", None, 10_000, GiveUp()),
        ("10s", 3_000, 11_000, GiveUp()),
        ("10s", None, -1_000, Begin(11_000)),
    ],
)
def test_an_attempt_begins_before_the_deadline_and_ends_by_it_or_by_its_timeout(
    deadline, timeout_ms, waited_ms, answer
):
    """E11."""
    policy = Retry(deadline=deadline)
    assert begin(policy, timeout_ms, asked_at_ms=1_000, now_ms=1_000 + waited_ms) == answer


@pytest.mark.parametrize(
    ("after", "seconds", "says"),
    [
        (7, 7, "retry after 7 s"),
        ("24m", 1_440, "retry after 1440 s"),
        ("1.5 s", 1.5, "retry after 1.5 s"),
        (timedelta(minutes=1), 60, "retry after 60 s"),
        (timedelta(seconds=-1), 0, "retry after -1 s"),
        ("999d", 365 * 86_400, "retry after 8.63136e+07 s"),
    ],
)
def test_a_retry_after_takes_durations_in_all_their_forms(after, seconds, says):
    error = RetryAfter(after)
    assert (error.seconds, str(error)) == (seconds, says)


@pytest.mark.parametrize("text", ["soon", "120", "", "-5s", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_a_text_that_is_no_duration_is_no_retry_after(text):
    with pytest.raises(UsageError, match="says no duration"):
        RetryAfter(text)


@pytest.mark.parametrize("seconds", [-1, -0.001, float("nan"), float("inf"), 1e300])
def test_a_retry_after_that_makes_no_sense_is_still_answered(seconds):
    """A server may say anything, such as a date in the past; that is no fault of the engine, nor of the run."""
    answer = verdict(DEFAULT, RetryAfter(seconds))
    assert isinstance(answer, RetryIn | GiveUp)
    if isinstance(answer, RetryIn):
        assert answer.delay_ms >= 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"attempts": 0}, "would never call the effect"),
        ({"attempts": -3}, "would never call the effect"),
        ({"factor": 0.5}, "out of range"),
        ({"factor": float("inf")}, "out of range"),
        ({"factor": float("nan")}, "out of range"),
        ({"base": -1}, "out of range"),
        ({"cap": "soon"}, "is not a duration"),
        ({"deadline": "tomorrow"}, "is not a duration"),
        ({"on": ValueError}, "on"),
        ({"never_on": ValueError}, "never_on"),
        ({"on": ("ValueError",)}, "on"),
    ],
)
def test_a_policy_that_cannot_work_is_refused_when_it_is_made(options, says):
    with pytest.raises(UsageError, match=says):
        Retry(**options)


def test_the_defaults_are_three_attempts_with_a_jitter_of_half_a_second_doubling_to_twenty():
    assert (DEFAULT.attempts, DEFAULT.base, DEFAULT.factor, DEFAULT.cap) == (3, 0.5, 2.0, 20.0)
    assert [ceiling_ms(DEFAULT, attempt) for attempt in (1, 2, 3, 6, 7, 1_000_000)] == [
        500,
        1_000,
        2_000,
        16_000,
        20_000,
        20_000,
    ]


POLICIES = st.builds(
    Retry,
    attempts=st.integers(1, 10**6),
    base=st.one_of(st.floats(0, 100), st.sampled_from(["1ms", "1d", "365000d"])),
    factor=st.floats(1, FACTOR_MAX),
    cap=st.one_of(st.floats(0, 1e4), st.sampled_from(["1h", "365000d"])),
)


@given(POLICIES, st.integers(1, 10**6))
def test_ceilings_never_fall_and_never_pass_the_cap(policy, attempt):
    here, next_one = ceiling_ms(policy, attempt), ceiling_ms(policy, attempt + 1)
    assert 0 <= here <= next_one <= ceiling_ms(Retry(base=policy.cap, cap=policy.cap), 1)


@given(POLICIES, st.integers(1, 10**6), st.floats(0, 1, exclude_max=True))
def test_the_jitter_stays_under_the_ceiling(policy, attempt, chance):
    """Full jitter: anything from at once to the ceiling."""
    answer = verdict(policy, BOOM, attempt=attempt, chance=chance)
    assert isinstance(answer, GiveUp) is (attempt >= policy.attempts)
    if isinstance(answer, RetryIn):
        assert 0 <= answer.delay_ms <= ceiling_ms(policy, attempt)


@given(POLICIES, st.integers(1, 20), st.floats(0, 1, exclude_max=True), st.integers(0, 10**6), st.integers(1, 10**6))
def test_nothing_is_begun_after_the_deadline(policy, attempt, chance, waited_ms, deadline_at_ms):
    bounded = Retry(attempts=policy.attempts, base=policy.base, cap=policy.cap, deadline=f"{deadline_at_ms}ms")
    answer = verdict(bounded, BOOM, attempt=attempt, chance=chance, waited_ms=waited_ms)
    if isinstance(answer, RetryIn):
        assert waited_ms + answer.delay_ms < deadline_at_ms
        then_ms = 1_000 + waited_ms + answer.delay_ms
        assert isinstance(begin(bounded, None, asked_at_ms=1_000, now_ms=then_ms), Begin)
