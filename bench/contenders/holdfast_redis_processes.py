"""Holdfast on Redis and NATS: the client in this process, and `holdfast worker --processes N` beside it."""

import os
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path

from bench.busy import thread_seconds
from bench.contenders.holdfast_pack import pack
from bench.contenders.holdfast_processes import working
from bench.contenders.holdfast_redis import RedisContender
from bench.contenders.redis_servers import redis_and_nats
from bench.entry import contend
from holdfast import Holdfast


class RedisProcessesContender(RedisContender):
    """The same verbs; and it can say what each of its parts uses. The store is Redis, and NATS, its bus."""

    def __init__(self, hf: Holdfast, workers: list[int], servers: dict[str, int]) -> None:
        of_workers = {f"worker_{number}": pid for number, pid in enumerate(workers, 1)}
        super().__init__(hf, {"client": os.getpid(), **of_workers, **servers})
        self._parts = {"client": [os.getpid()], "workers": workers} | {name: [pid] for name, pid in servers.items()}

    def cpu_seconds(self) -> dict[str, float]:
        used = {part: sum(sum(thread_seconds(pid)) for pid in pids) for part, pids in self._parts.items()}
        return {"client": used["client"], "workers": used["workers"], "store": used["redis"], "bus": used["nats"]}

    def write_lock(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()


@asynccontextmanager
async def open_processes(directory: Path, *, workers: int = 1) -> AsyncGenerator[RedisProcessesContender, None]:
    with redis_and_nats(directory, "always") as servers:
        options = ("--url", servers.redis.url, "--bus", servers.nats.url)
        async with (
            working(directory, *options, workers=workers) as pids,
            Holdfast(servers.redis.url, bus=servers.nats.url, packs=[pack], worker=False) as hf,
        ):
            yield RedisProcessesContender(hf, pids, servers.processes)


if __name__ == "__main__":
    contend(open_processes, in_processes=True)
