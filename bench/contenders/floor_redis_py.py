"""The floor on Redis through the usual client: the asyncio pipeline of redis-py, with hiredis as its parser."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from redis.asyncio import Redis

from bench.contenders.floor_redis import KEEP, Keep, Pipeline, RedisFloor
from bench.contenders.redis_servers import Fsync, redis_alone
from bench.entry import contend


@asynccontextmanager
async def open_floor(directory: Path, *, fsync: Fsync = "always") -> AsyncGenerator[RedisFloor, None]:
    with redis_alone(directory, fsync) as server:
        async with Redis.from_url(server.url) as redis:
            sha = await redis.script_load(KEEP)

            async def send(batch: Sequence[Keep]) -> None:
                async with redis.pipeline(transaction=False) as pipeline:
                    for key, field, value in batch:
                        pipeline.evalsha(sha, 1, key, field, value)
                    await pipeline.execute()

            yield RedisFloor(Pipeline(send))


if __name__ == "__main__":
    contend(open_floor)
