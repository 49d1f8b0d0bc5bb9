"""`holdfast cluster` as people use it: real servers and replicas, killed and started by name, all gone at the end."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli, Process, until

PACK = "tests.cli.bakery"
SERVERS_ONLY = ("--gateways", "0", "--workers", "0", "--schedulers", "0", "--nats", "1")


class Up:
    """`cluster up --json`, and the parts as it last told them."""

    def __init__(self, cwd: Path, *options: str, **environment: str) -> None:
        self.process = Process("cluster", "up", PACK, "--json", *options, cwd=cwd, **environment)
        self.record: dict[str, Any] = {}
        self.pids: set[int] = set()
        self.hear()

    def hear(self) -> None:
        self.record = json.loads(self.process.line())
        self.pids |= {part["pid"] for part in self.record["parts"]}

    def hear_until(self, part: str, state: str) -> dict[str, Any]:
        while self.part(part)["state"] != state:
            self.hear()
        return self.part(part)

    def part(self, name: str) -> dict[str, Any]:
        return next(part for part in self.record["parts"] if part["name"] == name)

    def left(self) -> set[int]:
        """Processes of its parts that are still there."""
        return {pid for pid in self.pids if Path(f"/proc/{pid}").exists() and not _is_dead(pid)}


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture
def ups(tmp_path: Path) -> Iterator[list[Up]]:
    started: list[Up] = []
    yield started
    for up in started:
        up.process.close()


@pytest.mark.faults
def test_a_cluster_works_loses_a_worker_and_ends_without_a_trace(cli: Cli, tmp_path: Path, ups: list[Up]) -> None:
    foreign = {"HOLDFAST_REQUIRE_KEYS": "true", "HOLDFAST_QUEUES": "others"}  # settings of ours, and not of its parts
    up = Up(tmp_path, "--gateways", "1", "--workers", "1", "--schedulers", "1", **foreign)
    ups.append(up)
    names = ["redis-1", "nats-1", "scheduler-1", "worker-1", "gateway-1"]
    assert [part["name"] for part in cli("cluster", "status", "--json").json["parts"]] == names
    assert {part["state"] for part in up.record["parts"]} == {"running"}
    [gateway] = up.record["gateways"]

    assert "is dead (SIGKILL)" in cli("cluster", "kill", "worker-1").out
    killed = up.hear_until("worker-1", "dead")
    assert killed["exit_code"] == -signal.SIGKILL
    assert "dead (SIGKILL)" in cli("cluster", "status").out
    assert "is running" in cli("cluster", "start", "worker-1").out
    started = up.hear_until("worker-1", "running")
    assert (started["port"], started["pid"] != killed["pid"]) == (killed["port"], True)

    said = cli("start", "bakery.bake", "--wait", "--json", "name=rye", HOLDFAST_URL=gateway)
    assert said.json["result"] == {"name": "rye", "grams": 500}

    assert cli("cluster", "down").code == 0
    assert up.process.ended() == 0, up.process.errors()
    assert up.left() == set()


@pytest.mark.faults
def test_nothing_outlives_an_up_that_is_killed(cli: Cli, tmp_path: Path, ups: list[Up]) -> None:
    up = Up(tmp_path, *SERVERS_ONLY)
    ups.append(up)
    taken = cli("cluster", "up", PACK, "--json")
    assert (taken.code, "a cluster is up" in taken.problem["message"]) == (2, True)
    assert up.process.stop(signal.SIGKILL) == -signal.SIGKILL
    until(lambda: not up.left(), up.left)
    assert "no cluster is up" in cli("cluster", "status").err


@pytest.mark.faults
def test_what_a_killed_up_has_left_does_not_hinder_the_next_whose_parts_obey_by_name(
    cli: Cli, tmp_path: Path, ups: list[Up]
) -> None:
    left = tmp_path / ".holdfast-cluster"
    (left / "wanted").mkdir(parents=True)
    (left / "wanted" / "kill redis-1").touch()
    (left / "cluster.lock").write_text("1")
    (left / "cluster.json").write_text("{}")
    up = Up(tmp_path, *SERVERS_ONLY)
    ups.append(up)
    assert up.part("redis-1")["state"] == "running"
    assert "is paused" in cli("cluster", "pause", "nats-1").out
    assert "is running" in cli("cluster", "resume", "nats-1").out
    assert "is stopped (exit 0)" in cli("cluster", "stop", "redis-1").out
    unknown = cli("cluster", "kill", "redis-9", "--json")
    assert (unknown.code, unknown.problem["hint"]) == (2, "The parts are: redis-1, nats-1.")
    assert up.process.stop(signal.SIGINT) == 0, up.process.errors()
    assert up.left() == set()


def test_a_machine_without_redis_is_told_what_to_install(cli: Cli, tmp_path: Path) -> None:
    said = cli("cluster", "up", PACK, "--json", PATH=str(tmp_path))
    assert said.code == 2
    assert "no redis-server and no valkey-server" in said.problem["message"]
    assert "Debian's package 'redis-server'" in said.problem["hint"]


def test_a_directory_with_other_things_in_it_is_left_alone(cli: Cli, tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    said = cli("cluster", "up", PACK, "--directory", str(tmp_path))
    assert said.code == 2
    assert "holds other things" in said.err
    assert precious.read_text() == "mine"


def test_a_cluster_without_packs_is_refused(cli: Cli) -> None:
    assert "holdfast cluster up shop.orders" in cli("cluster", "up").err
