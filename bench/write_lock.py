"""For which share of the time the write lock of a SQLite file is held, seen from outside.

    python -m bench.write_lock FILE      for each line on its standard input: how often it looked, and found it held

In WAL mode a writer locks one byte of the file's `-shm`. Looking at that lock costs the writers nothing and takes no
part in what they do. It must be looked at from a process that does not have the file open: a process that closes any
descriptor of a file loses its own locks on it.
"""

import asyncio
import fcntl
import os
import select
import struct
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

EVERY_S = 0.0005
WRITE_LOCK = 120  # SQLite's wal.c: behind the header of the index, the first of its locks
FLOCK = "hhqqi"  # type, whence, start, length, pid
Share = Callable[[], Awaitable["float | None"]]


@asynccontextmanager
async def watching(file: Path) -> AsyncGenerator[Share, None]:
    """Yields a function that returns the share since it was last called; None if it has not looked since."""
    command = [sys.executable, "-m", "bench.write_lock", str(file)]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    before = (0, 0)

    async def share() -> float | None:
        nonlocal before
        looks, held = await _counts(process)
        since = looks - before[0], held - before[1]
        before = looks, held
        return since[1] / since[0] if since[0] else None

    try:
        yield share
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


async def _counts(process: Process) -> tuple[int, int]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    looks, held = (await process.stdout.readline()).split()
    return int(looks), int(held)


def is_held(shared_memory: int) -> bool:
    """Whether another process holds the lock now."""
    asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, WRITE_LOCK, 1, 0)
    found = struct.unpack(FLOCK, fcntl.fcntl(shared_memory, fcntl.F_GETLK, asked))
    return found[0] != fcntl.F_UNLCK


def main(file: Path) -> None:
    looks = held = 0
    with Path(f"{file}-shm").open("rb+") as shared_memory:
        while True:
            if select.select([sys.stdin], [], [], EVERY_S)[0]:
                if not sys.stdin.readline():
                    return
                print(looks, held, flush=True)
            looks += 1
            held += is_held(shared_memory.fileno())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
