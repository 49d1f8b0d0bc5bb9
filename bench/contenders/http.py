"""A keep-alive HTTP/1.1 client of the fewest instructions.

On two cores the client of a peer with a server takes its time from that server, so it is made as cheap as it
can be: the usual client libraries would cost the peer a good part of its rate.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Connection:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, host: str, port: int) -> "Connection":
        return cls(*await asyncio.open_connection(host, port))

    async def request(self, method: str, path: str, *, body: bytes = b"", key: str = "") -> tuple[int, bytes]:
        """The status and the body of the answer."""
        idempotency = f"idempotency-key: {key}\r\n" if key else ""
        typed = "content-type: application/json\r\n" if body else ""
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{idempotency}{typed}"
        self._writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        status = int(answer[9:12])
        if b"transfer-encoding: chunked" in answer:
            return status, await self._chunks()
        _, _, length = answer.partition(b"content-length:")
        return status, await self._reader.readexactly(int(length.split(b"\r\n", 1)[0]))

    def close(self) -> None:
        self._writer.close()

    async def _chunks(self) -> bytes:
        body = bytearray()
        while size := int(await self._reader.readline(), 16):
            body += (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readline()
        return bytes(body)


class Pool:
    """As many connections as requests are ever under way at once."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._idle: list[Connection] = []

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection, None]:
        connection = self._idle.pop() if self._idle else await Connection.open(*self._address)
        yield connection
        self._idle.append(connection)

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
