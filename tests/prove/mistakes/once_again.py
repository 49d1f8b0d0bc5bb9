"""A mistake: an effect that must be called once is called again when it fails."""

from __future__ import annotations

from holdfast import Pack
from holdfast.testing import FakeWorld, prove

shop = Pack("once_again")


@shop.effect(key="pay:{order}", safety="once")
async def pay(order: str) -> str:
    return order


@shop.workflow(key="{order}")
async def checkout(order: str) -> str:
    try:
        return await pay(order)
    except ConnectionError:
        return await pay(order)  # the mistake: the first may have happened


@prove(checkout, runs=[("o-1",)])
def bank(world: FakeWorld) -> None:
    world.stub(pay, returns="paid", loses_reply=True)
