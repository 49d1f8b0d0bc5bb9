"""Workflows that kill or hold up the process that executes them, and innocent ones beside them."""

from __future__ import annotations

import asyncio
import os

from holdfast import Pack
from tests.faults.workflows_checkout import note
from tests.faults.workflows_held_by_flags import flag

deadly = Pack("deadly")
DEADLY = "tests.faults.workflows_deadly:deadly"
EXIT_CODE = 9


@deadly.effect
async def kill(name: str) -> str:
    """Ends the process at once, as a fault in native code would, until the test has mended it."""
    note("kill", name)
    if not flag("mended").exists():
        os._exit(EXIT_CODE)
    return name


@deadly.effect
async def work(name: str) -> str:
    note("work", name)
    await asyncio.sleep(0.2)
    return name


@deadly.effect
async def finish(name: str) -> str:
    note("finish", name)
    return name


@deadly.workflow(key="killer:{name}")
async def killer(name: str) -> str:
    return await kill(name)


@deadly.workflow(key="innocent:{name}")
async def innocent(name: str) -> str:
    await work(name)
    return await finish(name)
