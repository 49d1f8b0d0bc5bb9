"""The workflows of the Holdfast contenders, alike in one process and in two."""

import time
from pathlib import Path

from bench.workloads import effect_instants
from holdfast import Pack, now, sleep

pack = Pack("bench")


def url(directory: Path) -> str:
    return f"sqlite:///{directory / 'holdfast.db'}"


@pack.effect
async def touch(order: str) -> str:
    effect_instants.append(time.perf_counter())
    return order


@pack.workflow(key="one:{order}")
async def one(order: str) -> str:
    return await touch(order)


@pack.workflow(key="many:{order}")
async def many(order: str, effects: int) -> str:
    for _ in range(effects):
        await touch(order)
    return order


@pack.workflow(key="timer:{order}")
async def timer(order: str, due: float) -> str:
    await sleep(due - now().timestamp())
    return order
