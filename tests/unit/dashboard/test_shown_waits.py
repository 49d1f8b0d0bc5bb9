from __future__ import annotations

from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.dashboard.shown_waits import Fact, shown
from holdfast.kernel.units import utc_of
from holdfast.kernel.waits import Wait


class Effect(Struct, frozen=True):
    """Something within."""

    attempt: int = 1
    since_ms: int = 60_000
    heartbeat_json: Raw | UnsetType = UNSET
    remote: bool = False
    lost: bool = False


class Nested(Wait, frozen=True, gc=False, omit_defaults=True):
    effect: Effect | None = None


class Richer(Wait, frozen=True, gc=False, omit_defaults=True):
    """What a wait may carry one day."""

    effect: str = ""
    attempt: int = 0
    since_at_ms: int | None = None
    heartbeat: bytes = b""


def test_a_wait_is_its_sentence():
    [found] = shown([Wait("timer", "sleep#1", 60_000, "sleep#1")])
    assert (found.kind, found.facts) == ("timer", ())
    assert found.text.startswith("timer sleep#1 until")
    assert found.until == utc_of(60_000)


def test_whatever_else_a_wait_carries_is_shown_under_its_name():
    [found] = shown([Richer("running", "r-1", effect="shop.charge", attempt=2, since_at_ms=60_000, heartbeat=b"7 %")])
    assert found.facts == (
        Fact("effect", "shop.charge"),
        Fact("attempt", "2"),
        Fact("since", "", utc_of(60_000)),
        Fact("heartbeat", "7 %"),
    )


def test_what_lies_within_a_field_is_shown_as_well():
    effect = Effect(attempt=3, heartbeat_json=Raw(b'{"done": 7}'), remote=True)
    [found] = shown([Nested("running", "r-1", effect=effect)])
    assert found.facts == (
        Fact("attempt", "3"),
        Fact("since", "", utc_of(60_000)),
        Fact("heartbeat", '{"done": 7}'),
        Fact("remote", "yes"),
    )
    assert shown([Nested("running", "r-1")])[0].facts == ()


def test_a_long_fact_is_cut():
    [found] = shown([Richer("running", effect="x" * 1_000)])
    assert len(found.facts[0].text) < 400
