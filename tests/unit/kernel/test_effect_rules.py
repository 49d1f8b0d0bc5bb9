"""What stands before effects, as it is declared and as it is told."""

from __future__ import annotations

import pytest

from holdfast.errors import UsageError
from holdfast.kernel.breakers import Breaker, MustWait
from holdfast.kernel.effect_limits import Limit, LimitSlots, Share
from holdfast.kernel.effect_rules import EffectRules, at_breaker, at_limit, check_alike, rules_of
from holdfast.kernel.rates import Rate
from holdfast.kernel.times import END_OF_TIME, Instant

STRIPE = Breaker("stripe")
SLOTS = Limit("stripe", width=10, rate=Rate(90, per="1s"))


def test_an_effect_without_rules_has_none() -> None:
    assert rules_of("charge", None, None) is None
    assert rules_of("charge", STRIPE, None) == EffectRules(STRIPE)
    assert rules_of("charge", None, SLOTS) == EffectRules(limit=SLOTS)


@pytest.mark.parametrize(("breaker", "limit"), [("stripe", None), (None, 10), (SLOTS, None), (None, STRIPE)])
def test_what_is_no_rule_is_refused(breaker: object, limit: object) -> None:
    with pytest.raises(UsageError, match="effect 'charge'"):
        rules_of("charge", breaker, limit)


def test_two_effects_may_share_a_rule_and_must_mean_the_same() -> None:
    both = EffectRules(STRIPE, SLOTS)
    check_alike([("a", both), ("b", EffectRules(Breaker("stripe"))), ("c", EffectRules(limit=SLOTS))])
    with pytest.raises(UsageError, match="'a' and 'b' declare breaker 'stripe' with different numbers"):
        check_alike([("a", both), ("b", EffectRules(Breaker("stripe", of=5)))])
    with pytest.raises(UsageError, match="limit 'stripe'"):
        check_alike([("a", both), ("b", EffectRules(limit=Limit("stripe", width=9)))])


@pytest.mark.parametrize(
    ("must", "text"),
    [
        (MustWait(Instant(0)), "breaker 'stripe', which is open until 1970-01-01T00:00:00.000+00:00"),
        (
            MustWait(Instant(1_000), "app-3.nonce"),
            "breaker 'stripe', which is open until 1970-01-01T00:00:01.000+00:00, probed by app-3",
        ),
        (MustWait(END_OF_TIME), "breaker 'stripe', which is open until it is closed by hand"),
    ],
)
def test_a_wait_at_a_breaker_in_words(must: MustWait, text: str) -> None:
    assert str(at_breaker(STRIPE, "charge#1", must)) == text


def test_a_wait_at_a_limit_in_words() -> None:
    slots = LimitSlots(10, {"a": Share(7, 9), "b": Share(3, 3)})
    assert str(at_limit(SLOTS, "charge#1", slots, lacks_slots=True)) == "limit 'stripe': 10 of 10 in use"
    assert str(at_limit(SLOTS, "charge#1", slots, lacks_slots=False)) == "limit 'stripe': 90 per 1s have begun"
