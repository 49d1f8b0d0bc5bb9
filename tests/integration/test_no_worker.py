"""A result that is awaited while no live worker executes the workflow: said at once, and waited for all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import Holdfast, Pack, TimedOut
from holdfast.warnings import NoWorker
from tests.integration.conftest import Home

shop = Pack("shop")


@shop.workflow
async def work(order: str) -> str:
    return order


async def test_the_caller_is_warned_and_the_result_comes_with_a_worker(home: Home) -> None:
    async with home.holdfast(shop, worker=False) as client:
        run = (await client.start(work("o-1"))).run
        said = r"waits for a worker: none serves queue 'default', and shop\.work is executed nowhere"
        with pytest.warns(NoWorker, match=said) as told, pytest.raises(TimedOut):
            await run.result(0.01)
        assert told[0].filename == __file__
        async with home.holdfast(shop):
            assert await run.result("30s") == "o-1"  # of a snapshot that was taken before there was one


async def test_a_run_that_is_served_or_delayed_warns_of_nothing(home: Home) -> None:
    async with home.holdfast(shop, worker=False) as client, home.holdfast(shop):
        assert await (await client.start(work("o-1"))).run.result("30s") == "o-1"
    async with home.holdfast(shop, worker=False) as client:
        with pytest.raises(TimedOut):
            await (await client.start(work("o-2"), delay="1h")).run.result(0.01)


def test_a_blocking_holdfast_executes_what_it_starts_unless_it_is_told_not_to(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/home.db"
    with Holdfast.blocking(url, packs=[shop]) as hf:
        assert hf.start(work("o-1")).run.result("30s") == "o-1"
    with Holdfast.blocking(url, packs=[shop], worker=False) as hf:
        run = hf.start(work("o-2")).run
        with pytest.warns(NoWorker), pytest.raises(TimedOut):
            run.result(0.01)
        assert hf.workers() == []


async def test_several_who_wait_are_each_told(home: Home) -> None:
    async with home.holdfast(shop, worker=False) as client:
        runs = [(await client.start(work(f"o-{n}"))).run for n in range(3)]
        with pytest.warns(NoWorker) as told:
            await asyncio.gather(*(run.result(0.01) for run in runs), return_exceptions=True)
    assert len(told) == 3
