"""The floor on Redis: what the server, its disk and a client allow when the scripts do nothing but keep what they get.

One round trip at a time; whatever is queued when it is back travels in the next one. There are as many scripts as
Holdfast runs for the same work, each as large on the wire as Holdfast's own, in as many dependent commits:

    a one-effect run     2 scripts, one after the other    admission | end
    a further effect     1 script                          record
    a duplicate start    1 script                          the admission is tried again
    a due timer          1 script                          end
    a signal             2 scripts, one after the other    record | end

Here they go through Holdfast's own client; `floor_redis_py` sends the same through redis-py.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.contenders.floor import SPIN_S
from bench.contenders.redis_servers import Fsync, redis_alone
from bench.entry import contend
from bench.workloads import Wait
from holdfast.adapters.machine import SystemClock
from holdfast.stores.redis.net import urls
from holdfast.stores.redis.net.client import LuaSource, RedisClient, ScriptCall

KEEP = "return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])"
# With key, field and framing, as many bytes as the scripts of a one-effect run, and of an effect on the way.
ADMISSION, RECORD, END = b"a" * 1_280, b"r" * 490, b"e" * 890

Keep = tuple[bytes, bytes, bytes]  # key, field, value
Send = Callable[[Sequence[Keep]], Awaitable[object]]


class Pipeline:
    """Sends what is queued, one batch after the other."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._queue: list[tuple[Keep, asyncio.Future[None]]] = []
        self._sending: asyncio.Task[None] | None = None

    def keep(self, order: str, field: str, value: bytes) -> asyncio.Future[None]:
        """Kept when the answer is done."""
        answer = self._loop.create_future()
        self._queue.append(((f"run:{order}".encode(), field.encode(), value), answer))
        if self._sending is None:
            self._sending = self._loop.create_task(self._drain())
        return answer

    async def _drain(self) -> None:
        while self._queue:
            batch, self._queue = self._queue, []
            await self._send([each for each, _ in batch])
            for _, answer in batch:
                answer.set_result(None)
        self._sending = None


class RedisFloor:
    """The verbs of a contender as bare scripts."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._keep = pipeline.keep

    async def one(self, order: str) -> None:
        await self.many(order, 1)

    async def many(self, order: str, effects: int) -> None:
        await self._keep(order, "admission", ADMISSION)
        for number in range(1, effects):
            await self._keep(order, f"record-{number}", RECORD)
        await self._keep(order, "end", END)

    async def start(self, order: str) -> Wait:
        await self._keep(order, "admission", ADMISSION)
        return lambda: self._keep(order, "end", END)

    async def timer(self, order: str, due: float) -> None:
        await self._keep(order, "admission", ADMISSION)
        # As on the floor of SQLite: a lone commit and no timer's lateness.
        await asyncio.sleep(due - time.time() - SPIN_S)
        while time.time() < due:
            pass
        await self._keep(order, "end", END)

    async def listener(self, order: str) -> Wait:
        await self._keep(order, "admission", ADMISSION)

        async def signal() -> None:
            await self._keep(order, "signal", RECORD)
            await self._keep(order, "end", END)

        return signal


@asynccontextmanager
async def open_floor(directory: Path, *, fsync: Fsync = "always") -> AsyncGenerator[RedisFloor, None]:
    with redis_alone(directory, fsync) as redis:
        client = RedisClient(urls.parse(redis.url), clock=SystemClock())
        script = LuaSource(KEEP)
        await client.open()
        try:
            yield RedisFloor(
                Pipeline(
                    lambda batch: client.run(
                        [ScriptCall(script, (key,), (field, value)) for key, field, value in batch], writes=True
                    )
                )
            )
        finally:
            await client.close()


if __name__ == "__main__":
    contend(open_floor)
