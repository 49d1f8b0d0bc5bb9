"""A mistake: an effect acts first, and looks then whether it has acted before."""

from __future__ import annotations

from holdfast import Pack, effect_key
from holdfast.testing import FakeWorld, prove

shop = Pack("effect_before_check")


taken: list[int] = []
known: set[str] = set()


@shop.effect(key="charge:{order}")
async def charge(order: str, cents: int) -> str:
    taken.append(cents)  # the mistake: before the check
    if effect_key() in known:
        return "was paid"
    known.add(effect_key())
    return "paid"


@shop.workflow(key="{order}")
async def checkout(order: str) -> str:
    await charge(order, 100)  # the step
    return "done"


@prove(checkout, runs=[("o-1",)])
def bank(world: FakeWorld) -> None:
    taken.clear()
    known.clear()
    world.real(charge)
    world.observe("the money taken", lambda: sum(taken))
