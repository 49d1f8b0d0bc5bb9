"""A run is freed when it ends: thousands of runs a second must not keep the collector of cycles busy."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator

import pytest

from holdfast import Pack
from tests.integration.conftest import Home

pack = Pack("p")


@pack.effect
async def touch(order: str) -> str:
    return order


@pack.workflow(key="one:{order}")
async def one(order: str) -> str:
    return await touch(order)


@pytest.fixture
def kept_garbage() -> Iterator[None]:
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


@pytest.mark.usefixtures("kept_garbage")
async def test_a_run_leaves_no_cycles_behind(home: Home) -> None:
    async with home.holdfast(pack) as hf:
        for n in range(20):
            await (await hf.start(one(f"warm-{n}"))).run.result()
        gc.collect()
        gc.garbage.clear()
        for n in range(20):
            await (await hf.start(one(f"o-{n}"))).run.result()
        gc.collect()
        left = Counter(type(each).__qualname__ for each in gc.garbage if type(each).__module__.startswith("holdfast"))
    assert not left
