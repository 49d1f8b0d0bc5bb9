"""Holdfast on Redis and NATS with its client in one process and its workers in others: how replicas run.

As a program with `--worker` it is one of those workers, until SIGTERM.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import uvloop

from bench.contenders.holdfast_pack import pack
from bench.contenders.holdfast_redis import RedisContender
from bench.contenders.redis_servers import Fsync, redis_and_nats
from bench.entry import contend
from bench.processes import running
from holdfast import Holdfast

PATIENCE_S = 30.0
POLL_S = 0.02


@asynccontextmanager
async def open_split(
    directory: Path, *, workers: int = 1, fsync: Fsync = "always"
) -> AsyncGenerator[RedisContender, None]:
    async with AsyncExitStack() as stack:
        servers = stack.enter_context(redis_and_nats(directory, fsync))
        processes = {"client": os.getpid(), **servers.processes}
        ready = [directory / f"ready-{number}" for number in range(1, workers + 1)]
        for number, file in enumerate(ready, 1):
            command = [sys.executable, "-m", "bench.contenders.holdfast_redis_split", "--worker"]
            command += [servers.redis.url, servers.nats.url, str(file)]
            worker = await stack.enter_async_context(running(command, log=directory / f"worker-{number}.log"))
            processes[f"worker_{number}"] = worker.pid
        async with asyncio.timeout(PATIENCE_S):
            while not all(file.exists() for file in ready):
                await asyncio.sleep(POLL_S)
        client = Holdfast(servers.redis.url, bus=servers.nats.url, packs=[pack], worker=False)
        yield RedisContender(await stack.enter_async_context(client), processes)


async def work(redis_url: str, nats_url: str, ready: Path) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with Holdfast(redis_url, bus=nats_url, packs=[pack]):
        ready.touch()
        await stopped.wait()


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        redis_url, nats_url, ready = sys.argv[2:]
        uvloop.run(work(redis_url, nats_url, Path(ready)))
    else:
        contend(open_split)
