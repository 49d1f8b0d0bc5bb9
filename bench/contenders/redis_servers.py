"""A Redis and a NATS of one measurement's own, on free ports, with their data in its directory.

Redis keeps every write in its append-only file: synced before it replies (`always`), or once a second (`everysec`),
which may lose that second with the machine.
"""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast.lab.cluster.servers import NatsServer, RedisServer, start_nats, start_redis

Fsync = Literal["always", "everysec"]


@dataclass(frozen=True)
class Servers:
    """What Holdfast needs beside itself to run on many machines."""

    redis: RedisServer
    nats: NatsServer

    @property
    def processes(self) -> dict[str, int]:
        return {"redis": self.redis.pid, "nats": self.nats.pid}


@contextmanager
def redis_alone(directory: Path, fsync: Fsync) -> Generator[RedisServer, None, None]:
    redis = start_redis(directory / "redis", appendfsync=fsync)
    try:
        yield redis
    finally:
        redis.stop()


@contextmanager
def nats_alone(directory: Path) -> Generator[NatsServer, None, None]:
    # Wake-ups need no JetStream.
    nats = start_nats(directory / "nats", jetstream=False)
    try:
        yield nats
    finally:
        nats.stop()


@contextmanager
def redis_and_nats(directory: Path, fsync: Fsync) -> Generator[Servers, None, None]:
    with ExitStack() as stack:
        yield Servers(stack.enter_context(redis_alone(directory, fsync)), stack.enter_context(nats_alone(directory)))
