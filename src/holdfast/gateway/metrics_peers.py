"""Processes that share a port: whichever of them is asked for metrics says those of all.

A request for `/metrics` reaches any of them, and Prometheus would see each of them now and then. So each also listens
on a Unix socket, in a directory that only its user can enter, and says there what it has counted itself.

The supervisor binds these sockets, once, and the processes inherit them, as they do the port. So a process that is
started again has the same address; one that is away is missing from what is said.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast.gateway.listener import AcceptTurn, SharedListener
from holdfast.telemetry.metrics import Rendered, merged

SECONDS_MAX = 3.0  # a process that asks its store for this waits for it up to two seconds
LINE_MAX = 8192

Render = Callable[[str], Awaitable[Rendered]]


def bind_peers(count: int) -> list[socket.socket]:
    """The sockets of so many processes, in a new directory. Raises `OSError` where there can be none."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-"))
    sockets: list[socket.socket] = []
    try:
        for number in range(count):
            sockets.append(socket.socket(socket.AF_UNIX))
            sockets[-1].bind(str(directory / str(number)))
            sockets[-1].listen()
    except OSError:
        for each in sockets:
            each.close()
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return sockets


def remove_peers(address: str | Path) -> None:
    """Remove the directory in which a socket with this address is. The sockets of all processes are there."""
    shutil.rmtree(Path(address).parent, ignore_errors=True)


class MetricsPeers:
    """The processes that share our port, and we ourselves among them."""

    def __init__(self, ours: socket.socket, render: Render, *, seconds_max: float = SECONDS_MAX) -> None:
        self._socket = ours
        self.address = Path(ours.getsockname())
        self._render = render
        self._seconds_max = seconds_max
        self._listener: SharedListener | None = None

    def start(self) -> None:
        """Say to the others what is counted here, when they ask."""
        # No server of the loop's own: from Python 3.13 on that would remove the address when it is closed.
        self._listener = SharedListener(self._socket, self._protocol, turn=lambda: AcceptTurn(0.0, 1))

    def close(self) -> None:
        """Say no more. Those who ask wait for it no longer than `SECONDS_MAX`."""
        if self._listener is not None:
            self._listener.close()

    async def metrics(self, accept: str) -> Rendered:
        """Those of all processes that reply in time."""
        own = await self._render(accept)
        others = [path for path in sorted(self.address.parent.glob("*")) if path != self.address]
        replies = await asyncio.gather(*(self._ask(path, accept) for path in others))
        return Rendered(merged([own.body, *filter(None, replies)]), own.content_type)

    def _protocol(self) -> asyncio.Protocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(LINE_MAX), self._on_asked)

    async def _on_asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._seconds_max):
                accept = await reader.readline()
                writer.write((await self._render(accept.decode().rstrip("\n"))).body)
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass  # the one that asked is gone, or is none of us
        finally:
            writer.close()

    async def _ask(self, path: Path, accept: str) -> bytes:
        """What is counted in another process; nothing if it does not say it in time."""
        try:
            async with asyncio.timeout(self._seconds_max):
                reader, writer = await asyncio.open_unix_connection(str(path))
                try:
                    writer.write(accept.replace("\n", " ").encode() + b"\n")
                    return await reader.read()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return b""
