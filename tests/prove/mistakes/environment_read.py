"""A mistake: a workflow reads the environment."""

from __future__ import annotations

import os

from holdfast import Pack

shop = Pack("environment_read")


@shop.effect(key="charge:{order}")
async def charge(order: str, currency: str) -> str:
    return f"{order} {currency}"


@shop.workflow(key="{order}")
async def checkout(order: str) -> str:
    return await charge(order, os.environ.get("CURRENCY", "EUR"))  # the mistake: another process may have another one
