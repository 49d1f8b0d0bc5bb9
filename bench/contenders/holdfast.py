"""Holdfast on one SQLite file, its client and its worker in one process: the shape in which DBOS runs too."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.contenders.holdfast_pack import SIGNAL, listener, many, one, pack, timer, url
from bench.entry import contend
from bench.shapes import PAGE, Wanted
from bench.workloads import Wait
from holdfast import Holdfast


class HoldfastContender:
    """The verbs of a contender through the public API of Holdfast."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf

    async def one(self, order: str) -> None:
        run, _ = await self._hf.start(one(order))
        await run.result()

    async def many(self, order: str, effects: int) -> None:
        run, _ = await self._hf.start(many(order, effects))
        await run.result()

    async def start(self, order: str) -> Wait:
        run, _ = await self._hf.start(one(order))
        return run.result

    async def start_in(self, order: str, lane: str) -> Wait:
        run, _ = await self._hf.start(one(order), lane=lane)
        return run.result

    async def timer(self, order: str, due: float) -> None:
        run, _ = await self._hf.start(timer(order, due))
        await run.result()

    async def listener(self, order: str) -> Wait:
        run, _ = await self._hf.start(listener(order))

        async def signal() -> None:
            await run.signal(SIGNAL, order)
            await run.result()

        return signal

    async def page(self, wanted: Wanted) -> int:
        return len((await self._hf.runs(**wanted).page(limit=PAGE)).runs)


@asynccontextmanager
async def open_holdfast(directory: Path) -> AsyncGenerator[HoldfastContender, None]:
    async with Holdfast(url(directory), packs=[pack]) as hf:
        yield HoldfastContender(hf)


if __name__ == "__main__":
    contend(open_holdfast)
