"""The command line of a contender: one workload in a fresh directory, its figures as one JSON line."""

import argparse
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import uvloop

from bench.workloads import WORKLOADS, Contender, Figures

Open = Callable[[Path], AbstractAsyncContextManager[Contender]]


def contend(open_contender: Open) -> None:
    """Run the workload named on the command line against the contender, and print what it showed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--directory", type=Path, required=True, help="where the contender keeps its data")
    wanted = parser.parse_args()

    async def measure() -> Figures:
        async with open_contender(wanted.directory.resolve()) as contender:
            return await WORKLOADS[wanted.workload].measure(contender, wanted.size)

    print(json.dumps(uvloop.run(measure())), flush=True)
