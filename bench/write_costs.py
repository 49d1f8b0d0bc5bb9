"""How long one commit holds the write lock of a SQLite file: what a transaction costs, and each change in it.

Batches of several sizes are committed through the store itself, one right after the other, each on a fresh file. What a
change adds is counted in processor time, which hardly depends on what else the machine does. What is left of the time
for which the lock is held, seen from outside (`write_lock.py`), is the sync.
"""

import asyncio
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bench.archive import life
from bench.busy import thread_seconds
from bench.write_lock import watching
from holdfast.adapters.machine import SystemClock
from holdfast.stores.sqlite.store import SqliteStore

SIZES = (1, 8, 32, 128)
CHANGES = 4_096  # of each size
CHANGES_QUICK = 512


class Transaction(NamedTuple):
    """Microseconds of one transaction, at the mean: how long it held the lock, and what was computed for it."""

    held_us: float
    cpu_us: float


async def measured(directory: Path, *, size: int, changes: int) -> Transaction:
    """Transactions of so many changes each."""
    with tempfile.TemporaryDirectory(dir=directory) as fresh:
        file = Path(fresh) / "holdfast.db"
        store = SqliteStore(file, clock=SystemClock())
        await store.open()
        try:
            lives = (change for number in itertools.count() for change in life(number, 10_000, store.now_ms()))
            batches = [list(itertools.islice(lives, size)) for _ in range(changes // size)]
            await store.commit(list(itertools.islice(lives, size)))
            async with watching(file) as share:
                await share()
                begin, before = time.perf_counter(), sum(thread_seconds(os.getpid()))
                for batch in batches:
                    await store.commit(batch)
                cpu, took = sum(thread_seconds(os.getpid())) - before, time.perf_counter() - begin
                return Transaction((await share() or 0.0) * took / len(batches) * 1e6, cpu / len(batches) * 1e6)
        finally:
            await store.close()


async def write_costs(directory: Path, *, quick: bool) -> dict[str, float]:
    """`sync_us`, what a transaction costs whatever is in it; `change_us`, what each change adds."""
    changes = CHANGES_QUICK if quick else CHANGES
    return fitted({size: await measured(directory, size=size, changes=changes) for size in SIZES})


def fitted(taken: Mapping[int, Transaction]) -> dict[str, float]:
    """The slope of processor time over the number of changes; and what a lone change holds the lock beyond it."""
    change_us = statistics.linear_regression(list(taken), [each.cpu_us for each in taken.values()]).slope
    return {"sync_us": max(0.0, taken[1].held_us - change_us), "change_us": change_us}


if __name__ == "__main__":
    print(asyncio.run(write_costs(Path.cwd(), quick=True)))
