"""A mistake: all undos of a run have one key, so a provider that honours keys refunds once."""

from __future__ import annotations

from holdfast import Pack
from holdfast.testing import FakeWorld, prove

shop = Pack("undo_shares_key")


@shop.effect(key="refund")
async def refund(order: str) -> None:
    del order


@shop.effect(key="charge:{order}", undo=refund)
async def charge(order: str) -> str:
    return order


@shop.workflow(key="{order}", on_failure="undo")
async def checkout(order: str) -> str:
    await charge(f"{order}-book")  # the step
    await charge(f"{order}-pen")  # the step
    return order


@prove(checkout, runs=[("o-1",)])
def bank(world: FakeWorld) -> None:
    del world
