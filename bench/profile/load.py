"""What is accounted for: W1 for a run and W2 for an effect, on a contender that has been warmed up."""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from pathlib import Path

from bench.runner import SCRATCH
from bench.workloads import Contender, Job, runs_of_many, runs_of_one, starts_of_the_same, swarm, warm_up

LOADS: dict[str, Callable[[Contender, int], Iterable[Job]]] = {
    "W1": runs_of_one,
    "W2": runs_of_many,
    "W4": starts_of_the_same,
}
UNITS = {"W1": "run", "W2": "effect"}
OPENERS = {"holdfast": "open_holdfast", "sketch": "open_sketch"}


class Wanted(argparse.Namespace):
    """What a program of the account is told."""

    workload: str
    contender: str
    size: int
    out: Path | None


def wanted(program: str | None) -> Wanted:
    parser = argparse.ArgumentParser(description=program)
    parser.add_argument("workload", choices=LOADS)
    parser.add_argument("--contender", choices=OPENERS, default="holdfast")
    parser.add_argument("--size", type=int, required=True)
    # Not the standard output: into a pipe, and without a buffer, Python may write a part of a long text only.
    parser.add_argument("--out", type=Path, help="the file for what was found; without it, nothing is kept")
    return parser.parse_args(namespace=Wanted())


def drive(contender: str, workload: str, size: int, *, begin: Callable[[], None], end: Callable[[], None]) -> None:
    """Open the contender on a fresh file, warm it up, and do the load between `begin` and `end`."""
    module = import_module(f"bench.contenders.{contender}")
    opened: Callable[[Path], AbstractAsyncContextManager[Contender]] = getattr(module, OPENERS[contender])

    async def measure(directory: Path) -> None:
        async with opened(directory) as ready:
            await warm_up(ready)
            gc.collect()  # what the start has left does not fall on the first runs
            begin()
            try:
                await swarm(LOADS[workload](ready, size))
            finally:
                end()

    SCRATCH.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=SCRATCH) as directory:
        _run(measure(Path(directory)))


def _run(measure: asyncio.coroutines.Coroutine[object, object, None]) -> None:
    """On uvloop, as the benchmark does, where there is one."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(measure)
    else:
        uvloop.run(measure)
