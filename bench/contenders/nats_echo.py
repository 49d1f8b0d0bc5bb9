"""The floor of a wake-up: a bare request over NATS to another process, and its reply. Nothing is kept anywhere.

As a program with `--responder` it is that other process, until SIGTERM.
"""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
import uvloop
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.contenders.floor import SPIN_S
from bench.contenders.redis_servers import nats_alone
from bench.entry import contend
from bench.processes import running
from bench.workloads import Wait

SUBJECT = "wake"
PATIENCE_S = 30.0
POLL_S = 0.02


class NatsEcho:
    """Every verb is one request and its reply."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def one(self, order: str) -> None:
        await self._client.request(SUBJECT, order.encode(), timeout=PATIENCE_S)

    async def many(self, order: str, effects: int) -> None:
        for _ in range(effects):
            await self.one(order)

    async def start(self, order: str) -> Wait:
        return lambda: self.one(order)

    async def timer(self, order: str, due: float) -> None:
        # As on the other floors: no timer's lateness.
        await asyncio.sleep(due - time.time() - SPIN_S)
        while time.time() < due:
            pass
        await self.one(order)

    async def listener(self, order: str) -> Wait:
        return lambda: self.one(order)


@asynccontextmanager
async def open_echo(directory: Path) -> AsyncGenerator[NatsEcho, None]:
    with nats_alone(directory) as server:
        ready = directory / "ready"
        command = [sys.executable, "-m", "bench.contenders.nats_echo", "--responder", server.url, str(ready)]
        async with running(command, log=directory / "responder.log"):
            async with asyncio.timeout(PATIENCE_S):
                while not ready.exists():
                    await asyncio.sleep(POLL_S)
            async with await nats.connect(server.url) as client:
                yield NatsEcho(client)


async def respond(url: str, ready: Path) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)

    async def answer(request: Msg) -> None:
        await request.respond(request.data)

    async with await nats.connect(url) as client:
        await client.subscribe(SUBJECT, cb=answer)
        await client.flush()
        ready.touch()
        await stopped.wait()


if __name__ == "__main__":
    if sys.argv[1] == "--responder":
        url, ready = sys.argv[2:]
        uvloop.run(respond(url, Path(ready)))
    else:
        contend(open_echo)
