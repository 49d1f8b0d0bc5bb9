"""A mistake: an effect changes what it was given."""

from __future__ import annotations

from holdfast import Pack
from holdfast.testing import FakeWorld, prove

shop = Pack("changed_argument")


@shop.effect(key="reserve:{order}")  # the mistake: it appends to what belongs to the workflow
async def reserve(order: str, items: list[str]) -> int:
    items.append("gift")
    return len(items)


@shop.effect(key="ship:{order}")
async def ship(order: str, items: list[str]) -> int:
    return len(items)


@shop.workflow(key="{order}")
async def checkout(order: str) -> int:
    items = ["book"]
    await reserve(order, items)
    return await ship(order, items)


@prove(checkout, runs=[("o-1",)])
def shelves(world: FakeWorld) -> None:
    world.real(reserve, ship)
