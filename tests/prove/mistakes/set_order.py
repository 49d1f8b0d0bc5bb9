"""A mistake: a workflow does things in the order of a set."""

from __future__ import annotations

from holdfast import Pack

shop = Pack("set_order")


@shop.effect(key="ship:{sku}")
async def ship(sku: str) -> str:
    return sku


@shop.workflow(key="{order}")
async def checkout(order: str) -> list[str]:
    items = {"book", "pen", "ink", "paper"}
    return [await ship(sku) for sku in items]  # the mistake: each process has its own order
