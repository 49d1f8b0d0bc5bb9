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
    left, seen = Counter[str](), set[int]()
    async with home.holdfast(pack) as hf:
        for attempt in ("warm", "first", "second"):
            for n in range(20):
                await (await hf.start(one(f"{attempt}-{n}"))).run.result()
            gc.collect()
            kinds = [type(each) for each in gc.garbage if id(each) not in seen]
            left = Counter(kind.__qualname__ for kind in kinds if kind.__module__.startswith("holdfast"))
            # What a test before this one has left, and a thread of it lets go of at last, is new once and not twice.
            # It stays where it is: cycles that are taken off the list are found again each time.
            seen.update(map(id, gc.garbage))
            if attempt != "warm" and not left:
                break
    assert not left
