"""A mistake: what did not return in time may have happened, and another provider is paid as well."""

from __future__ import annotations

from holdfast import Pack, timeout
from holdfast.testing import FakeWorld, prove

shop = Pack("timeout_pays_another")
paid: list[str] = []


@shop.effect(key="pay:{provider}:{order}")
async def pay(order: str, provider: str) -> str:
    if provider not in paid:
        paid.append(provider)
    return provider


@shop.workflow(key="{order}")
async def checkout(order: str) -> str:
    try:
        async with timeout("5s"):
            return await pay(order, "first")  # the mistake: it may have happened; the step
    except TimeoutError:
        return await pay(order, "second")  # the step


@prove(checkout, runs=[("o-1",)])
def bank(world: FakeWorld) -> None:
    paid.clear()
    world.real(pay)
    world.observe("payments", lambda: len(paid))
