"""A mistake: an undo gives back once more each time it is called."""

from __future__ import annotations

from holdfast import Pack, sleep
from holdfast.testing import FakeWorld, prove

shop = Pack("undo_not_idempotent")


shelf: dict[str, int] = {}


@shop.effect(key="release:{order}")
async def release(order: str) -> None:
    shelf["books"] += 1  # the mistake: called again, it gives back again


@shop.effect(key="reserve:{order}", undo=release)
async def reserve(order: str) -> None:
    if order not in shelf:
        shelf[order] = 1
        shelf["books"] -= 1


@shop.workflow(key="{order}")
async def checkout(order: str) -> str:
    await reserve(order)  # the step
    await sleep("2s")
    return order


@prove(checkout, runs=[("o-1",)])
def shelves(world: FakeWorld) -> None:
    shelf.clear()
    shelf["books"] = 10
    world.real(reserve, release)
    world.observe("the books on the shelf", lambda: shelf["books"])
