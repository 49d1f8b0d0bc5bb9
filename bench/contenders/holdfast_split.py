"""Holdfast with its client in one process and its worker in another: the shape of a peer with a server.

As a program with `--worker` it is that worker, until SIGTERM.
"""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop

from bench.contenders.holdfast import HoldfastContender
from bench.contenders.holdfast_pack import pack, url
from bench.entry import contend
from bench.processes import running
from holdfast import Holdfast

READY = "ready"
PATIENCE_S = 30.0
POLL_S = 0.02


@asynccontextmanager
async def open_split(directory: Path) -> AsyncGenerator[HoldfastContender, None]:
    command = [sys.executable, "-m", "bench.contenders.holdfast_split", "--worker", str(directory)]
    async with running(command, log=directory / "worker.log"):
        async with asyncio.timeout(PATIENCE_S):
            while not (directory / READY).exists():
                await asyncio.sleep(POLL_S)
        async with Holdfast(url(directory), packs=[pack], worker=False) as hf:
            yield HoldfastContender(hf)


async def work(directory: Path) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with Holdfast(url(directory), packs=[pack]):
        (directory / READY).touch()
        await stopped.wait()


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        uvloop.run(work(Path(sys.argv[2])))
    else:
        contend(open_split)
