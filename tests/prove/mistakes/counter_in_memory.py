"""A mistake: a workflow counts in the memory of its process."""

from __future__ import annotations

from holdfast import Pack

shop = Pack("counter_in_memory")


orders = {"seen": 0}


@shop.effect(key="number:{order}:{number}")
async def give_number(order: str, number: int) -> str:
    return f"{order} {number}"


@shop.workflow(key="{order}")
async def checkout(order: str) -> str:
    orders["seen"] += 1
    return await give_number(order, orders["seen"])  # the mistake: another process has counted others
