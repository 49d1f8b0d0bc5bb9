"""The workflows of the Holdfast contenders, alike in one process and in two."""

import time
from pathlib import Path

from bench.workloads import effect_instants, effect_orders
from holdfast import Pack, hook, now, sleep

pack = Pack("bench")
SIGNAL = "go"


def path(directory: Path) -> Path:
    return directory / "holdfast.db"


def url(directory: Path) -> str:
    return f"sqlite:///{path(directory)}"


@pack.effect
async def touch(order: str) -> str:
    effect_instants.append(time.perf_counter())
    effect_orders.append(order)
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


@pack.workflow(key="listener:{order}")
async def listener(order: str) -> str:
    await hook(SIGNAL)
    return order
