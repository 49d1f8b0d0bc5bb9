"""Workflows that do not come to an end."""

from __future__ import annotations

import asyncio

from holdfast import Pack, hook

pack = Pack("prover_restless")


@pack.effect(key="look:{word}")
async def look(word: str) -> str:
    return word


@pack.workflow(key="a:{order}")
async def busy(order: str) -> str:
    await look(order)
    while True:
        pass  # the busy line


@pack.workflow(key="b:{order}")
async def swallows(order: str) -> str:
    while True:
        try:
            await look(order)
            while True:
                await hook("go", type=str)
        except BaseException:
            continue


@pack.workflow(key="c:{order}")
async def turns(order: str) -> str:
    while True:
        await asyncio.sleep(0)


@pack.workflow(key="d:{order}")
async def right(order: str) -> str:
    return await look(order)
