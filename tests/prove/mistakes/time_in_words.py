"""A mistake: a workflow asks which day it is."""

from __future__ import annotations

import time

from holdfast import Pack

shop = Pack("time_in_words")


@shop.effect(key="ship:{order}")
async def ship(order: str) -> str:
    return order


@shop.effect(key="write:{order}")
async def write(order: str) -> str:
    return order


@shop.workflow(key="{order}")
async def checkout(order: str) -> str:
    if time.strftime("%A") == "Sunday":  # the mistake
        await write(order)
    return await ship(order)
