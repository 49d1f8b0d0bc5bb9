"""Breakers and limits over HTTP, both ways."""

from __future__ import annotations

from holdfast.kernel.breakers import BreakerStatus
from holdfast.kernel.effect_limits import LimitShare, LimitStatus
from holdfast.kernel.times import EPOCH
from holdfast.wire.inbound import instant, instant_or_none
from holdfast.wire.types import BreakersView, BreakerView, EffectLimitsView, EffectLimitView, LimitShareView


def breaker(status: BreakerStatus) -> BreakerView:
    """What a gateway says about a breaker."""
    return BreakerView(
        name=status.name,
        state=status.state,
        since=status.since,
        until=status.until,
        calls=status.calls,
        failures=status.failures,
        successes=status.successes,
        prober=status.prober,
        by=status.by,
        did=status.did,
        by_at=status.by_at,
    )


def breakers(found: list[BreakerStatus]) -> BreakersView:
    """All of them."""
    return BreakersView([breaker(each) for each in found])


def limits(found: list[LimitStatus]) -> EffectLimitsView:
    """What a gateway says about the limits at effects."""
    return EffectLimitsView(
        [
            EffectLimitView(
                name=each.name,
                width=each.width,
                taken=each.taken,
                shares=[
                    LimitShareView(instance=share.instance, slots=share.slots, wants=share.wants)
                    for share in each.shares
                ],
            )
            for each in found
        ]
    )


def read_breaker(view: BreakerView) -> BreakerStatus:
    """What a gateway has said, as a value again."""
    return BreakerStatus(
        view.name,
        view.state,
        EPOCH if view.since is None else instant(view.since),
        instant_or_none(view.until),
        view.calls,
        view.failures,
        view.successes,
        view.prober,
        view.by,
        view.did,
        instant_or_none(view.by_at),
    )


def read_limits(view: EffectLimitsView) -> list[LimitStatus]:
    """The same of limits."""
    return [
        LimitStatus(
            each.name,
            each.width,
            tuple(LimitShare(share.instance, share.slots, share.wants) for share in each.shares),
        )
        for each in view.limits
    ]
