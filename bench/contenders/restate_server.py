"""A Restate server and the process that serves our handlers to it, on free ports, for one measurement.

The server's binary comes from its npm package, fetched once into `bench/.cache`. Its settings are its
defaults (one node, its log fsynced before it replies) but for telemetry and logs, which are off.
"""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench.contenders.http import Connection
from bench.processes import running

VERSION = "1.7.12"
CACHE = Path(__file__).parents[1] / ".cache" / f"restate-server-{VERSION}"
HOST = "127.0.0.1"
PATIENCE_S = 60.0


def server_binary() -> Path:
    """The server, fetched if it is not here yet."""
    pattern = "node_modules/@restatedev/restate-server-*/bin/restate-server"
    if not any(CACHE.glob(pattern)):
        CACHE.mkdir(parents=True, exist_ok=True)
        package = f"@restatedev/restate-server@{VERSION}"
        # Without its install scripts: the package's own only report the installation to its makers.
        command = [
            "npm",
            "install",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--prefix",
            str(CACHE),
            package,
        ]
        subprocess.run(command, check=True, stdout=sys.stderr)
    return next(CACHE.glob(pattern))


@asynccontextmanager
async def serving(directory: Path, *, partitions: int | None = None) -> AsyncGenerator[int, None]:
    """A server that knows our service; the value is its ingress port. `partitions`: its default if None."""
    service, ingress, admin, node = _free_ports(4)
    config = directory / "restate.toml"
    config.write_text(
        f"""
disable-telemetry = true
log-filter = "error"
bind-address = "{HOST}:{node}"
{f"default-num-partitions = {partitions}" if partitions else ""}
[ingress]
bind-address = "{HOST}:{ingress}"
[admin]
bind-address = "{HOST}:{admin}"
"""
    )
    server = [
        str(server_binary()),
        "--no-logo",
        "--config-file",
        str(config),
        "--base-dir",
        str(directory / "data"),
    ]
    workers = [sys.executable, "-m", "granian", "bench.contenders.restate_service:app", "--workers", "1"]
    workers += ["--interface", "asgi", "--http", "2", "--no-ws", "--loop", "uvloop", "--log-level", "error"]
    workers += ["--host", HOST, "--port", str(service), "--workers-kill-timeout", "1"]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running(workers, log=directory / "granian.log"))
        await stack.enter_async_context(running(server, log=directory / "restate.log"))
        await _register(admin, f"http://{HOST}:{service}")
        yield ingress


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


async def _register(admin: int, service_url: str) -> None:
    """Tell the server where our handlers are, as soon as both are up."""
    wanted = json.dumps({"uri": service_url}).encode()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                connection = await Connection.open(HOST, admin)
                status, _ = await connection.request("POST", "/deployments", body=wanted)
                connection.close()
            except (OSError, asyncio.IncompleteReadError):
                status = 0
            if status in (200, 201):
                return
            await asyncio.sleep(0.1)
