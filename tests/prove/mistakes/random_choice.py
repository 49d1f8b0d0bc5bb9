"""A mistake: a workflow draws by itself."""

from __future__ import annotations

import random

from holdfast import Pack

shop = Pack("random_choice")


@shop.effect(key="ship:{order}")
async def ship(order: str) -> str:
    return order


@shop.workflow(key="{order}")
async def checkout(order: str) -> str:
    await ship(order)
    return random.choice(["north", "south", "east", "west"])  # the mistake
