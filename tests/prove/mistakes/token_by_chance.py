"""A mistake: a workflow branches by a token of chance."""

from __future__ import annotations

import secrets

from holdfast import Pack

shop = Pack("token_by_chance")


@shop.effect(key="ship:{order}")
async def ship(order: str) -> str:
    return order


@shop.effect(key="write:{order}")
async def write(order: str) -> str:
    return order


@shop.workflow(key="{order}")
async def checkout(order: str) -> str:
    if int(secrets.token_hex(4), 16) > 2**31:  # the mistake
        await write(order)
    return await ship(order)
