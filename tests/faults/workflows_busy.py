"""A workflow that keeps the loop of its process busy, and one beside it."""

from __future__ import annotations

import time

from holdfast import Pack, sleep

busy = Pack("busy")
BUSY = "tests.faults.workflows_busy:busy"


@busy.effect
async def work(name: str) -> str:
    return name


@busy.workflow(key="spin:{name}")
async def spin(name: str, seconds: float) -> str:
    """Computes for so much of the processor's time, without an await."""
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass
    return await work(name)


@busy.workflow(key="beside:{name}")
async def beside(name: str) -> str:
    await sleep("10ms")
    return await work(name)
