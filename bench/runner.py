"""Runs the measurements: each in a process of its own, in a fresh directory, the contenders taking turns.

for every workload: A B C  A B C  A B C        so that a slow minute of the machine falls on all of them
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

from bench.workloads import WORKLOADS, Figures

ROOT = Path(__file__).parents[1]
# On the project's disk, not in the system's temporary directory: that may be memory, where a commit is free.
SCRATCH = Path(__file__).parent / ".cache" / "scratch"
TIMEOUT_S = 900
# A workload that asks something of Holdfast alone is not given to the others.
ONLY_FOR = {
    "crowded": {"holdfast"},
    "depth": {"holdfast"},
    "lanes": {"holdfast", "holdfast_redis"},
    "next": {"holdfast", "holdfast_redis"},
    "startup": {"holdfast"},
    "limits": {"holdfast_limited", "holdfast_redis_limited", "holdfast_redis_limited_everysec"},
    "W7": {"holdfast"},
    "W8": {"holdfast", "holdfast_http", "echo"},
    "W9": {"holdfast_processes", "holdfast_redis_processes"},
}
# A contender that differs from another one in some workloads only takes part in those.
ONLY_IN = {
    "holdfast_processes": {"W9", "W9-2", "W9-4", "W9-core"},
    "holdfast_redis_processes": {"W9", "W9-2", "W9-4", "W9-core"},
    "dbos_tuned": {"W6", "W6-long"},
    "sketch": {"W1", "W2", "W3", "W4"},
    "holdfast_http": {"W8"},
    "holdfast_limited": {"limits"},
    "holdfast_redis_limited": {"limits"},
    "holdfast_redis_limited_everysec": {"limits"},
    "echo": {"W8"},
    "holdfast_redis_everysec": {"W1", "W2", "W3", "W4", "W5", "W6"},
    "holdfast_redis_workers": {"W1", "W2"},
    "floor_redis": {"W1", "W2", "W3", "W4", "W5", "W6"},
    "floor_redis_everysec": {"W1", "W2", "W3"},
    "floor_redis_py": {"W1", "W2", "W3"},
    "floor_redis_py_everysec": {"W1", "W2", "W3"},
    "nats_echo": {"W5", "W6"},
}
# What is measured in turns because one is compared with the other, or is the other half of it.
TWINS = {
    "crowded": ("empty", "crowded"),
    "lanes": ("unlaned", "lanes"),
    "W6": ("W6", "W6-long"),
    "W7": ("W7-small", "W7"),
    "W9": ("W9-core", "W9", "W9-2", "W9-4"),
}
# Those that search a file full of runs, and write nothing.
SEARCHES = {"W7", "W7-small"}
Tell = Callable[[str], None]


class ContenderFailed(Exception):
    """A contender's process ended badly, or not at all; the message is what it complained of."""


@dataclass(frozen=True)
class Job:
    """One measurement to take."""

    workload: str
    contender: str
    repetition: int
    size: int


@dataclass(frozen=True)
class Sample:
    """What one measurement showed, or why it failed."""

    job: Job
    figures: Figures
    error: str | None = None


def plan(workloads: Sequence[str], contenders: Sequence[str], *, repetitions: int, quick: bool) -> list[Job]:
    return [
        Job(twin, contender, repetition, size_of(twin, quick=quick))
        for workload in workloads
        for repetition in range(1, repetitions + 1)
        for twin in TWINS.get(workload, (workload,))
        for contender in contenders
        if contender in ONLY_FOR.get(workload, {contender}) and twin in ONLY_IN.get(contender, {twin})
    ]


def size_of(workload: str, *, quick: bool) -> int:
    return WORKLOADS[workload].size_quick if quick else WORKLOADS[workload].size


def take(jobs: Sequence[Job], *, quick: bool, tell: Tell) -> Iterator[Sample]:
    """The samples, in the order of the jobs, each as soon as it is there. `tell` hears what takes long before them."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=SCRATCH) as crowd, tempfile.TemporaryDirectory(dir=SCRATCH) as archives:
        for job in jobs:
            if job.workload in SEARCHES:
                yield _search(job, Path(archives), tell=tell)
                continue
            with tempfile.TemporaryDirectory(dir=SCRATCH) as fresh:
                if job.workload == "crowded":
                    _crowd(Path(crowd), Path(fresh), quick=quick)
                yield _sample(job, Path(fresh))


def _search(job: Job, archives: Path, *, tell: Tell) -> Sample:
    """Search the file of as many runs; it is made once, the first time."""
    directory = archives / str(job.size)
    if not directory.exists():
        directory.mkdir()
        command = [sys.executable, "-m", "bench.archive", "--runs", str(job.size), "--directory", str(directory)]
        with subprocess.Popen(command, cwd=ROOT, stdout=PIPE, text=True) as process:
            for line in process.stdout or ():
                tell(f"writing the file: {line.strip()}")
        if process.returncode:
            shutil.rmtree(directory)
            return Sample(job, {}, error=f"the file of {job.size:,} runs could not be written")
    return _sample(job, directory)


def _crowd(crowd: Path, fresh: Path, *, quick: bool) -> None:
    """Lay the file full of finished runs into the fresh directory; it is made once, the first time."""
    if not any(crowd.iterdir()):
        _run("holdfast", "fill", size_of("fill", quick=quick), crowd)
    for file in crowd.iterdir():
        with Path(shutil.copy(file, fresh)).open("rb+") as copied:
            # On the disk before the clock starts, or the first commits would pay for the copy.
            os.fsync(copied.fileno())


def _sample(job: Job, directory: Path) -> Sample:
    try:
        return Sample(job, _run(job.contender, job.workload, job.size, directory))
    except ContenderFailed as failed:
        return Sample(job, {}, error=str(failed))


def _run(contender: str, workload: str, size: int, directory: Path) -> Figures:
    command = [sys.executable, "-m", f"bench.contenders.{contender}", workload]
    command += ["--size", str(size), "--directory", str(directory)]
    with subprocess.Popen(command, cwd=ROOT, stdout=PIPE, stderr=PIPE, text=True) as process:
        try:
            said, complained = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # An interrupt, which it can catch, and not a kill: it may have a server of its own to take down.
            process.send_signal(signal.SIGINT)
            raise ContenderFailed(f"did not end within {TIMEOUT_S} s") from None
    if process.returncode:
        raise ContenderFailed(complained.strip())
    figures: Figures = json.loads(said.splitlines()[-1])
    return figures
