"""Holdfast behind its gateway: engine and HTTP in a process of their own, the cheapest client there is in this one.

As a program with `--gateway` it is that process, until SIGTERM. With `--echo` it is the floor of W8: the same server
and the same framework, with one route that returns the JSON it is sent.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bench.contenders.holdfast_pack import pack, url
from bench.contenders.http import Pool
from bench.entry import contend
from bench.processes import running
from bench.workloads import Wait
from holdfast import Holdfast
from holdfast.gateway.server import HttpServer
from holdfast.gateway.wait_limit import WaitLimit
from holdfast.server import serve

ADDRESS = "address"
PATIENCE_S = 30.0
POLL_S = 0.02
PATH = "/v1/workflows/bench.one/runs?wait=30s"


class HttpContender:
    """A keyed start over HTTP that waits for the result."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def one(self, order: str) -> None:
        body = msgspec.json.encode({"input": {"order": order}})
        async with self._pool.connection() as connection:
            status, answer = await connection.request("POST", PATH, body=body)
        assert status in {200, 201}, (status, answer)
        assert order.encode() in answer, answer

    async def many(self, order: str, effects: int) -> None:
        raise NotImplementedError

    async def start(self, order: str) -> Wait:
        raise NotImplementedError

    async def timer(self, order: str, due: float) -> None:
        raise NotImplementedError

    async def listener(self, order: str) -> Wait:
        raise NotImplementedError


@asynccontextmanager
async def open_http(directory: Path, mode: str = "--gateway") -> AsyncGenerator[HttpContender, None]:
    command = [sys.executable, "-m", "bench.contenders.holdfast_http", mode, str(directory)]
    async with running(command, log=directory / "gateway.log"):
        async with asyncio.timeout(PATIENCE_S):
            while not (directory / ADDRESS).exists():
                await asyncio.sleep(POLL_S)
        address = urlsplit((directory / ADDRESS).read_text())
        pool = Pool(address.hostname or "", address.port or 0)
        try:
            yield HttpContender(pool)
        finally:
            pool.close()


def _tell(directory: Path, address: str) -> None:
    (directory / "address.new").write_text(address)
    (directory / "address.new").rename(directory / ADDRESS)


async def gateway(directory: Path) -> None:
    async with Holdfast(url(directory), packs=[pack]) as hf:
        await serve(hf, port=0, dashboard=False, on_ready=lambda address: _tell(directory, address))


async def echo(directory: Path) -> None:
    async def answer(request: Request) -> Response:
        sent = msgspec.json.decode(await request.body())
        return Response(msgspec.json.encode(sent), media_type="application/json")

    app = Starlette(routes=[Route("/v1/workflows/{name}/runs", answer, methods=["POST"])])
    _tell(directory, await HttpServer(WaitLimit(1000)).start(app, "127.0.0.1", 0))
    await asyncio.Event().wait()


if __name__ == "__main__":
    if sys.argv[1] == "--gateway":
        uvloop.run(gateway(Path(sys.argv[2])))
    elif sys.argv[1] == "--echo":
        uvloop.run(echo(Path(sys.argv[2])))
    else:
        contend(open_http)
