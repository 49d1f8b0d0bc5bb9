"""Who was busy while something was measured: cores used by each process, what the machine waited for, what was idle.

A rate that does not grow with another worker has reached some limit; this shows which. It is read from Linux's `/proc`,
and there is nothing to see on a system without it.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path

PROC = Path("/proc")
CORES = "_cores"  # of a process: 1.0 is one core, all the time
WAITED = "_waited"  # shares of the time in which a process could have gone on but for this
IDLE = "_idle"  # the share of all cores that had nothing to do
HELD = "_held"  # the share of the time in which a lock was held that only one process can have
FULL = 0.85
_PRESSURES = {"cpu": "core", "io": "disk"}
_UTIME, _STIME = 11, 12  # among the fields behind the name, which may hold spaces
_IDLE, _IOWAIT = 3, 4  # of a core, in /proc/stat


class Watch:
    """Counts from when it is made."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        self._processes = processes
        self._begin = time.perf_counter()
        self._cores, self._waited = self._look()
        self._idle = _idle_seconds()

    def figures(self) -> dict[str, float]:
        """What each process used, and what was waited for, as shares of the time since the beginning."""
        took = time.perf_counter() - self._begin
        cores, waited = self._look()
        return {
            **{f"{name}{CORES}": (cores[name] - self._cores[name]) / took for name in cores},
            **{f"{name}{WAITED}": (waited[name] - self._waited[name]) / took for name in waited},
            f"cores{IDLE}": (_idle_seconds() - self._idle) / took / usable_cores(),
        }

    def _look(self) -> tuple[dict[str, float], dict[str, float]]:
        if not PROC.exists():
            return {}, {}
        cores = {name: _cpu_seconds(pid) for name, pid in self._processes.items()}
        pressures = {_PRESSURES[file.name]: file for file in PROC.glob("pressure/*") if file.name in _PRESSURES}
        return cores, {name: _stalled_seconds(file.read_text()) for name, file in pressures.items()}


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_seconds(pid: int) -> float:
    """Of all its threads, in its own code and in the system's."""
    fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_STIME])) / os.sysconf("SC_CLK_TCK")


def thread_seconds(pid: int) -> tuple[float, float]:
    """What a process has used of the cores: its main thread, and all of its other threads."""
    main = others = 0.0
    for thread in (PROC / str(pid) / "task").glob("*"):
        try:
            seconds = int((thread / "schedstat").read_text().split()[0]) / 1e9
        except OSError:
            continue  # it has ended
        if thread.name == str(pid):
            main = seconds
        else:
            others += seconds
    return main, others


def _idle_seconds() -> float:
    """Of the cores that this process may use, since the machine has started."""
    if not PROC.exists():
        return 0.0
    rows = {line.split()[0]: line.split()[1:] for line in (PROC / "stat").read_text().splitlines()}
    ours = (rows[f"cpu{core}"] for core in os.sched_getaffinity(0))
    return sum(int(row[_IDLE]) + int(row[_IOWAIT]) for row in ours) / os.sysconf("SC_CLK_TCK")


def _stalled_seconds(pressure: str) -> float:
    some = pressure.splitlines()[0]
    return int(some.rpartition("total=")[2]) / 1e6


def is_share(figure: str) -> bool:
    return figure.endswith((CORES, WAITED, IDLE, HELD))


def is_wait(figure: str) -> bool:
    return not figure.endswith(CORES)


def all_cores(shares: Mapping[str, float]) -> float:
    return sum(share for figure, share in shares.items() if figure.endswith(CORES))


def limit(shares: Mapping[str, float]) -> str:
    """What a rate could not go beyond; nothing if all processes waited for each other's replies."""
    if all_cores(shares) >= FULL * usable_cores():
        return "all cores"
    full = [figure.removesuffix(CORES) for figure, share in shares.items() if share >= FULL and figure.endswith(CORES)]
    full += [figure.removesuffix(HELD) for figure, share in shares.items() if share >= FULL and figure.endswith(HELD)]
    if shares.get(f"disk{WAITED}", 0.0) >= FULL:
        full.append("disk")
    return ", ".join(full).replace("_", " ")
