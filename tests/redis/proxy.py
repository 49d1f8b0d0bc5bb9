"""A TCP proxy that does to a connection what networks do: cut it, delay it, swallow it, lose one reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

CHUNK = 65536


class Proxy:
    """Stands before a server. All connections through it share one fate, which may be changed at any time."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self._target = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.heal()

    @property
    def connections(self) -> int:
        """How many stand now."""
        return len(self._tasks)

    def heal(self) -> None:
        """Pass everything on, from now on. What was swallowed stays so."""
        self._delay_s = 0.0
        self._passes_requests = self._passes_replies = True
        self._loses_next_reply = False

    def delay(self, seconds: float) -> None:
        """Replies come that much later."""
        self._delay_s = seconds

    def swallow_replies(self) -> None:
        """Requests arrive; their replies do not come back."""
        self._passes_replies = False

    def blackhole(self) -> None:
        """Nothing passes in either direction, and neither end is told."""
        self._passes_requests = self._passes_replies = False

    def lose_next_reply(self) -> None:
        """The next request arrives and gets its reply; then the connection is cut in the place of the reply."""
        self._loses_next_reply = True

    def cut(self) -> None:
        """End all connections at once."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        there: asyncio.StreamWriter | None = None
        try:
            back, there = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers |= {writer, there}
            await asyncio.gather(self._requests(reader, there), self._replies(back, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for end in (writer, there):
                if end is not None:
                    self._writers.discard(end)
                    end.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            if self._passes_requests:
                writer.write(data)
        writer.close()

    async def _replies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            if self._loses_next_reply:
                self._loses_next_reply = False
                self.cut()
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            if self._passes_replies:
                writer.write(data)
        writer.close()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def proxy_to(port: int) -> AsyncIterator[Proxy]:
    """A proxy on a free port (`Proxy.port`) before the server on `port` of this machine."""
    proxy = Proxy(port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.stop()
        await server.wait_closed()
