"""Holdfast on one Redis that syncs before it replies, NATS for the wake-ups; client and worker in one process."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.contenders.holdfast import HoldfastContender
from bench.contenders.holdfast_pack import pack
from bench.contenders.redis_servers import Fsync, redis_and_nats
from bench.entry import contend
from holdfast import Holdfast


class RedisContender(HoldfastContender):
    """The same verbs; and it can say which processes it consists of."""

    def __init__(self, hf: Holdfast, processes: dict[str, int]) -> None:
        super().__init__(hf)
        self.processes = processes


@asynccontextmanager
async def open_redis(directory: Path, *, fsync: Fsync = "always") -> AsyncGenerator[RedisContender, None]:
    with redis_and_nats(directory, fsync) as servers:
        async with Holdfast(servers.redis.url, bus=servers.nats.url, packs=[pack]) as hf:
            yield RedisContender(hf, {"client": os.getpid(), **servers.processes})


if __name__ == "__main__":
    contend(open_redis)
