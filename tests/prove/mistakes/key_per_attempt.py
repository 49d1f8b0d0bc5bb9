"""A mistake: each attempt asks the provider under another key."""

from __future__ import annotations

from holdfast import Pack, Retry, attempt
from holdfast.testing import FakeWorld, prove

shop = Pack("key_per_attempt")


worlds: list[FakeWorld] = []


@shop.effect(key="charge:{order}", retry=Retry(attempts=3, base="1s"))
async def charge(order: str) -> str:
    worlds[-1].saw("charge", f"{order}-{attempt()}")  # what the provider sees: the mistake
    if attempt() == 1:
        raise ConnectionError("no reply")
    return "paid"


@shop.workflow(key="{order}")
async def checkout(order: str) -> str:
    return await charge(order)  # the step


@prove(checkout, runs=[("o-1",)])
def provider_that_is_slow(world: FakeWorld) -> None:
    worlds.append(world)
    world.real(charge)
