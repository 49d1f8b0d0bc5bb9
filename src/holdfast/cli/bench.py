"""`bench`: how fast this machine is with this disk, against a floor that is measured in the same minute.

    floor, one by one     bare SQLite, one durable commit after the other: what latency is held against
    floor, in groups      the same, fifty to a commit: what throughput is held against

Everything happens in a directory of its own beside the store, so that it is the same disk; nothing is left behind.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from msgspec import Struct
from rich.progress import Progress

from holdfast.assembly import Holdfast, file_of
from holdfast.cli import baseline, render
from holdfast.cli.session import Session
from holdfast.errors import InvalidConfig
from holdfast.pack import Pack

AT_ONCE = 50
EFFECTS_PER_RUN = 10

pack = Pack("bench")


@pack.effect
async def touch(number: int) -> int:
    return number


@pack.workflow(key="one:{number}")
async def one(number: int) -> int:
    return await touch(number)


@pack.workflow(key="many:{number}")
async def many(number: int) -> int:
    for _ in range(EFFECTS_PER_RUN):
        number = await touch(number)
    return number


class Measure(Struct, frozen=True):
    """One number, the floor below it, and how they compare."""

    name: str
    value: float
    unit: str
    floor: float

    @property
    def ratio(self) -> float:
        return self.value / self.floor


async def bench(
    session: Session,
    runs: Annotated[int, typer.Option("--runs", "-n", min=20, help="How many; more is more exact.")] = 1000,
    directory: Annotated[Path | None, typer.Option(help="Where; beside the store if not given.")] = None,
) -> None:
    """Measure starts, effects and latency on this machine and disk, against bare SQLite."""
    if session.config.is_gateway:
        raise InvalidConfig("bench measures a disk, not a gateway", hint="Use --url sqlite:///file.db or --directory.")
    file = file_of(session.config.url)
    if directory is None and file is None:
        raise InvalidConfig(f"{session.config.url_shown} lives in no file", hint="Say where to measure: --directory.")
    beside = directory or (file or Path()).parent
    if not beside.is_dir():
        raise InvalidConfig(f"{beside} is no directory", hint="Name one with --directory.")
    with TemporaryDirectory(prefix="holdfast-bench-", dir=beside) as there, session.out.progress() as progress:
        measures = await _measure(Path(there), runs, progress)
    document = [
        {"name": m.name, "value": m.value, "unit": m.unit, "floor": m.floor, "ratio": m.ratio} for m in measures
    ]
    rows = [(m.name, f"{m.value:,.1f} {m.unit}", f"{m.floor:,.1f} {m.unit}", f"{m.ratio:.2f} ×") for m in measures]
    shown = render.table("measure", "Holdfast", "bare SQLite", "ratio", rows=rows, nothing="")
    session.out.show({"runs": runs, "measures": document}, shown)


async def _measure(there: Path, runs: int, progress: Progress) -> list[Measure]:
    alone = max(20, runs // 5)
    bars = [
        progress.add_task(words, total=total)
        for words, total in (("floor", runs + alone), ("keyed starts", runs), ("effects", runs), ("latency", alone))
    ]

    def step(bar: int, count: int = 1) -> None:
        progress.advance(bars[bar], count)

    commit_ms = await asyncio.to_thread(baseline.measure_alone, there / "floor.db", alone, lambda: step(0))
    floor_per_s = await asyncio.to_thread(
        baseline.measure_grouped, there / "floor.db", runs, AT_ONCE, lambda: step(0, AT_ONCE)
    )
    url = f"sqlite:///{there}/bench.db"
    async with Holdfast(url, packs=[pack], worker=False) as hf:
        starts_per_s = await _rate(range(runs), lambda number: hf.start(one(number)), lambda: step(1))
    async with Holdfast(f"sqlite:///{there}/work.db", packs=[pack]) as hf:

        async def result(number: int) -> None:
            await (await hf.start(many(number))).run.result()

        runs_per_s = await _rate(range(runs // EFFECTS_PER_RUN), result, lambda: step(2, EFFECTS_PER_RUN))
        latency_ms = [await _timed_ms(hf, number, lambda: step(3)) for number in range(alone)]
    (p50, p99), (floor_p50, floor_p99) = _percentiles(latency_ms), _percentiles(commit_ms)
    return [
        Measure("keyed starts", starts_per_s, "/s", floor_per_s),
        Measure("effects", runs_per_s * EFFECTS_PER_RUN, "/s", floor_per_s),
        Measure("start to result, p50", p50, "ms", floor_p50),
        Measure("start to result, p99", p99, "ms", floor_p99),
    ]


async def _rate(numbers: Iterable[int], do: Callable[[int], Awaitable[Any]], step: Callable[[], None]) -> float:
    """How many are done per second, with AT_ONCE of them under way."""
    left, done = iter(numbers), 0
    began = time.perf_counter()

    async def work() -> None:
        nonlocal done
        for number in left:
            await do(number)
            done += 1
            step()

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())
    return done / (time.perf_counter() - began)


async def _timed_ms(hf: Holdfast, number: int, step: Callable[[], None]) -> float:
    began = time.perf_counter()
    await (await hf.start(one(number))).run.result()
    step()
    return (time.perf_counter() - began) * 1000


def _percentiles(taken: list[float]) -> tuple[float, float]:
    cuts = quantiles(taken, n=100)
    return cuts[49], cuts[98]
