"""A shop to look at: `holdfast dev examples.shop`, then start orders from a browser, a terminal or another language.

The world outside (a payment provider, a warehouse, a parcel service) is a few lines of pretence with human delays, so
that there is something to watch. Everything else is as one would write it: keys, retries, undo, markers, approval by a
person, child runs, and an entity that lives as long as its customer.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import Meta, Struct

from holdfast import (
    Pack,
    Permanent,
    Retry,
    attempt,
    continue_as_new,
    effect_key,
    hook,
    mark,
    set_attributes,
    sleep,
    timeout,
)

shop = Pack("shop")

APPROVAL_FROM_CENTS = 50_000
BASKET_ITEMS_PER_GENERATION = 100


class Item(Struct, frozen=True):
    """So many of a thing, at a price."""

    sku: str
    cents: Annotated[int, Meta(ge=0)]
    quantity: Annotated[int, Meta(ge=1, le=1000)] = 1


class Approval(Struct, frozen=True):
    """What a person says about a large order."""

    approved: bool
    by: str


class Order(Struct, frozen=True):
    """What became of an order."""

    order: str
    cents: int
    payment: str
    parcels: list[str]


@shop.kernel
def total(items: list[Item]) -> int:
    """What the items cost together."""
    return sum(item.cents * item.quantity for item in items)


@shop.effect(key="release:{order}")
async def release(order: str) -> str:
    """Put the goods back on the shelf."""
    await asyncio.sleep(0.2)
    return f"the goods of {order} are back"


@shop.effect(key="reserve:{order}", undo=release)
async def reserve(order: str, items: list[Item]) -> int:
    """Put the goods aside."""
    await asyncio.sleep(0.3)
    if any(item.sku == "sold-out" for item in items):
        raise Permanent(f"order {order} wants something that is sold out")
    return len(items)


@shop.effect(key="refund:{order}")
async def refund(order: str) -> str:
    """Give the money back. It takes nothing of what `charge` returned: that may never have come."""
    await asyncio.sleep(0.3)
    return f"{order} was refunded"


@shop.effect(key="charge:{order}", retry=Retry(attempts=5, base=0.5), undo=refund)
async def charge(order: str, customer: str, cents: int) -> str:
    """Take the money. The provider hiccups for customers who are called so."""
    await asyncio.sleep(0.4)
    if customer.startswith("flaky") and attempt() < 3:
        raise ConnectionError("the payment provider did not answer")
    return f"{cents / 100:.2f} for {order}, paid under {effect_key()}"


@shop.effect(key="parcel:{order}:{sku}")
async def hand_over(order: str, sku: str) -> str:
    """Give a parcel to the carrier."""
    await asyncio.sleep(0.5)
    return f"parcel {order}/{sku}"


@shop.workflow(key="ship:{order}:{sku}")
async def ship(order: str, sku: str) -> str:
    """One parcel on its way."""
    await sleep("1s")
    return await hand_over(order, sku)


@shop.workflow(key="checkout:{order}", markers=("reserved", "approved", "charged", "shipped"))
async def checkout(order: str, customer: str, items: list[Item]) -> Order:
    """Reserve, ask a person if it is a large order, charge, ship every item.

    Cancel it at any moment: what was charged is refunded, what was reserved is released, and the receipt says so.
    """
    cents = total(items)
    await set_attributes({"customer": customer, "cents": cents})
    await reserve(order, items)
    await mark("reserved")
    if cents >= APPROVAL_FROM_CENTS:
        async with timeout("3d"):
            approval = await hook("approval", token=f"approve:{order}", type=Approval)
        if not approval.approved:
            await release(order)
            raise Permanent(f"{approval.by} refused order {order}")
    await mark("approved")
    payment = await charge(order, customer, cents)
    await mark("charged")
    parcels = await asyncio.gather(*(ship(order, item.sku) for item in items))
    await mark("shipped")
    return Order(order, cents, payment, list(parcels))


@shop.workflow(key="basket:{customer}")
async def basket(customer: str, skus: list[str] | None = None) -> None:
    """A customer's basket: one run per customer that lives on, and takes what is sent to its hook `items`.

    Start it with `signal`: it lands in the running basket, or begins one.
    """
    collected = list(skus or [])
    async for item in hook("items", type=Item):
        collected.append(item.sku)
        await set_attributes({"customer": customer, "items": len(collected)})
        if len(collected) % BASKET_ITEMS_PER_GENERATION == 0:
            await continue_as_new(basket(customer, collected))


@shop.workflow(key="reminder:{customer}")
async def reminder(customer: str, days: int = 3) -> str:
    """Waits for days, and costs nothing meanwhile."""
    await sleep(f"{days}d")
    return f"{customer} was reminded"
