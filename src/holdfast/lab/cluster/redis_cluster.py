"""A Redis Cluster on this machine, formed by a few commands of our own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import TransientError
from holdfast.kernel.times import Millis
from holdfast.lab.cluster.local_server import START_SECONDS
from holdfast.lab.cluster.ports import HOST
from holdfast.lab.cluster.processes import wait_until
from holdfast.lab.cluster.redis import DURABLE, HEALTHY_SECONDS, RedisServer, Settings, is_in_step, start_server
from holdfast.lab.cluster.redis_commands import RedisCommandError, Reply

SLOTS = 16_384
NODE_TIMEOUT_MS = Millis(2_000)


class RedisCluster:
    """Primaries and their replicas. Who is what may change: ask, do not remember."""

    def __init__(self, nodes: Sequence[RedisServer]) -> None:
        self.nodes = tuple(nodes)

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(node.address for node in self.nodes)

    def primary_of(self, slot: int) -> RedisServer:
        """Who serves a slot, as the nodes that are running see it."""
        for node in self._running():
            for owned in _ranges(node):
                if owned.first <= slot <= owned.last:
                    return self._on_port(owned.port)
        raise TransientError(f"no node knows a primary of slot {slot}")

    def primaries(self) -> tuple[RedisServer, ...]:
        """The nodes that call themselves primaries now."""
        return tuple(node for node in self.nodes if node.info("replication").get("role") == "master")

    def replicas_of(self, primary: RedisServer) -> tuple[RedisServer, ...]:
        """The nodes that follow this one now."""
        followed = str(primary.port)
        return tuple(node for node in self.nodes if node.info("replication").get("master_port") == followed)

    def kill(self, node: RedisServer) -> None:
        node.kill()

    def restart(self, node: RedisServer) -> None:
        node.restart()

    def wait_until_healthy(self, seconds: float = HEALTHY_SECONDS) -> None:
        """Until all running nodes agree who serves what, each of these is running, and replicas have their data."""
        wait_until(self._is_healthy, seconds=seconds, what=self._failure)

    def stop(self) -> None:
        """By force: each would wait for its replicas, and what they hold is not needed any more."""
        for node in self.nodes:
            node.kill()

    def _running(self) -> list[RedisServer]:
        return [node for node in self.nodes if node.state == "running"]

    def _is_healthy(self) -> bool:
        running = self._running()
        if not all(node.info("cluster_state").get("cluster_state") == "ok" and is_in_step(node) for node in running):
            return False
        views = {tuple(_ranges(node)) for node in running}
        if len(views) != 1:
            return False
        owners = {owned.port for owned in views.pop()}  # a primary that is gone is believed in for a while
        return owners == {node.port for node in self.primaries()}

    def _on_port(self, port: int) -> RedisServer:
        return next(node for node in self.nodes if node.port == port)

    def _failure(self) -> str:
        states = {node.address: node.info("cluster_state").get("cluster_state", "no answer") for node in self.nodes}
        return f"the Redis Cluster did not become healthy: {states}"


def start_redis_cluster(
    directory: Path,
    *,
    primaries: int = 3,
    replicas: int = 1,
    node_timeout_ms: Millis = NODE_TIMEOUT_MS,
    appendfsync: str = "always",
    **settings: str | int,
) -> RedisCluster:
    """A Cluster whose primaries share all slots, each with that many replicas; returns when it is healthy."""
    own: Settings = {
        **DURABLE,
        "appendfsync": appendfsync,
        "cluster-enabled": "yes",
        "cluster-config-file": "nodes.conf",
        "cluster-node-timeout": node_timeout_ms,
        "cluster-require-full-coverage": "no",
        **{setting.replace("_", "-"): value for setting, value in settings.items()},
    }
    nodes: list[RedisServer] = []
    try:
        for number in range(1, primaries * (1 + replicas) + 1):
            name = f"redis-{number}"
            nodes.append(start_server(name, directory / name, own, 0, has_bus=True))
        _form(nodes, primaries)
        formed = RedisCluster(nodes)
        formed.wait_until_healthy()
    except BaseException:
        RedisCluster(nodes).stop()
        raise
    return formed


def _form(nodes: Sequence[RedisServer], primaries: int) -> None:
    """Make strangers a cluster: slots and epochs, introductions, and who follows whom."""
    for index, node in enumerate(nodes):
        node.ask("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
        if index < primaries:
            first, last = SLOTS * index // primaries, SLOTS * (index + 1) // primaries - 1
            node.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
    for index, node in enumerate(nodes):
        for other in nodes[:index]:  # each to each: gossip would take seconds
            node.ask("CLUSTER", "MEET", HOST, other.port, _bus_port(other))
    ids = [str(node.ask("CLUSTER", "MYID")) for node in nodes]

    def all_met() -> bool:
        views = [str(node.ask("CLUSTER", "NODES")) for node in nodes]
        return all("handshake" not in view and all(each in view for each in ids) for view in views)

    wait_until(all_met, seconds=START_SECONDS, what=lambda: "the nodes of the Redis Cluster did not meet")
    for index, node in enumerate(nodes[primaries:]):
        node.ask("CLUSTER", "REPLICATE", ids[index % primaries])


def _bus_port(node: RedisServer) -> str:
    told = node.ask("CONFIG", "GET", "cluster-port")
    assert isinstance(told, list)
    return str(told[1])


class _Range(NamedTuple):
    first: int
    last: int
    port: int


def _ranges(node: RedisServer) -> list[_Range]:
    """Which slots are served by the primary on which port, as this node sees it; nothing if it does not answer."""
    try:
        told = node.ask("CLUSTER", "SLOTS")
    except (OSError, RedisCommandError):
        return []
    assert isinstance(told, list)
    return sorted(_Range(*_numbers(each)) for each in told)


def _numbers(slots: Reply) -> tuple[int, int, int]:
    match slots:
        case [int(first), int(last), [_, int(port), *_], *_]:
            return first, last, port
        case _:
            raise AssertionError(f"not an item of CLUSTER SLOTS: {slots}")
