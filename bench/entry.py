"""The command line of a contender: one workload in a fresh directory, its figures as one JSON line."""

import argparse
import json
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import uvloop

from bench.workloads import WORKLOADS, Contender, Figures

Open = Callable[..., AbstractAsyncContextManager[Contender]]


def contend(open_contender: Open, *, in_processes: bool = False) -> None:
    """Run the workload named on the command line against the contender, and print what it showed.

    A contender `in_processes` is opened with as many worker processes as the workload is to be measured with.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--directory", type=Path, required=True, help="where the contender keeps its data")
    wanted = parser.parse_args()
    workload = WORKLOADS[wanted.workload]
    if workload.cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: workload.cores])
    options = {"workers": workload.workers} if in_processes else {}

    async def measure() -> Figures:
        async with open_contender(wanted.directory.resolve(), **options) as contender:
            return await workload.measure(contender, wanted.size)

    print(json.dumps(uvloop.run(measure())), flush=True)
