"""The sketch: Holdfast's own design in its barest form. It shows what the design costs, and so what the rest costs.

    start     claims the key      run row, journal row                              1 commit
              builds the run      its code runs, on a loop of its own, until it is quiet
    effect    is performed        its entry is given to the code, which runs until it is quiet
              is recorded         run row at its fence, journal row                 1 commit, the last with the outcome
    result    is handed to those who wait in this process

A run of n effects costs n + 1 commits, as in Holdfast, of rows about as large. Nothing else: no retries, timers,
signals, cancellation, children, searches, leases, events, other processes, or checks of what is passed in.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.contenders.sketch_engine import Effect, Engine, Function
from bench.entry import contend
from bench.workloads import Wait


@Effect
async def touch(order: str) -> str:
    return order


@Function
async def one(order: str) -> str:
    return await touch(order)


@Function
async def many(order: str, effects: int) -> str:
    for _ in range(effects):
        await touch(order)
    return order


class Sketch:
    """The verbs of a contender, as far as the sketch goes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def one(self, order: str) -> None:
        result = await self.start(order)
        await result()

    async def many(self, order: str, effects: int) -> None:
        result = await self._engine.start(many, order, effects, key=f"many:{order}")
        await result()

    async def start(self, order: str) -> Wait:
        return await self._engine.start(one, order, key=f"one:{order}")

    async def timer(self, order: str, due: float) -> None:
        raise NotImplementedError

    async def listener(self, order: str) -> Wait:
        raise NotImplementedError


@asynccontextmanager
async def open_sketch(directory: Path) -> AsyncGenerator[Sketch, None]:
    engine = Engine(directory / "sketch.db", [one, many])
    try:
        yield Sketch(engine)
    finally:
        await engine.close()


if __name__ == "__main__":
    contend(open_sketch)
