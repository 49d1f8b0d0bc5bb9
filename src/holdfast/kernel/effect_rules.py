"""What stands before an effect: a circuit breaker, a limit, or both. An effect that may not begin yet waits there.

    the run          what the wait costs
    ───────────────  ───────────────────────────────────────────────────────────────
    in memory        no slot of its worker, and no attempt
    let go           nothing: the run is a row in the store, woken when it may go on

Rules
- Two effects share a rule if they name it alike. Its numbers are the same wherever it is declared.
- What a run waits for is stored with it when it is let go, in words and with the name of the rule.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from holdfast.errors import UsageError
from holdfast.kernel.breakers import Breaker, MustWait
from holdfast.kernel.effect_limits import Limit, LimitSlots
from holdfast.kernel.leases import instance_of
from holdfast.kernel.times import END_OF_TIME, Instant
from holdfast.kernel.waits import Wait


class EffectRules(Struct, frozen=True, gc=False):
    """The rules of an effect; it has at least one."""

    breaker: Breaker | None = None
    limit: Limit | None = None


class Stay(Struct, frozen=True, gc=False):
    """An effect may not begin yet: what it waits for, and when its run is woken at the latest if it is let go."""

    wait: Wait
    wake_at_ms: Instant


def rules_of(effect: str, breaker: object, limit: object) -> EffectRules | None:
    """The rules that the declaration of an effect names; None if it names none."""
    if breaker is not None and not isinstance(breaker, Breaker):
        raise UsageError(
            f"breaker={breaker!r:.60} of effect {effect!r} is no breaker", hint='Write breaker=Breaker("stripe").'
        )
    if limit is not None and not isinstance(limit, Limit):
        raise UsageError(
            f"limit={limit!r:.60} of effect {effect!r} is no limit", hint='Write limit=Limit("stripe", width=10).'
        )
    return None if breaker is None and limit is None else EffectRules(breaker, limit)


def check_alike(declared: Iterable[tuple[str, EffectRules]]) -> None:
    """Refuse two effects that name a rule alike and mean another one. Each comes with the name of its effect."""
    known: dict[tuple[type, str], tuple[str, Breaker | Limit]] = {}
    for effect, rules in declared:
        for rule in (rules.breaker, rules.limit):
            if rule is None:
                continue
            first, meant = known.setdefault((type(rule), rule.name), (effect, rule))
            if meant != rule:
                kind = type(rule).__name__.lower()
                raise UsageError(
                    f"effects {first!r} and {effect!r} declare {kind} {rule.name!r} with different numbers",
                    hint=f"Make the {kind} once, and pass it to both effects.",
                )


def at_breaker(breaker: Breaker, step: str, must: MustWait) -> Wait:
    """What an effect waits for that a breaker holds back."""
    until_ms = None if must.until_ms >= END_OF_TIME else must.until_ms
    prober = f"probed by {instance_of(must.prober)}" if must.prober else ""
    return Wait("breaker", breaker.name, until_ms, step, detail=prober)


def at_limit(limit: Limit, step: str, slots: LimitSlots, *, lacks_slots: bool) -> Wait:
    """What an effect waits for that a limit holds back."""
    if lacks_slots:
        detail = f"{min(slots.taken, limit.width or 0)} of {limit.width} in use"
    else:
        assert limit.rate is not None
        detail = f"{limit.rate.count} per {limit.rate.per} have begun"
    return Wait("limit", limit.name, step=step, detail=detail)
