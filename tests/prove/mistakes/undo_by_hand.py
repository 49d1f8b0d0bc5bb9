"""A mistake: what is undone by hand needs a result that never came."""

from __future__ import annotations

import asyncio

from holdfast import Pack, shield

shop = Pack("undo_by_hand")


@shop.effect(key="refund:{order}")
async def refund(order: str, payment: str) -> str:
    return f"{order} {payment}"


@shop.effect(key="charge:{order}")
async def charge(order: str) -> str:
    return order


@shop.workflow(key="{order}")
async def checkout(order: str) -> str:
    try:
        payment = await charge(order)
        await asyncio.sleep(1)
    except asyncio.CancelledError:
        async with shield("1m"):
            await refund(order, payment)  # the mistake: there may be no payment yet
        raise
    return payment
