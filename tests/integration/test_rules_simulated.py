"""Breakers and limits in virtual time: minutes of a service that is down, counted call by call."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Breaker, Limit, Pack, Rate, Retry
from holdfast.testing import Simulated

STAYS = 30.0


class Shop:
    """A service that is down for a while."""

    def __init__(self) -> None:
        self.pack = Pack("shop")
        self.is_down = True

        @self.pack.effect(breaker=Breaker("stripe", of=20, stays=STAYS), retry=Retry(attempts=100_000, base=0.1))
        async def charge(order: str) -> str:
            if self.is_down:
                raise ConnectionError("down")
            return f"paid {order}"

        @self.pack.effect(limit=Limit("slots", rate=Rate(10, per="1s")))
        async def send(order: str) -> str:
            return f"sent {order}"

        @self.pack.workflow(key="{order}")
        async def buy(order: str) -> str:
            return await charge(order)

        @self.pack.workflow
        async def ship(order: str) -> str:
            return await send(order)

        self.buy, self.ship, self.charge, self.send = buy, ship, charge, send


async def test_ten_minutes_of_a_dead_service_cost_few_calls() -> None:
    shop = Shop()
    async with Simulated(packs=[shop.pack]) as hf:
        runs: list[Any] = [(await hf.start(shop.buy(f"o-{n}"))).run for n in range(40)]
        await hf.advance("10m")
        calls = len(hf.ledger.calls(shop.charge))
        # Open for 30 s, 45, 67, 101, 152, 228: seven calls in ten minutes, and those that were under way at first.
        assert calls <= 40 + 7
        [wait] = (await hf.get(runs[0].id)).waiting_on
        assert wait.kind == "breaker"
        shop.is_down = False
        await hf.advance("10m")
        assert [await run.result() for run in runs] == [f"paid o-{n}" for n in range(40)]


async def test_a_rate_is_kept_to_the_millisecond_over_a_minute() -> None:
    shop = Shop()
    async with Simulated(packs=[shop.pack]) as hf:
        begun = hf.now
        runs: list[Any] = [(await hf.start(shop.ship(f"o-{n}"))).run for n in range(300)]
        assert [await run.result() for run in runs] == [f"sent o-{n}" for n in range(300)]
        assert hf.now - begun >= timedelta(seconds=29.5)
        assert hf.now - begun <= timedelta(seconds=40)


@pytest.mark.parametrize("seed", range(3))
async def test_what_happens_is_the_same_each_time(seed: int) -> None:
    async def told() -> list[str]:
        shop = Shop()
        async with Simulated(packs=[shop.pack], seed=seed) as hf:
            run = (await hf.start(shop.buy("o-1"))).run
            await hf.advance("2m")
            shop.is_down = False
            await hf.advance("5m")
            await run.result()
            return [str(line) for line in (await hf.explain(run)).lines]

    assert await told() == await told()
