"""A mistake: a cache of the process decides whether an effect is performed."""

from __future__ import annotations

from holdfast import Pack

shop = Pack("cached_effect")
PRICES: dict[str, str] = {}


@shop.effect(key="price:{order}")
async def price(order: str) -> str:
    return order


@shop.workflow(key="{order}")
async def checkout(order: str) -> str:
    if order not in PRICES:
        PRICES[order] = await price(order)  # the mistake
    return PRICES[order]
