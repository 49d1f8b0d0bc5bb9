"""Generators that a workflow leaves half read, in a worker with other runs: each run stays what it is."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest

from holdfast import Holdfast, Pack, effect_key, hook
from tests.integration.conftest import Home

shop = Pack("shop")
called: dict[str, list[int]] = {}


@shop.effect
async def charge(amount: int) -> int:
    called.setdefault(effect_key(), []).append(amount)
    return amount


async def numbers() -> AsyncIterator[int]:
    try:
        for number in range(9):
            yield number
    finally:
        await charge(-1)


async def first_number() -> int:
    """Leaves the generator in a cycle of frame, error and traceback, as a helper that keeps an error does."""
    half_read = numbers()
    try:
        async for number in half_read:
            raise LookupError(number)
    except LookupError as error:
        kept = error
        return int(kept.args[0])
    return -1


@shop.workflow
async def culprit() -> int:
    first = await first_number()
    await hook("go on")
    return first + await charge(1)


@shop.workflow
async def victim(collects: bool) -> list[int]:
    charged: list[int] = []
    for amount in range(4):
        charged += await asyncio.gather(asyncio.create_task(charge(amount)), charge(amount + 10))
        if collects:
            gc.collect()
    return charged


@pytest.fixture(params=["collects", "is collected"])
def collects(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether the victim calls the collector itself; otherwise it comes very often."""
    gc.collect()
    gc.freeze()
    thresholds = gc.get_threshold()
    if request.param != "collects":
        gc.set_threshold(3, 1, 1)
    yield request.param == "collects"
    gc.set_threshold(*thresholds)
    gc.unfreeze()


async def _settled(hf: Holdfast, collects: bool) -> None:
    culprits = [(await hf.start(culprit()))[0] for _ in range(5)]
    victims = [(await hf.start(victim(collects)))[0] for _ in range(5)]
    for run in victims:
        assert await run.result() == [0, 10, 1, 11, 2, 12, 3, 13]
    for run in culprits:
        await run.signal("go on", None)
        assert await run.result() == 1


async def test_a_generator_of_another_run_that_is_collected_reaches_no_run(home: Home, collects: bool):
    called.clear()
    async with home.holdfast(shop) as hf:
        await _settled(hf, collects)
        replayed = await hf.replay_check(status=["completed"])
    assert [each.divergence for each in replayed] == [""] * 10
    assert all(len(amounts) == 1 for amounts in called.values())
    by_step = [(key.rpartition("/")[2], amounts[0]) for key, amounts in called.items()]
    assert (-1 in {amount for _, amount in by_step}) is False
    assert len(by_step) == 5 * 8 + 5


OFTEN = """
import asyncio, contextvars, gc
from holdfast.engine.code.sandbox import keep_order, keep_the_collector_out
from tests.unit.engine.driving import Play, workflow_of

variables = [contextvars.ContextVar(f"v{n}") for n in range(40)]


async def setting(n):
    for variable in variables:
        variable.set(n)


@workflow_of
async def code() -> None:
    for variable in variables:
        variable.set(0)
    for _ in range(20):
        await asyncio.gather(*map(setting, range(20)))


keep_order()
keep_the_collector_out()
gc.freeze()
for threshold in (1, 2, 3, 5, 7, 11, 50):
    gc.set_threshold(threshold, 2, 2)
    assert Play(code).result is None
"""


def test_a_collection_may_come_at_any_moment_of_an_activation():
    """Python 3.11 collects also in the middle of its own C code, for example while a context variable is being set."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", OFTEN], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
