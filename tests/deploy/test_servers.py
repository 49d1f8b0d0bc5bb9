"""The servers' own configuration files, read by the servers themselves."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.lab.cluster import binaries
from holdfast.lab.cluster.ports import HOST, free_port
from holdfast.lab.cluster.processes import ServerProcess, wait_until
from holdfast.lab.cluster.redis import RedisServer, is_in_step, start_server
from holdfast.stores.redis.net.connections import LAG_SECONDS_MAX
from tests.deploy.manifests import DEPLOY

# Of a container, not of a test.
ELSEWHERE = {"bind", "protected-mode", "port"}


def directives(name: str) -> dict[str, str]:
    lines = [line.split(maxsplit=1) for line in (DEPLOY / name).read_text().splitlines() if line]
    return {words[0]: words[1].strip('"') for words in lines if not words[0].startswith("#")}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[RedisServer]]:
    """Six servers with the files of a cluster's node, that do not know each other yet."""
    both = tmp_path / "both.conf"
    both.write_text("".join(f"include {DEPLOY / name}\n" for name in ("redis.conf", "redis.cluster.conf")))
    servers: list[RedisServer] = []
    try:
        for number in range(1, 7):
            name = f"redis-{number}"
            # The first sync need not wait for replicas that may yet come.
            settings = {"include": both, "bind": HOST, "repl-diskless-sync-delay": 0}
            servers.append(start_server(name, tmp_path / name, settings, 0, has_bus=True))
        yield servers
    finally:
        for server in servers:
            server.kill()


def configured(server: RedisServer, wanted: dict[str, str]) -> dict[str, str]:
    told = {name: server.ask("CONFIG", "GET", name) for name in wanted if name not in ELSEWHERE}
    return {name: value for name, [_, value] in told.items()}


async def test_six_nodes_become_a_cluster_once_and_are_waited_for_the_second_time(nodes):
    environment = os.environ | {"NODES": " ".join(node.address for node in nodes)}
    init = ["sh", str(DEPLOY / "redis-cluster-init.sh")]
    first = subprocess.run(init, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert first.returncode == 0, first
    assert all(node.info("cluster_state")["cluster_state"] == "ok" and is_in_step(node) for node in nodes)
    roles = sorted(node.info("replication")["role"] for node in nodes)
    assert roles == ["master"] * 3 + ["slave"] * 3
    again = subprocess.run(init, env=environment, capture_output=True, text=True, timeout=100, check=True)
    assert again.stdout == "the cluster is ready\n"

    wanted = directives("redis.conf") | directives("redis.cluster.conf")
    assert configured(nodes[0], wanted) == {name: value for name, value in wanted.items() if name not in ELSEWHERE}
    async with Holdfast(f"redis+cluster://{nodes[0].address}", worker=False) as hf:
        doubts = [finding for finding in await hf.runtime.inspect() if finding.level != "ok"]
    assert doubts == []


def test_redis_keeps_what_it_has_answered():
    told = directives("redis.conf")
    assert (told["appendonly"], told["appendfsync"], told["no-appendfsync-on-rewrite"]) == ("yes", "always", "no")
    assert told["maxmemory-policy"] == "noeviction"


def test_a_primary_that_is_cut_off_stops_before_we_would_do_without_its_replica():
    assert int(directives("redis.cluster.conf")["cluster-node-timeout"]) < LAG_SECONDS_MAX * 1000
    assert f"the {LAG_SECONDS_MAX} s after which" in (DEPLOY / "redis.cluster.conf").read_text()


def test_nats_syncs_before_it_acknowledges(tmp_path):
    here, monitor = tmp_path / "nats.conf", free_port()
    here.write_text((DEPLOY / "nats.conf").read_text().replace("store_dir: /data", f"store_dir: {tmp_path}"))
    command = [binaries.find(binaries.NATS_SERVER), "--config", here, "--addr", HOST]
    options = ["--port", str(free_port()), "--http_port", str(monitor)]
    server = ServerProcess("nats", [*command, *options], log=tmp_path / "nats.log")
    server.start()
    try:
        wait_until(
            lambda: not server.is_alive or "Server is ready" in server.last_words(),
            seconds=30,
            what=server.last_words,
        )
        assert server.is_alive, server.last_words()
        with urllib.request.urlopen(f"http://{HOST}:{monitor}/jsz?config=true", timeout=10) as answer:
            told = json.load(answer)["config"]
    finally:
        server.kill()
    assert told["sync_always"] is True
    assert told["max_storage"] == 10 * 2**30


def test_a_node_of_nats_takes_its_name_from_the_environment(tmp_path):
    check = [binaries.find(binaries.NATS_SERVER), "--config", str(DEPLOY / "nats.cluster.conf"), "-t"]
    nameless = {name: value for name, value in os.environ.items() if name != "NATS_SERVER_NAME"}
    refused = subprocess.run(check, env=nameless, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    assert re.search("NATS_SERVER_NAME.*can not be found", refused.stderr)
    named = nameless | {"NATS_SERVER_NAME": "nats-1"}
    taken = subprocess.run(check, env=named, capture_output=True, text=True, timeout=60, check=False)
    assert taken.returncode == 0, taken.stderr
