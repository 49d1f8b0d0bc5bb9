"""A mistake: a workflow has a shield, and goes on outside of it although it was cancelled."""

from __future__ import annotations

import asyncio

from holdfast import Pack, shield, sleep

shop = Pack("shield_elsewhere")


@shop.effect(key="reserve:{order}")
async def reserve(order: str) -> str:
    return order


@shop.workflow(key="{order}")
async def checkout(order: str) -> str:
    async with shield("1m"):
        await reserve(order)  # the step
    try:  # noqa: SIM105 - as people write it
        await sleep("1h")
    except asyncio.CancelledError:
        pass  # the mistake
    return order
