"""A mistake: an undo needs the result of what it undoes, which a crash may lose."""

from __future__ import annotations

from holdfast import Pack

shop = Pack("undo_needs_result")


@shop.effect(key="refund:{order}")
async def refund(order: str, result: str) -> str:
    return f"{order} {result}"


@shop.effect(key="charge:{order}", undo=refund)
async def charge(order: str) -> str:
    return order


@shop.workflow(key="{order}")
async def checkout(order: str) -> str:
    return await charge(order)  # the step whose undo is the mistake
