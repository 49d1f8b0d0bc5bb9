"""Restate as it is meant to run: its server, our handlers behind granian, and a client, each a process."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.contenders.http import Pool
from bench.contenders.restate_server import HOST, serving
from bench.entry import contend
from bench.workloads import Wait


class Restate:
    """The verbs of a contender through the ingress of the server, each call under an idempotency key."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def one(self, order: str) -> None:
        await self._call("POST", "/bench/one", key=order, body=json.dumps(order))

    async def many(self, order: str, effects: int) -> None:
        await self._call("POST", "/bench/many", key=order, body=json.dumps({"order": order, "effects": effects}))

    async def start(self, order: str) -> Wait:
        accepted = await self._call("POST", "/bench/one/send", key=order, body=json.dumps(order))
        invocation = json.loads(accepted)["invocationId"]
        return lambda: self._call("GET", f"/restate/invocation/{invocation}/attach")

    async def timer(self, order: str, due: float) -> None:
        await self._call("POST", "/bench/timer", key=order, body=json.dumps(due))

    async def listener(self, order: str) -> Wait:
        await self._call("POST", f"/listener/{order}/run/send", body=json.dumps(order))

        async def signal() -> None:
            await self._call("POST", f"/listener/{order}/signal", body=json.dumps(order))
            await self._call("GET", f"/restate/workflow/listener/{order}/attach")

        return signal

    async def _call(self, method: str, path: str, *, key: str = "", body: str = "") -> bytes:
        async with self._pool.connection() as connection:
            status, answer = await connection.request(method, path, body=body.encode(), key=key)
        if status not in (200, 202):
            message = f"{method} {path} returned {status}: {answer.decode()}"
            raise RuntimeError(message)
        return answer


@asynccontextmanager
async def open_restate(directory: Path, *, partitions: int | None = None) -> AsyncGenerator[Restate, None]:
    async with serving(directory, partitions=partitions) as ingress:
        pool = Pool(HOST, ingress)
        try:
            yield Restate(pool)
        finally:
            pool.close()


if __name__ == "__main__":
    contend(open_restate)
