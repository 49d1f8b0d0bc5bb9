"""Two gateways on one store, each in a process of its own: one limits by API key and namespace, the other does not.

What the limits add to a request is the difference. Nothing is refused. As a program with `--gateway` it is one of them.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from bench.contenders.holdfast_pack import pack, url
from bench.contenders.http import Connection
from bench.entry import contend
from bench.processes import running
from bench.workloads import Wait
from holdfast import Holdfast, Rate
from holdfast.config import RateLimitSettings
from holdfast.server import serve

PATIENCE_S = 30.0
POLL_S = 0.02
PATH = "/v1/workflows"  # no store is asked for it
MUCH = Rate(1_000_000, per="1s")
LIMITS = {"plain": RateLimitSettings(), "limited": RateLimitSettings(api_key=MUCH, tenant=MUCH)}


class LimitedContender:
    """A request of each gateway."""

    def __init__(self, plain: Connection, limited: Connection) -> None:
        self._plain = plain
        self._limited = limited

    async def plain(self) -> None:
        await _ask(self._plain)

    async def limited(self) -> None:
        await _ask(self._limited)

    async def one(self, order: str) -> None:
        raise NotImplementedError

    async def many(self, order: str, effects: int) -> None:
        raise NotImplementedError

    async def start(self, order: str) -> Wait:
        raise NotImplementedError

    async def timer(self, order: str, due: float) -> None:
        raise NotImplementedError

    async def listener(self, order: str) -> Wait:
        raise NotImplementedError


async def _ask(connection: Connection) -> None:
    status, answer = await connection.request("GET", PATH)
    assert status == 200, (status, answer)


@asynccontextmanager
async def open_limited(directory: Path, store_url: str = "") -> AsyncGenerator[LimitedContender, None]:
    async with AsyncExitStack() as stack:
        connections: list[Connection] = []
        for kind in LIMITS:
            command = [sys.executable, "-m", "bench.contenders.holdfast_limited", "--gateway", kind]
            command += [str(directory), store_url or url(directory)]
            await stack.enter_async_context(running(command, log=directory / f"{kind}.log"))
            async with asyncio.timeout(PATIENCE_S):
                while not (directory / kind).exists():
                    await asyncio.sleep(POLL_S)
            address = urlsplit((directory / kind).read_text())
            connection = await Connection.open(address.hostname or "", address.port or 0)
            stack.callback(connection.close)
            connections.append(connection)
        yield LimitedContender(*connections)


async def gateway(kind: str, directory: Path, store_url: str) -> None:
    def tell(address: str) -> None:
        (directory / f"{kind}.new").write_text(address)
        (directory / f"{kind}.new").rename(directory / kind)

    async with Holdfast(store_url, packs=[pack], worker=False) as hf:
        await serve(hf, port=0, dashboard=False, rate_limits=LIMITS[kind], on_ready=tell)


if __name__ == "__main__":
    if sys.argv[1] == "--gateway":
        uvloop.run(gateway(sys.argv[2], Path(sys.argv[3]), sys.argv[4]))
    else:
        contend(open_limited)
