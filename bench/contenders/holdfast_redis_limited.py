"""Two gateways on one Redis that syncs before it replies: one limits, the other does not."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.contenders.holdfast_limited import LimitedContender, open_limited
from bench.contenders.redis_servers import Fsync, redis_alone
from bench.entry import contend


@asynccontextmanager
async def open_redis_limited(directory: Path, *, fsync: Fsync = "always") -> AsyncGenerator[LimitedContender, None]:
    with redis_alone(directory, fsync) as redis:
        async with open_limited(directory, redis.url) as contender:
            yield contender


if __name__ == "__main__":
    contend(open_redis_limited)
