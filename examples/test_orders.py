"""Tests of `examples.orders` in virtual time: how an application tests its own workflows.

    pytest examples/test_orders.py

What to look at
- `Simulated` is the real engine with a store in memory. Nothing here waits, though the workflow is retried.
- Effects that touch the world are stubbed, in this simulation alone.
- The ledger says what happened in the world, whether or not a worker lived to record it.
"""

from __future__ import annotations

import asyncio

from examples.orders import CardDeclined, Order, charge, checkout, ship, shop
from holdfast.testing import Simulated

BOOK = {"book": 1200}


def test_an_order_that_is_started_twice_is_charged_once() -> None:
    async def main() -> None:
        async with Simulated(packs=[shop]) as hf:
            hf.stub(charge, returns="pay-1")
            first, second = await asyncio.gather(*(hf.start(checkout("o-1", "visa", BOOK)) for _ in range(2)))
            assert await first.run.result() == await second.run.result() == Order("shipped", "pay-1", "parcel for o-1")
            assert hf.ledger.count(charge) == 1

    asyncio.run(main())


def test_a_bank_that_is_busy_is_asked_again_under_the_same_key() -> None:
    async def main() -> None:
        async with Simulated(packs=[shop]) as hf:
            hf.stub(charge, fails=3, then="pay-1")
            run, _ = await hf.start(checkout("o-1", "visa", BOOK))
            assert (await run.result()).status == "shipped"
            assert [call.key for call in hf.ledger.calls(charge)] == ["charge:o-1"] * 4

    asyncio.run(main())


def test_a_card_that_is_declined_is_tried_once() -> None:
    async def main() -> None:
        async with Simulated(packs=[shop]) as hf:
            hf.stub(charge, fails=CardDeclined("the card was reported stolen"))
            run, _ = await hf.start(checkout("o-1", "stolen", BOOK))
            assert await run.result() == Order("rejected", reason="the card was reported stolen")
            assert len(hf.ledger.calls(charge)) == 1
            assert not hf.ledger.calls(ship)

    asyncio.run(main())


def test_whatever_dies_while_an_order_is_paid_it_is_paid_under_one_key_and_shipped_once() -> None:
    async def main(when: str, seed: int) -> None:
        async with Simulated(packs=[shop], replicas=2, seed=seed) as hf:
            hf.stub(charge, returns="pay-1", latency="200ms")
            hf.kill_at(charge, "before" if when == "before" else "after")
            run, _ = await hf.start(checkout("o-1", "visa", BOOK))
            assert (await run.result()).status == "shipped"
            assert {call.key for call in hf.ledger.calls(charge)} == {"charge:o-1"}
            assert hf.ledger.count(charge) == (1 if when == "before" else 2)
            assert hf.ledger.count(ship) == 1

    for when in ("before", "after"):
        for seed in range(3):
            asyncio.run(main(when, seed))
