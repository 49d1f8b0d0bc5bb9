"""A pack to prove: charge an order, undo it, wait for a word."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from holdfast import Pack, hook
from holdfast.prove.cases import Case
from holdfast.testing import FakeWorld, prove

shop = Pack("prover_shop")
hidden = 7  # neither a pack nor a proof


class Order(Struct):
    id: str
    cents: int


@shop.effect(key="refund:{order}")
async def refund(order: str) -> str:
    return f"refund of {order}"


@shop.effect(key="charge:{order}", undo=refund, safety="once", timeout="1s")
async def charge(order: str, cents: int) -> Order:
    return Order(order, cents)


@shop.workflow(key="{order}")
async def checkout(order: str, cents: int) -> str:
    word = await hook("word", type=str)
    return f"{(await charge(order, cents)).id} {word}"


@shop.workflow
async def look() -> int:
    return 1


@prove(checkout, runs=[("o-1", 1), ("o-2", 2)], deliver=("late",))
def two_orders(world: FakeWorld) -> None:
    world.stub(charge, returns=Order("stubbed", 3))
    world.signal("word", "yes", "no")


def a_case(**changes: Any) -> Case:
    """The first of the two orders."""
    call = checkout("o-1", 1)
    call.is_taken = True
    return Case(**{"name": "a case", "call": call, "packs": (shop,), "arrange": two_orders, **changes})
