"""The servers that tests, `holdfast cluster` and the gate start: they come back as they were, and none stays behind."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from nats.js.errors import NoStreamResponseError

from holdfast.errors import InvalidConfig, TransientError
from holdfast.lab.cluster import binaries, ports, redis, servers
from holdfast.lab.cluster.servers import NatsCluster, RedisCluster, RedisServer

DEADLINE = 30.0


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def is_there(pid: int) -> bool:
    """Whether a process runs under this id; one that is dead and waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_server_that_was_killed_starts_again_on_its_port_with_its_data(tmp_path: Path) -> None:
    server = servers.start_redis(tmp_path, requirepass="secret")
    try:
        server.ask("SET", "k", "v")
        url, pid = server.url, server.pid
        server.kill()
        assert server.state == "dead"
        assert not is_there(pid)
        server.start()
        assert server.ask("GET", "k") == "v"
        assert server.url == url == f"redis://:secret@127.0.0.1:{server.port}"
    finally:
        server.stop()


def test_a_server_is_configured_to_keep_state(redis_server: RedisServer) -> None:
    wanted = {
        "appendonly": "yes",
        "appendfsync": "always",
        "no-appendfsync-on-rewrite": "no",
        "maxmemory-policy": "noeviction",
        "save": "",
    }
    assert {name: redis_server.ask("CONFIG", "GET", name) for name in wanted} == {
        name: [name, value] for name, value in wanted.items()
    }


def test_a_paused_server_is_stopped_all_the_same(tmp_path: Path) -> None:
    server = servers.start_redis(tmp_path)
    server.stop_signal()
    assert server.state == "stopped"
    assert server.info("server") == {}
    server.stop()
    assert server.state == "dead"
    assert server.process.exit_code == 0  # in order, not by force


def test_a_port_that_was_asked_for_is_that_one_or_an_error(tmp_path: Path, redis_server: RedisServer) -> None:
    with pytest.raises(TransientError, match=f"did not start on port {redis_server.port}"):
        servers.start_redis(tmp_path, port=redis_server.port)


def test_a_port_that_somebody_takes_meanwhile_is_exchanged_for_another(
    tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = iter([redis_server.port, redis.free_port()])
    monkeypatch.setattr(redis, "free_port", lambda: next(tried))
    server = servers.start_redis(tmp_path)
    assert server.port != redis_server.port
    server.stop()


def test_ports_given_out_to_two_processes_are_never_the_same() -> None:
    # So few that they would meet; and seldom those of another run of this test, which would have none left.
    first = secrets.choice(ports.PORTS[:-40])
    few = range(first, first + 40)
    script = f"from holdfast.lab.cluster import ports; print([ports.free_port({few}) for _ in range(15)])"
    ours = [ports.free_port(few) for _ in range(15)]
    asked = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    theirs = json.loads(asked.stdout)
    assert len({*ours, *theirs}) == 30


def test_a_server_that_cannot_work_says_why_at_once(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="no-such-setting"):
        servers.start_redis(tmp_path, no_such_setting="1")


@pytest.mark.parametrize(
    ("binary", "message"),
    [
        (binaries.REDIS_SERVER, "no redis-server and no valkey-server"),
        (binaries.REDIS_SENTINEL, "no redis-sentinel and no valkey-sentinel"),
        (binaries.NATS_SERVER, "no nats-server"),
    ],
)
def test_a_missing_binary_is_named_with_how_to_get_it(
    binary: binaries.Binary, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(binaries.sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(InvalidConfig, match=message) as raised:
        binaries.find(binary)
    assert "nstall" in raised.value.hint


@pytest.mark.faults
def test_a_cluster_is_whole_again_after_it_lost_a_primary(redis_cluster: RedisCluster) -> None:
    lost = redis_cluster.primary_of(0)
    [heir] = redis_cluster.replicas_of(lost)
    redis_cluster.kill(lost)
    redis_cluster.wait_until_healthy()
    assert redis_cluster.primary_of(0) is heir
    redis_cluster.restart(lost)
    redis_cluster.wait_until_healthy()
    assert redis_cluster.replicas_of(heir) == (lost,)


@pytest.mark.faults
def test_sentinels_replace_a_primary(tmp_path: Path) -> None:
    group = servers.start_sentinel(tmp_path)
    try:
        lost = group.primary
        lost.kill()
        group.wait_until_healthy()
        assert group.primary is not lost
    finally:
        group.stop()


async def acknowledged(stream: JetStreamContext) -> int:
    """The number of a message once the stream has it: it may have to find another leader first."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                return (await stream.publish("servers.one", b"1", headers={"Nats-Msg-Id": "one"})).seq
            except (NoStreamResponseError, nats.errors.TimeoutError):
                await asyncio.sleep(0.05)


@pytest.mark.faults
async def test_a_nats_cluster_keeps_messages_while_a_node_is_gone(nats_cluster: NatsCluster) -> None:
    client = await nats.connect(nats_cluster.nodes[0].url)
    stream = client.jetstream()
    await stream.add_stream(StreamConfig(name="servers", subjects=["servers.>"], num_replicas=3))
    nats_cluster.kill(nats_cluster.nodes[2])
    assert await acknowledged(stream) == 1
    nats_cluster.restart(nats_cluster.nodes[2])
    nats_cluster.wait_until_healthy()
    await stream.delete_stream("servers")
    await client.close()


STARTS_AND_WAITS = """
import sys, pathlib
from holdfast.lab.cluster import servers
redis = servers.start_redis(pathlib.Path(sys.argv[1]) / "redis")
nats = servers.start_nats(pathlib.Path(sys.argv[1]) / "nats")
print(redis.pid, nats.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, None])
def test_no_server_outlives_the_process_that_started_it(number: int | None, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_AND_WAITS, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert all(is_there(pid) for pid in pids)
        if number is None:
            process.stdin.close()  # it ends by itself, without a word to its servers
        else:
            os.kill(process.pid, number)
        process.wait(DEADLINE)
    until(lambda: not any(is_there(pid) for pid in pids))
