"""A mistake: an undo has the key of the effect that it undoes, and the provider takes it for a repetition."""

from __future__ import annotations

from holdfast import Pack

shop = Pack("undo_has_effects_key")


@shop.effect(key="order:{order}")
async def refund(order: str) -> None:
    del order


@shop.effect(key="order:{order}", undo=refund)
async def charge(order: str) -> str:
    return order


@shop.workflow(key="{order}")
async def checkout(order: str) -> str:
    return await charge(order)  # the step
