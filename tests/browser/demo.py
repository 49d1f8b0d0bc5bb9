"""A small shop to look at: what its runs do is chosen by their input, so that every page has something to show."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from holdfast import Pack, Permanent, Retry, RetryAfter, attempt, hook, mark, set_attributes, sleep, spawn

shop = Pack("shop")


@dataclass
class World:
    """What the effects find outside: a bank that may be down, and a gate that effects wait at."""

    bank_is_down: bool = False
    gate: asyncio.Event = field(default_factory=asyncio.Event)


world = World()


@dataclass
class Item:
    sku: str
    cents: int
    quantity: int = 1


@dataclass
class Decision:
    by: str
    approved: bool
    note: str = ""


@shop.effect(key="release:{order}")
async def release(order: str) -> None:
    """Take the reservation back."""


@shop.effect(key="reserve:{order}", undo=release)
async def reserve(order: str, items: list[Item]) -> int:
    return sum(item.cents * item.quantity for item in items)


@shop.effect(key="charge:{order}", retry=Retry(attempts=4, base=0.05, cap=0.1))
async def charge(order: str, cents: int) -> str:
    if world.bank_is_down:
        raise Permanent("the bank does not answer")
    if order.endswith("-flaky") and attempt() < 3:
        raise ConnectionError(f"the bank hung up on attempt {attempt()}")
    if order.endswith("-later") and attempt() < 2:
        raise RetryAfter(24 * 60)
    return f"payment of {cents / 100:.2f} for {order}"


@shop.effect(key="pack:{order}")
async def wrap(order: str) -> str:
    return f"parcel for {order}"


@shop.effect(key="label:{order}")
async def label(order: str) -> str:
    return f"label for {order}"


@shop.effect(key="wait:{order}", timeout="1h")
async def at_the_gate(order: str) -> None:
    await world.gate.wait()


@shop.effect(key="lend:{order}", undo=at_the_gate)
async def lend(order: str) -> None:
    """Give something away that comes back through the gate."""


@shop.workflow(key="ship:{order}", record_inputs=True)
async def ship(order: str) -> str:
    """Pack the parcel and print its label, both at once."""
    await asyncio.gather(wrap(order), label(order))
    return f"{order} is on its way"


@shop.workflow(
    key="order:{order}",
    markers=("placed", "charged", "approved", "shipped"),
    outcomes=("no_effects", "partial", "compensated", "completed_first"),
)
async def checkout(order: str, customer: str, items: list[Item], approval: bool = False) -> dict[str, str]:
    """Sell something.

    Reserves the goods, charges the customer, asks a person where `approval` is wanted, and ships.
    """
    cents = await reserve(order, items)
    await set_attributes(customer=customer, cents=cents, stage="reserved")
    payment = await charge(order, cents)
    await mark("charged")
    if approval:
        decision = await hook("approval", type=Decision)
        if not decision.approved:
            raise Permanent(f"{decision.by} said no: {decision.note}")
    await mark("approved")
    await sleep("20ms")
    parcel = await ship(order)
    await mark("shipped")
    await set_attributes(stage="shipped")
    return {"payment": payment, "parcel": parcel}


@shop.workflow
async def slow(order: str) -> str:
    """Wait at the gate until somebody opens it."""
    await at_the_gate(order)
    return "through"


@shop.workflow
async def loan(order: str) -> None:
    """Lend something for a week. Cancelled, it waits at the gate until that is back."""
    await lend(order)
    await sleep("7d")


@shop.workflow
async def audit(order: str) -> str:
    """Have a survey made, and wait for it."""
    return await survey(order)


@shop.workflow(key="survey:{order}", outcomes=("resumable", "no_effects", "completed_first"))
async def survey(order: str) -> str:
    """Ask the customer a week later. Cancelled, it stands still and may be resumed."""
    await label(order)
    await sleep("7d")
    return "asked"


@shop.workflow(key="refund:{order}")
async def refund(order: str) -> str:
    """Send money back. It waits for what nobody can deliver while the bank is down, so it blocks."""
    await label(order)
    if world.bank_is_down:
        await asyncio.Event().wait()
    return "refunded"


@shop.workflow
async def catalogue(pages: int, *, words: int = 0) -> dict[str, str]:
    """Something large to look at: a child for each page, and a long answer."""
    children = [await spawn(ship(f"page-{number}")) for number in range(pages)]
    texts = {child.key or child.id: await child.result() for child in children}
    return texts | {"text": "holdfast " * words}


@dataclass
class Payment:
    id: str
    cents: int


@shop.effect(key="wire:{order}", safety="once", timeout=0.05)
async def wire(order: str, cents: int) -> Payment:
    if world.bank_is_down:
        await asyncio.Event().wait()
    return Payment(f"wire of {order}", cents)


@shop.workflow(key="payout:{order}")
async def payout(order: str, cents: int = 500) -> Payment:
    """Send money once. If the bank does not say whether it did, a person must."""
    return await wire(order, cents)


@shop.effect(key="item:{number}")
async def count_item(number: int, damaged: int) -> int:
    if number == damaged:
        raise Permanent(f"item {number} is damaged")
    return number


@shop.workflow(key="stock:{shelf}")
async def stock(shelf: str, items: int, damaged: int = 0, wait: bool = False) -> int:
    """Count what lies on a shelf: very many steps, a hundred at a time."""
    await label(shelf)
    for begin in range(1, items, 100):
        await asyncio.gather(*(count_item(number, damaged) for number in range(begin, min(begin + 100, items))))
    if wait:
        await at_the_gate(shelf)
    return items
