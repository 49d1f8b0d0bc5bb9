"""A real gateway on a free port: `serve` starts one around a Holdfast, in this process; `launch` one in a process.

async def test_x(serve):
    gateway = await serve(pack)                      # open, on a memory store, with a worker
    answer = await gateway.http.get("/v1/runs")      # an httpx2 client whose base is the gateway
    gateway.hf, gateway.house, gateway.url           # what is behind it

gateway = await serve(pack, keys=True)               # API keys are required
reader = await gateway.client(scope="read")          # an httpx2 client with a new key
gateway = await serve(pack, on=sqlite_home)          # on a SQLite file, with another gateway or process beside it
gateway = await launch("tests.gateway.packs", db)    # a process of its own, to be killed or stopped
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast import Holdfast, Pack
from holdfast.gateway import app
from holdfast.gateway.auth import ApiKeyAuth, OpenAuth
from holdfast.gateway.endpoints import AppContext, GatewaySettings
from holdfast.gateway.limits import Limits
from holdfast.gateway.server import HttpServer
from holdfast.kernel.apikeys import Scope
from tests.gateway import responses
from tests.gateway.works import Works
from tests.integration.conftest import HOMES, Home, MemoryHome, SqliteHome

PATIENCE_SECONDS = 30.0
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=HOMES)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    return HOMES[request.param](tmp_path)


@pytest.fixture
def memory_home(tmp_path: Path) -> MemoryHome:
    return MemoryHome(tmp_path)


@pytest.fixture
def sqlite_home(tmp_path: Path) -> SqliteHome:
    return SqliteHome(tmp_path)


@dataclass
class Gateway:
    """A gateway that listens, and a client of it."""

    hf: Holdfast
    context: AppContext
    server: HttpServer
    url: str
    http: httpx2.AsyncClient
    _stack: AsyncExitStack = field(repr=False)

    async def client(
        self, *, scope: Scope = "admin", namespace: str | None = None, token: str | None = None
    ) -> httpx2.AsyncClient:
        """Another client, which shows a key: a new one of this scope and namespace, or `token`."""
        if token is None:
            token, _ = await self.hf.api_keys.create(
                f"{scope} of a test", namespace=namespace or self.hf.namespace, scope=scope
            )
        return await self._stack.enter_async_context(client(self.url, headers={"Authorization": f"Bearer {token}"}))

    @property
    def address(self) -> tuple[str, int]:
        """For those who speak over a socket of their own."""
        url = httpx2.URL(self.url)
        assert url.port is not None
        return url.host, url.port


def client(url: str, **options: Any) -> httpx2.AsyncClient:
    # trust_env=False: a proxy of the machine has nothing to do with a server on loopback
    hooks = {"response": [responses.check]}  # no test sees an answer that its endpoint does not declare
    return httpx2.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS, trust_env=False, event_hooks=hooks, **options)


Serve = Callable[..., Awaitable[Gateway]]


@pytest.fixture
async def serve(memory_home: MemoryHome) -> AsyncGenerator[Serve]:
    async with AsyncExitStack() as stack:

        async def serve(
            *packs: Pack,
            on: Home | None = None,
            keys: bool = False,
            settings: GatewaySettings | None = None,
            limits: Limits | None = None,
            **options: Any,
        ) -> Gateway:
            hf = await stack.enter_async_context((on or memory_home).holdfast(*packs, **options))
            context = app.context(
                hf,
                auth=ApiKeyAuth(hf) if keys else OpenAuth(hf),
                settings=settings or GatewaySettings(require_keys=keys),
            )
            server = HttpServer(context.wait_limit, limits=limits)
            url = await server.start(app.create(context), "127.0.0.1", 0)
            stack.push_async_callback(server.stop)
            http = await stack.enter_async_context(client(url))
            return Gateway(hf, context, server, url, http, stack)

        yield serve


@dataclass
class Launched:
    """A gateway in a process of its own."""

    process: asyncio.subprocess.Process
    url: str
    http: httpx2.AsyncClient

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        await self.process.wait()

    async def ended(self) -> int:
        """The exit code, as soon as it has ended by itself."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.process.wait()


@pytest.fixture
def works() -> Works:
    return Works()


@pytest.fixture
async def gateway(serve: Serve, works: Works, sqlite_home: SqliteHome) -> Gateway:
    """One on a SQLite file, with workflows for most needs."""
    return await serve(works.pack, on=sqlite_home)


Launch = Callable[..., Awaitable[Launched]]


@pytest.fixture
async def launch() -> AsyncGenerator[Launch]:
    """`await launch(module, db, *options)`: see `tests.gateway.process` for the options."""
    async with AsyncExitStack() as stack:

        async def launch(module: str, db: Path, *options: str) -> Launched:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.gateway.process",
                module,
                f"sqlite:///{db}",
                *options,
                cwd=ROOT,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
            )
            stack.push_async_callback(_end, process)
            assert process.stdout is not None
            async with asyncio.timeout(PATIENCE_SECONDS):
                line = (await process.stdout.readline()).decode().strip()
            assert line.startswith("http://"), f"the gateway did not start: {line!r}"
            return Launched(process, line, await stack.enter_async_context(client(line)))

        yield launch


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
    process._transport.close()  # pyright: ignore[reportAttributeAccessIssue] - its pipes, before the loop is closed
