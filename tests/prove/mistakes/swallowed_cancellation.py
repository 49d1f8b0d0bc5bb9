"""A mistake: a workflow catches its own cancellation, and completes."""

from __future__ import annotations

import asyncio

from holdfast import Pack

shop = Pack("swallowed_cancellation")


@shop.effect(key="look:{order}")
async def look(order: str) -> str:
    return order


@shop.effect(key="charge:{order}")
async def charge(order: str) -> str:
    return order


@shop.workflow(key="{order}")
async def checkout(order: str) -> str:
    try:
        await look(order)  # the step
        return await charge(order)  # the step
    except asyncio.CancelledError:  # the mistake: it completes, and its caller believes that it is done
        return order
