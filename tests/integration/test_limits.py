"""Limits of one's own, in effects and out of them, on every store."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Holdfast, Pack, Rate, Retry, RetryAfter, RunFailed, UsageError
from holdfast.effects import limit
from tests.integration.conftest import Home


async def test_an_effect_that_may_not_go_yet_goes_when_it_may(home: Home) -> None:
    shop, sent = Pack("shop"), list[int]()

    @shop.effect(key="mail:{n}", retry=Retry(attempts=100, base=0.001))
    async def mail(n: int) -> None:
        verdict = await limit("letters", Rate(20, per="1s", burst=2))
        if not verdict.allowed:
            raise RetryAfter(verdict.retry_after)
        sent.append(n)

    @shop.workflow
    async def campaign() -> None:
        await asyncio.gather(*(mail(n) for n in range(6)))

    async with home.holdfast(shop) as hf:
        run, _ = await hf.start(campaign())
        await run.result()
        assert sorted(sent) == list(range(6))
        verdict = await hf.limit("letters", Rate(20, per="1s", burst=2), cost=0)
        assert verdict.remaining < 2, "what the effects have spent is spent for all"


async def test_a_workflow_may_not_ask(home: Home) -> None:
    shop, opened = Pack("shop"), list[Holdfast]()

    @shop.workflow
    async def asks() -> None:
        await opened[0].limit("x", Rate(1, per="1h"))

    async with home.holdfast(shop) as hf:
        opened.append(hf)
        run, _ = await hf.start(asks())
        with pytest.raises(RunFailed, match="whose replay would ask again"):
            await run.result()
        assert (await hf.limit("x", Rate(1, per="1h"))).allowed, "nothing was taken"


async def test_outside_of_an_effect_there_is_none_to_ask() -> None:
    with pytest.raises(UsageError, match="outside an effect"):
        await limit("x", Rate(1, per="1h"))


async def test_a_holdfast_that_is_not_open_limits_nothing(home: Home) -> None:
    with pytest.raises(UsageError, match="not open"):
        await home.holdfast().limit("x", Rate(1, per="1h"))


async def test_who_limits_nothing_says_nothing(home: Home) -> None:
    async with home.holdfast() as hf:
        assert await hf.runtime.store.documents("", "limiter") == []
