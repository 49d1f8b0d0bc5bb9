"""Holdfast on one SQLite file: the client in this process, and `holdfast worker --processes N` beside it."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path

from bench.busy import thread_seconds
from bench.contenders.holdfast import HoldfastContender
from bench.contenders.holdfast_pack import pack, path, url
from bench.entry import contend
from bench.processes import running
from bench.write_lock import Share, watching
from holdfast import Holdfast

PATIENCE_S = 60.0
POLL_S = 0.02


class ProcessesContender(HoldfastContender):
    """The same verbs; and it can say what each part uses. Threads beside the main one are those of the store."""

    def __init__(self, hf: Holdfast, workers: list[int], database: Path) -> None:
        super().__init__(hf)
        self.processes = {"client": os.getpid(), **{f"worker_{n}": pid for n, pid in enumerate(workers, 1)}}
        self._workers = workers
        self._database = database

    def cpu_seconds(self) -> dict[str, float]:
        client, of_store = thread_seconds(os.getpid())
        seconds = [thread_seconds(pid) for pid in self._workers]
        return {
            "client": client,
            "workers": sum(main for main, _ in seconds),
            "store": of_store + sum(others for _, others in seconds),
        }

    def write_lock(self) -> AbstractAsyncContextManager[Share | None]:
        return watching(self._database) if sys.platform == "linux" else nullcontext()


@asynccontextmanager
async def working(directory: Path, *options: str, workers: int) -> AsyncGenerator[list[int], None]:
    """So many worker processes, by the command of that name, on the store of these options. Yields their ids."""
    command = [sys.executable, "-m", "holdfast", "worker", "bench.contenders.holdfast_pack", "--json"]
    log = directory / "workers.log"
    async with running([*command, "--processes", str(workers), *options], log=log):
        async with asyncio.timeout(PATIENCE_S):
            while not (words := log.read_text()).startswith("{"):
                await asyncio.sleep(POLL_S)
        ready = json.loads(words.splitlines()[0])
        yield ready.get("processes", [ready["pid"]])


@asynccontextmanager
async def open_processes(directory: Path, *, workers: int = 1) -> AsyncGenerator[ProcessesContender, None]:
    async with (
        working(directory, "--url", url(directory), workers=workers) as pids,
        Holdfast(url(directory), packs=[pack], worker=False) as hf,
    ):
        yield ProcessesContender(hf, pids, path(directory))


if __name__ == "__main__":
    contend(open_processes, in_processes=True)
