"""A checkout that charges once, however often it is started and however often the bank says "later".

    python -m examples.orders
    holdfast prove examples.orders

What to look at
- `key="checkout:{order}"`: two starts of one order are one run, and both callers get its result.
- `effect_key()` goes to the bank as the idempotency key. Every attempt carries the same one.
- `RetryAfter` waits as long as the bank asks; `CardDeclined` is `Permanent`, so it is tried once.
- The workflow decides about a declined card with a plain `except`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory

from holdfast import Holdfast, InputMismatch, Pack, Permanent, Retry, RetryAfter, effect_key
from holdfast.testing import FakeWorld, prove

shop = Pack("shop")


class CardDeclined(Permanent):
    """The bank said no. Asking again would not change its mind."""


@dataclass
class Bank:
    """Stands for a payment provider that honours idempotency keys. Its ledger is what really happened."""

    busy: int = 0  # how many requests it turns away first
    ledger: dict[str, int] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def charge(self, key: str, card: str, cents: int, *, reference: str) -> str:
        self.requests.append(f"{reference} under {key}")
        if card == "stolen":
            raise CardDeclined("the card was reported stolen")
        if self.busy > 0:
            self.busy -= 1
            raise RetryAfter(0.05, "too many requests")
        self.ledger.setdefault(key, cents)  # the same key again changes nothing
        return f"payment-{list(self.ledger).index(key) + 1}"


bank = Bank()


@dataclass
class Order:
    status: str
    payment: str = ""
    parcel: str = ""
    reason: str = ""


@shop.kernel
def total(items: dict[str, int]) -> int:
    """Pure: decided before any effect, and never retried."""
    if not items:
        raise ValueError("an order needs at least one item")
    return sum(items.values())


@shop.effect(key="charge:{order}", retry=Retry(attempts=5, base="50ms"), timeout="10s")
async def charge(order: str, card: str, cents: int) -> str:
    return bank.charge(effect_key(), card, cents, reference=order)


@shop.effect(key="ship:{order}")
def ship(order: str) -> str:
    """A sync effect: it runs in a thread, so an ordinary blocking library is welcome here."""
    return f"parcel for {order}"


@shop.workflow(key="checkout:{order}", retention="30d")
async def checkout(order: str, card: str, items: dict[str, int]) -> Order:
    cents = total(items)
    try:
        payment = await charge(order, card, cents)
    except CardDeclined as declined:
        return Order("rejected", reason=str(declined))
    return Order("shipped", payment, await ship(order))


@prove(checkout, runs=[("o-1", "visa", {"book": 1200})])
def the_bank_hiccups(world: FakeWorld) -> None:
    world.stub(charge, fails=2, then="payment-1")


async def story(url: str) -> None:
    async with Holdfast(url, packs=[shop]) as hf:
        call = checkout("o-1", "visa", {"book": 1200, "pen": 300})
        first, second = await asyncio.gather(hf.start(call), hf.start(call))
        print(
            f"two starts, created: {sorted([first.created, second.created])}, one run: {first.run.id == second.run.id}"
        )
        print(f"both get {await first.run.result()}: {await first.run.result() == await second.run.result()}")
        print(f"requests to the bank: {bank.requests}, charged: {bank.ledger}")

        try:
            await hf.start(checkout("o-1", "visa", {"yacht": 9_000_000}))
        except InputMismatch as mismatch:
            print(f"refused: {mismatch}")

        run, _ = await hf.start(checkout("o-2", "stolen", {"book": 1200}))
        print(f"declined: {await run.result()}, asked {bank.requests.count('o-2 under charge:o-2')} time")


def main() -> None:
    bank.busy = 2
    with TemporaryDirectory() as directory:
        asyncio.run(story(f"sqlite:///{directory}/shop.db"))


if __name__ == "__main__":
    main()
