"""A mistake: every round of a loop has the same key."""

from __future__ import annotations

from holdfast import Pack, sleep

shop = Pack("one_key_for_all")


@shop.effect(key="remind:{customer}")
async def remind(customer: str) -> str:
    return customer


@shop.workflow(key="{customer}")
async def reminders(customer: str) -> str:
    for _ in range(3):
        await remind(customer)  # the mistake: the second looks like the first
        await sleep("5s")
    return customer
