"""The effects and children that the workflows of these tests use."""

from __future__ import annotations

from holdfast import Pack

shop = Pack("shop")


@shop.effect
async def charge(amount: int) -> int: ...


@shop.effect
async def ship(item: str = "") -> str: ...


@shop.effect(key="notice:{about}")
async def notify(about: str) -> str: ...


@shop.workflow(key="pay:{amount}")
async def pay(amount: int) -> int: ...
