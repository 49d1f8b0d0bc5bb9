"""The ledger: a process outside the engine that writes down every call of an effect before it replies.

    python -m holdfast.lab.gate.ledger FILE PORT

One connection, one JSON line there, one line back. A line is in the file, and flushed to the disk, before its caller
hears of it; callers that come together share a flush. The ledger accepts repeated calls: counting them is its purpose.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast.adapters.machine import SystemClock
from holdfast.errors import TransientError
from holdfast.kernel.times import Millis
from holdfast.lab.gate.evidence import EffectCall

ADDRESS = "HOLDFAST_GATE_LEDGER"  # where the workers find it: a port of this machine
HOST = "127.0.0.1"
READY = "ready"
ANSWER_SECONDS = 20.0
_clock = SystemClock()


_decode = msgspec.json.Decoder(EffectCall).decode


async def post(*, key: str, run: str, step: str, order: str, attempt: int, hold_ms: Millis) -> None:
    """Tell the ledger of a call, and wait until it has written that down."""
    line = EffectCall(key, run, step, order, attempt, os.getpid(), hold_ms=hold_ms)
    async with asyncio.timeout(ANSWER_SECONDS + hold_ms / 1000):
        reader, writer = await asyncio.open_connection(HOST, int(os.environ[ADDRESS]))
        try:
            writer.write(msgspec.json.encode(line) + b"\n")
            if not await reader.readline():
                raise TransientError("the ledger has hung up")
        finally:
            writer.close()


class Reader:
    """Reads a ledger that is being written, each line once."""

    def __init__(self, path: Path) -> None:
        self.calls: list[EffectCall] = []
        self._path = path
        self._read_to = 0

    def look(self) -> list[EffectCall]:
        """All calls so far, in the order in which they were written down."""
        with self._path.open("rb") as file:
            file.seek(self._read_to)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_to += len(whole)
        self.calls += map(_decode, whole.splitlines())
        return self.calls


class LedgerFile:
    """An append-only file with one flush for all who wait."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._lines: list[bytes] = []
        self._flushed: asyncio.Future[None] | None = None
        self._flushing: asyncio.Task[None] | None = None

    async def write(self, line: EffectCall) -> None:
        """Returns when the line is on the disk."""
        self._lines.append(msgspec.json.encode(replace(line, at_ms=_clock.wall_ms())) + b"\n")
        if self._flushed is None:
            self._flushed = asyncio.get_running_loop().create_future()
        mine = self._flushed
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())
        await mine

    async def _flush(self) -> None:
        while self._lines:
            lines, self._lines = self._lines, []
            told, self._flushed = self._flushed, None
            await asyncio.to_thread(self._append, b"".join(lines))
            assert told is not None
            told.set_result(None)

    def _append(self, data: bytes) -> None:
        assert os.write(self._file, data) == len(data)
        os.fdatasync(self._file)


async def serve(path: Path, port: int) -> None:
    """Serve forever."""
    ledger = LedgerFile(path)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = _decode(await reader.readline())
            await ledger.write(line)
            await _clock.pause(line.hold_ms / 1000)
            writer.write(b"ok\n")
            await writer.drain()
        except (msgspec.MsgspecError, ConnectionError):  # the caller has died in the middle of its line, or is gone
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, HOST, port, backlog=1024)
    print(READY, flush=True)  # noqa: T201 - the process that started it waits for this word
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
