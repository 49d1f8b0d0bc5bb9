"""A mistake: the key of a charge contains the time."""

from __future__ import annotations

import time

from holdfast import Pack

shop = Pack("key_with_time")


@shop.effect(key="charge:{order}:{at}")
async def charge(order: str, at: float) -> str:
    return f"{order} at {at}"


@shop.workflow(key="{order}")
async def checkout(order: str) -> str:
    return await charge(order, time.time())  # the mistake
