"""NATS servers on this machine: one, or a cluster of them, with a JetStream that syncs before it acknowledges."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import TransientError
from holdfast.lab.cluster import binaries
from holdfast.lab.cluster.local_server import LocalServer
from holdfast.lab.cluster.ports import HOST, free_port
from holdfast.lab.cluster.probes import is_ok
from holdfast.lab.cluster.processes import ServerProcess, wait_until

HEALTHY_SECONDS = 60.0
ATTEMPTS = 10
CLUSTER_NAME = "holdfast"
RESERVABLE = 2**40  # bytes


class NatsPorts(NamedTuple):
    """Where one server listens: for clients, for those who monitor it, and for its peers."""

    client: int
    monitor: int
    peers: int


class NatsServer(LocalServer):
    """One server. It takes connections once it is started; a cluster's JetStream may need its peers yet."""

    def __init__(
        self, name: str, directory: Path, ports: NatsPorts, *, jetstream: bool = True, routes: Sequence[int] = ()
    ) -> None:
        self.directory = directory
        self.ports = ports
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / "server.conf"
        file.write_text(_configuration(name, directory, ports, jetstream=jetstream, routes=routes))
        command = [binaries.find(binaries.NATS_SERVER), "--config", file]
        super().__init__(name, ports.client, ServerProcess(name, command, log=directory / "server.log"))

    @property
    def url(self) -> str:
        return f"nats://{self.address}"

    def is_healthy(self) -> bool:
        """Whether it says so itself: in a cluster, its JetStream has a leader and is in step with it."""
        return is_ok(self.ports.monitor, "/healthz")

    def _is_replying(self) -> bool:
        return "Server is ready" in self.process.words()


class NatsCluster:
    """Servers that are one."""

    def __init__(self, nodes: Sequence[NatsServer]) -> None:
        self.nodes = tuple(nodes)

    @property
    def url(self) -> str:
        return ",".join(node.url for node in self.nodes)

    def kill(self, node: NatsServer) -> None:
        node.kill()

    def restart(self, node: NatsServer) -> None:
        node.restart()

    def wait_until_healthy(self, seconds: float = HEALTHY_SECONDS) -> None:
        """Until JetStream has a leader and every running node is in step with it."""
        wait_until(self.is_healthy, seconds=seconds, what=self.failure)

    def is_healthy(self) -> bool:
        return all(node.is_healthy() for node in self.nodes if node.state == "running")

    def failure(self) -> str:
        """What the nodes said last."""
        told = "\n".join(f"{node.name}, {node.state}:\n{node.process.last_words()}" for node in self.nodes)
        return f"the NATS cluster is not healthy:\n{told}"

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()


def start_nats(directory: Path, *, jetstream: bool = True, name: str = "nats") -> NatsServer:
    """A single server."""
    for _ in range(ATTEMPTS):
        server = NatsServer(name, directory, _free_ports(), jetstream=jetstream)
        if _has_started(server):
            return server
    raise TransientError(f"{name} found no free port in {ATTEMPTS} attempts")


def start_nats_cluster(directory: Path, *, nodes: int = 3) -> NatsCluster:
    """That many servers with one JetStream; returns when it has a leader."""
    for _ in range(ATTEMPTS):
        cluster = NatsCluster(_nodes(directory, nodes))
        try:
            if all(_has_started(node) for node in cluster.nodes) and _has_formed(cluster):
                return cluster
        except BaseException:
            cluster.stop()
            raise
        cluster.stop()
    raise TransientError(f"{nodes} NATS servers found no free ports in {ATTEMPTS} attempts")


def _nodes(directory: Path, count: int) -> list[NatsServer]:
    ports = [_free_ports() for _ in range(count)]
    routes = [each.peers for each in ports]
    names = [f"nats-{number}" for number in range(1, count + 1)]
    return [NatsServer(name, directory / name, own, routes=routes) for name, own in zip(names, ports, strict=True)]


def _has_formed(cluster: NatsCluster) -> bool:
    """False if another process took a node's port for its peers, which it finds out after it was ready for clients."""
    wait_until(
        lambda: not all(node.process.is_alive for node in cluster.nodes) or cluster.is_healthy(),
        seconds=HEALTHY_SECONDS,
        what=cluster.failure,
    )
    return all(node.process.is_alive for node in cluster.nodes)


def _has_started(server: NatsServer) -> bool:
    """False if another process took its port; raises if it failed for any other reason."""
    try:
        server.start()
    except TransientError:
        if server.is_port_taken:
            return False
        server.kill()
        raise
    except BaseException:
        server.kill()
        raise
    return True


def _free_ports() -> NatsPorts:
    return NatsPorts(free_port(), free_port(), free_port())


def _configuration(name: str, directory: Path, ports: NatsPorts, *, jetstream: bool, routes: Sequence[int]) -> str:
    lines = [f"server_name: {name}", f"listen: {HOST}:{ports.client}", f"http: {HOST}:{ports.monitor}"]
    if jetstream:
        # By default it syncs every two minutes, and what it has acknowledged until then can be lost.
        # A topic reserves all that it may ever hold. By default a server may reserve three quarters of the free disk:
        # after a dozen empty topics there would be no room for the next.
        data = json.dumps(str(directory / "data"))
        lines.append(f"jetstream {{ store_dir: {data}, sync_interval: always, max_file_store: {RESERVABLE} }}")
    if routes:
        urls = ", ".join(f"nats://{HOST}:{port}" for port in routes)
        lines.append(f"cluster {{ name: {CLUSTER_NAME}, listen: {HOST}:{ports.peers}, routes: [{urls}] }}")
    return "\n".join(lines) + "\n"
