"""A whole cluster on this machine: Redis, NATS, and replicas of every role, each a process on a port of its own.

    store     redis-1 … redis-9, sentinel-1 …
    bus       nats-1 …
    replicas  scheduler-1 …, worker-1 …, gateway-1 …

Any part may be killed, paused and started again by its name; nothing is started again by itself. A local cluster is for
playing and for tests: its data lies in a directory that is not meant to be kept.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from msgspec import Struct

from holdfast.errors import TransientError, UsageError
from holdfast.lab.cluster.members import ClusterMember, MemberRole, MemberServer
from holdfast.lab.cluster.processes import wait_until
from holdfast.lab.cluster.replicas import ReplicaProcess, Role
from holdfast.lab.cluster.servers import (
    NatsCluster,
    NatsServer,
    RedisCluster,
    RedisServer,
    SentinelGroup,
    start_nats,
    start_nats_cluster,
    start_redis,
    start_redis_cluster,
    start_sentinel,
)
from holdfast.lab.cluster.state_file import ClusterState

HEALTHY_SECONDS = 60.0
REDIS_REPLICAS = 2  # of each primary: when one has taken its place, the other confirms what the new one writes
GRACE_SECONDS = 20.0  # a replica's own is shorter: one that needs more than this hangs


class Plan(Struct, frozen=True, kw_only=True):
    """What there is to be."""

    redis: Literal["single", "cluster", "sentinel"] = "single"
    nats: Literal[0, 1, 3] = 1
    gateways: int = 2
    workers: int = 2
    schedulers: int = 2
    packs: tuple[str, ...] = ()
    everywhere: bool = False  # whether schedulers load the packs, too, which they do not need
    appendfsync: str = "always"
    environment: Mapping[str, str] = {}  # for the replicas


class LocalCluster:
    """The parts of one plan, from `up` to `down`."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        self.directory = directory.absolute()
        self.plan = plan
        self.members: dict[str, ClusterMember] = {}
        self.api_key: str | None = None  # what clients show, where the gateways require one
        self._redis: RedisServer | RedisCluster | SentinelGroup | None = None
        self._nats: NatsServer | NatsCluster | None = None

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.down()

    def up(self) -> None:
        """Start the servers, then all replicas at once; return when all are ready. Tears down what it began if not."""
        try:
            self._start_redis()
            self._start_nats()
            self._start_replicas()
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """End the replicas in order, then the servers by force: they would wait for each other."""
        replicas = [
            member.server.process for member in self.members.values() if isinstance(member.server, ReplicaProcess)
        ]
        for process in replicas:
            process.terminate()
        for process in replicas:
            process.end(GRACE_SECONDS)
        for member in self.members.values():
            member.server.process.kill()

    @property
    def store_url(self) -> str:
        assert self._redis is not None, "the cluster is not up"
        return self._redis.url

    @property
    def bus_url(self) -> str | None:
        return None if self._nats is None else self._nats.url

    @property
    def gateway_urls(self) -> tuple[str, ...]:
        return tuple(member.url for member in self.members.values() if member.role == "gateway")

    def kill(self, name: str) -> None:
        """SIGKILL: it is gone when this returns."""
        self._member(name).server.process.kill()

    def stop_signal(self, name: str) -> None:
        """SIGSTOP: it is there and does nothing."""
        self._member(name).server.process.stop_signal()

    def cont(self, name: str) -> None:
        """SIGCONT: it goes on."""
        self._member(name).server.process.cont()

    def signal(self, name: str, number: int) -> None:
        """Any signal."""
        self._member(name).server.process.signal(number)

    def terminate(self, name: str) -> None:
        """SIGTERM: it ends in order, which is not waited for."""
        self._member(name).server.process.terminate()

    def end(self, name: str) -> None:
        """SIGTERM, and wait until it has ended; by force if it hangs."""
        self._member(name).server.process.stop(GRACE_SECONDS)

    def start(self, name: str) -> None:
        """Start a part that has ended, on its port and its data; return when it is ready."""
        member = self._member(name)
        if member.state == "dead":
            member.server.start()

    def primary(self, slot: int = 0) -> str:
        """The name of the Redis server that is the primary now, in a Cluster that of this slot."""
        match self._redis:
            case RedisCluster() as cluster:
                return cluster.primary_of(slot).name
            case SentinelGroup() as group:
                return group.primary.name
            case RedisServer() as server:
                return server.name
            case None:
                raise TransientError("the cluster is not up")

    def written(self, name: str) -> int:
        """How much a Redis server has written so far."""
        return self._redis_server(name).written()

    def forget(self, name: str, since: int) -> None:
        """A Redis server dies, and has lost what it wrote since then when it is started again."""
        self._redis_server(name).forget(since)

    def followers(self) -> tuple[str, ...]:
        """The names of the Redis servers that follow a primary now."""
        redis = [member.server for member in self.members.values() if isinstance(member.server, RedisServer)]
        roles = {server.name: server.info("replication").get("role") for server in redis}
        return tuple(name for name, role in roles.items() if role == "slave")

    def wait_until_healthy(self, seconds: float = HEALTHY_SECONDS) -> None:
        """Until Redis is whole and replicated, NATS has a leader, and every running replica calls itself ready."""
        if isinstance(self._redis, RedisCluster | SentinelGroup):
            self._redis.wait_until_healthy(seconds)
        match self._nats:
            case NatsCluster() as cluster:
                cluster.wait_until_healthy(seconds)
            case NatsServer() as server:
                wait_until(server.is_healthy, seconds=seconds, what=lambda: f"{server.name} is not healthy")
            case None:
                pass
        for member in self.members.values():
            if isinstance(member.server, ReplicaProcess) and member.state == "running":
                member.server.wait_until_ready(seconds)

    def state(self) -> ClusterState:
        """All there is to know about it now."""
        return ClusterState(
            pid=os.getpid(),
            directory=str(self.directory),
            store=self.store_url,
            bus=self.bus_url,
            gateways=self.gateway_urls,
            parts=tuple(member.status() for member in self.members.values()),
        )

    def _member(self, name: str) -> ClusterMember:
        if name not in self.members:
            raise UsageError(f"there is no part {name!r}", hint=f"The parts are: {', '.join(self.members) or 'none'}.")
        return self.members[name]

    def _redis_server(self, name: str) -> RedisServer:
        server = self._member(name).server
        if not isinstance(server, RedisServer):
            raise UsageError(f"{name} is no Redis server")
        return server

    def _add(self, role: MemberRole, *servers: MemberServer) -> None:
        self.members |= {server.name: ClusterMember(role, server) for server in servers}

    def _start_redis(self) -> None:
        directory, appendfsync = self.directory / "redis", self.plan.appendfsync
        match self.plan.redis:
            case "single":
                self._redis = start_redis(directory, appendfsync=appendfsync, name="redis-1")
                self._add("redis", self._redis)
            case "cluster":
                self._redis = start_redis_cluster(directory, replicas=REDIS_REPLICAS, appendfsync=appendfsync)
                self._add("redis", *self._redis.nodes)
            case "sentinel":
                self._redis = start_sentinel(directory, replicas=REDIS_REPLICAS, appendfsync=appendfsync)
                self._add("redis", *self._redis.servers)
                self._add("sentinel", *self._redis.sentinels)

    def _start_nats(self) -> None:
        match self.plan.nats:
            case 0:
                pass
            case 1:
                self._nats = start_nats(self.directory / "nats", name="nats-1")
                self._add("nats", self._nats)
            case 3:
                self._nats = start_nats_cluster(self.directory / "nats")
                self._add("nats", *self._nats.nodes)

    def _start_replicas(self) -> None:
        replicas = [
            *self._replicas("scheduler", self.plan.schedulers),
            *self._replicas("worker", self.plan.workers),
            *self._replicas("gateway", self.plan.gateways),
        ]
        for replica in replicas:
            replica.launch()
        for replica in replicas:
            replica.settle()

    @contextmanager
    def further_gateways(self, count: int, environment: Mapping[str, str]) -> Generator[tuple[str, ...]]:
        """The addresses of so many gateways more, with settings of their own. They are no members, and end with it."""
        settings = {**self._settings(), **environment}
        names = [f"further-gateway-{number}" for number in range(1, count + 1)]
        gateways = [
            ReplicaProcess(name, "gateway", self.directory / name, packs=self.plan.packs, environment=settings)
            for name in names
        ]
        try:
            for gateway in gateways:
                gateway.launch()
            for gateway in gateways:
                gateway.settle()
            yield tuple(gateway.url for gateway in gateways)
        finally:
            for gateway in gateways:
                gateway.process.kill()

    def _settings(self) -> dict[str, str]:
        """What replicas are told by their environment."""
        bus = {} if self.bus_url is None else {"HOLDFAST_BUS": self.bus_url}
        return {"HOLDFAST_LOG": "json", "HOLDFAST_URL": self.store_url, **bus, **self.plan.environment}

    def _replicas(self, role: Role, count: int) -> list[ReplicaProcess]:
        environment = self._settings()
        packs = () if role == "scheduler" and not self.plan.everywhere else self.plan.packs
        replicas = [
            ReplicaProcess(name, role, self.directory / name, packs=packs, environment=environment)
            for name in (f"{role}-{number}" for number in range(1, count + 1))
        ]
        self._add(role, *replicas)
        return replicas
