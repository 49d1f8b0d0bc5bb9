"""`serve --processes N` and `worker --processes N` as real processes, on a file and on Redis.

Each of the N is a replica of its own. Whichever of them dies is replaced; when the supervisor ends, in order or by
SIGKILL, none of them is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.cores import usable_cores
from tests.cli.conftest import Cli, Process, until

PACK = "tests.cli.whereabouts"
ALL = ("--roles", "gateway,worker,scheduler", "--port", "0")


class Supervised:
    """A command with `--processes`, its processes, and what each store that it works on is called."""

    def __init__(self, *arguments: str, cwd: Path, url: str, processes: int = 3, **environment: str) -> None:
        options = ("--processes", str(processes), "--url", url, "--json")
        self.process = Process(*arguments, *options, cwd=cwd, HOLDFAST_LOG="json", **environment)
        self.ready: dict[str, Any] = {}
        self.url = url
        self.pids: list[int] = []

    def wait(self) -> Supervised:
        self.ready = json.loads(self.process.line())
        self.pids = self.ready["processes"]
        return self

    @property
    def cli(self) -> Cli:
        return Cli(HOLDFAST_URL=self.url, HOLDFAST_PACKS=PACK)

    def log(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.process.errors().splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == event]

    def workers(self) -> set[int]:
        """The live workers, by the ids of their processes."""
        return {each["pid"] for each in self.cli("workers", "--json").json["workers"]}

    def left(self) -> set[int]:
        """Processes that were started, and are still there."""
        return {line["pid"] for line in self.log("process started") if is_alive(line["pid"])}

    def close(self) -> None:
        self.process.stop(signal.SIGKILL)
        for pid in self.left():  # a test has failed, or they are about to notice
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.close()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def started() -> Iterator[list[Supervised]]:
    each: list[Supervised] = []
    yield each
    for supervised in each:
        supervised.close()


def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/shared.db"


def post(url: str, workflow: str, **arguments: str) -> Any:
    """Start a run over a connection of its own, and return what it returned."""
    body = json.dumps({"input": arguments}).encode()
    request = urllib.request.Request(
        f"{url}/v1/workflows/{workflow}/runs?wait=30s", body, {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)["result"]


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=60) as reply:
            return reply.status
    except urllib.error.HTTPError as refused:
        return refused.code


def connected(url: str, count: int) -> list[socket.socket]:
    """So many connections that stay open."""
    port = int(url.rpartition(":")[2])
    return [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(count)]


def asked_where(connection: socket.socket, number: int) -> int:
    body = json.dumps({"input": {"name": f"n-{number}"}})
    connection.sendall(
        b"POST /v1/workflows/where/runs?wait=30s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        + f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    reply = b""
    while b"\r\n\r\n" not in reply or not reply.rstrip().endswith(b"}"):
        reply += connection.recv(65_536)
    return json.loads(reply.partition(b"\r\n\r\n")[2])["result"]


def test_the_port_is_shared_and_so_is_the_work(tmp_path, started):
    supervised = Supervised("serve", PACK, *ALL, cwd=tmp_path, url=sqlite(tmp_path), TMPDIR=str(tmp_path))
    started.append(supervised)
    supervised.wait()
    url = supervised.ready["url"]
    assert supervised.workers() == set(supervised.pids)
    assert supervised.ready["pid"] not in supervised.pids

    connections = connected(url, 30)
    # A run is executed where it was started, as long as there is room.
    with ThreadPoolExecutor(len(connections)) as pool:
        places = list(pool.map(asked_where, connections, range(len(connections))))
    assert set(places) == set(supervised.pids), "one of them was left out"
    for connection in connections:
        connection.close()

    for path in ("/livez", "/readyz", "/metrics", "/v1/runs", "/"):
        assert status(url + path) == 200, path
    # Whichever of them is asked says what all of them have counted.
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as reply:
        counted = re.findall(
            r'holdfast_runs_started_total\{instance_id="\S+?-(\d+)-\w+",.*\} (\S+)', reply.read().decode()
        )
    assert {int(pid): float(count) for pid, count in counted} == Counter(places)
    assert post(url, "heir", name="x") == []  # neither the port nor the lifeline reaches what an effect starts
    assert supervised.process.stop() == 0, supervised.process.errors()
    assert supervised.left() == set()
    with pytest.raises(ConnectionRefusedError):
        connected(url, 1)
    assert list(tmp_path.glob("holdfast-*")) == []


@pytest.mark.faults
@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_a_process_that_is_killed_is_replaced_and_its_work_goes_on(store, tmp_path, started, request):
    url = sqlite(tmp_path)
    if store == "redis":
        url = f"{request.getfixturevalue('redis_server').url}?name=processes-{os.getpid()}"
    supervised = Supervised("worker", PACK, cwd=tmp_path, url=url, HOLDFAST_LEASE="1s")
    started.append(supervised)
    supervised.wait()
    assert supervised.workers() == set(supervised.pids)
    folder = tmp_path / "held"
    folder.mkdir()
    run = supervised.cli("start", "held", f"folder={folder}", "--json").json
    until(lambda: list(folder.iterdir()), supervised.process.errors)
    [first] = (int(path.name) for path in folder.iterdir())
    assert first in supervised.pids

    os.kill(first, signal.SIGKILL)
    until(lambda: len(list(folder.iterdir())) > 1, supervised.process.errors)  # another process goes on with it
    (folder / "go").touch()
    second = supervised.cli("result", run["id"]).json
    assert second != first

    until(lambda: supervised.log("process ended"), supervised.process.errors)  # the lease may be lost sooner
    [ended] = supervised.log("process ended")
    assert (ended["pid"], ended["how"]) == (first, "by SIGKILL")
    until(lambda: len(supervised.workers()) == 3 and first not in supervised.workers(), supervised.workers)
    assert supervised.process.stop() == 0, supervised.process.errors()
    assert supervised.left() == set()


@pytest.mark.faults
def test_a_supervisor_that_is_killed_leaves_no_process_and_no_work_undone(tmp_path, started):
    supervised = Supervised("serve", PACK, *ALL, cwd=tmp_path, url=sqlite(tmp_path), TMPDIR=str(tmp_path))
    started.append(supervised)
    supervised.wait()
    folder = tmp_path / "held"
    folder.mkdir()
    run = supervised.cli("start", "held", f"folder={folder}", "--json").json
    until(lambda: list(folder.iterdir()), supervised.process.errors)

    supervised.process.stop(signal.SIGKILL)
    # They stop in order: what is under way ends, and is recorded.
    port = int(supervised.ready["url"].rpartition(":")[2])
    until(lambda: is_refused(port) or is_closing(supervised.ready["url"]), supervised.process.errors)
    (folder / "go").touch()
    until(lambda: not supervised.left(), supervised.left)
    assert len(supervised.log("replica stopped")) == 3
    assert supervised.cli("result", run["id"]).json in supervised.pids
    with socket.create_server(("127.0.0.1", port)):
        pass  # the port is free
    assert list(tmp_path.glob("holdfast-*")) == []


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
    except ConnectionRefusedError:
        return True
    return False


def is_closing(url: str) -> bool:
    try:
        return status(f"{url}/readyz") == 503
    except (ConnectionError, urllib.error.URLError):
        return True


def test_a_stop_lets_end_what_is_under_way_in_every_process(tmp_path, started):
    supervised = Supervised("serve", PACK, *ALL, cwd=tmp_path, url=sqlite(tmp_path))
    started.append(supervised)
    supervised.wait()
    url = supervised.ready["url"]
    folders = [tmp_path / f"held-{number}" for number in range(6)]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(len(folders)) as pool:
        held = [pool.submit(post, url, "held", folder=str(folder)) for folder in folders]
        until(lambda: all(list(folder.iterdir()) for folder in folders), supervised.process.errors)
        os.kill(supervised.ready["pid"], signal.SIGTERM)
        until(lambda: is_closing(url), supervised.process.errors)
        for folder in folders:
            (folder / "go").touch()
        replies = [each.result() for each in held]
    assert supervised.process.ended() == 0, supervised.process.errors()
    # A poll that waits is told how things are when its process stops. What was under way is recorded all the same.
    assert set(replies) <= {None, *supervised.pids}
    runs = supervised.cli("runs", "--json").json["runs"]
    assert [run["status"] for run in runs] == ["completed"] * len(folders)
    assert [line["given_back"] for line in supervised.log("replica stopped")] == [0, 0, 0]
    assert "Traceback" not in supervised.process.errors()


@pytest.mark.faults
def test_sighup_restarts_one_process_after_the_other_and_no_connection_is_lost(tmp_path, started):
    supervised = Supervised("serve", PACK, *ALL, cwd=tmp_path, url=sqlite(tmp_path))
    started.append(supervised)
    supervised.wait()
    url = supervised.ready["url"]
    os.kill(supervised.ready["pid"], signal.SIGHUP)
    seen = []
    while len(supervised.log("replica started")) < 6:
        # Each over a connection of its own. One that reaches the process which is stopping is told to come again.
        seen.append(status(f"{url}/v1/runs?limit=1"))
    assert set(seen) <= {200, 503}
    assert seen.count(200) >= seen.count(503)
    until(lambda: supervised.workers().isdisjoint(supervised.pids), supervised.workers)
    assert len(supervised.left()) == 3
    assert supervised.process.stop() == 0, supervised.process.errors()


@pytest.mark.parametrize("wanted", ["0", "-1", "many", "513", "1.5"])
@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_number_that_is_none_is_refused(cli, command, wanted):
    said = cli(command, PACK, f"--processes={wanted}", "--json")
    assert (said.code, said.problem["code"]) == (2, "invalid_config")
    assert "no number of processes" in said.problem["message"]
    assert "auto" in said.problem["hint"]
    assert not list(Path.cwd().iterdir())


def test_the_setting_is_read_from_the_environment_too(cli):
    said = cli("worker", PACK, "--json", HOLDFAST_PROCESSES="many")
    assert "HOLDFAST_PROCESSES: 'many' does not fit; allowed: 1 to 512, or auto" in said.problem["message"]


def test_what_is_wrong_is_said_once_and_not_tried_again(tmp_path, started):
    for arguments in (("worker", "no.such.pack"), ("serve", "no.such.pack", *ALL)):
        supervised = Supervised(*arguments, cwd=tmp_path, url=sqlite(tmp_path))
        started.append(supervised)
        assert supervised.process.ended() == 2
        assert supervised.process.errors().count("there is no module 'no.such.pack'") == 1
        assert len(supervised.log("process started")) == 1


def test_a_port_that_is_taken_is_said_before_any_process_is_started(tmp_path, started):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        supervised = Supervised("serve", PACK, "--port", port, cwd=tmp_path, url=sqlite(tmp_path))
        started.append(supervised)
        assert supervised.process.ended() == 2
    assert "is in use" in supervised.process.errors()
    assert supervised.log("process started") == []


def test_an_open_address_is_refused_before_any_process_is_started(cli):
    said = cli("serve", "--host", "0.0.0.0", "--open", "--port", "0", "--processes", "2")
    assert said.code == 2
    assert "hint:" in said.err


@pytest.mark.slow
def test_a_crash_loop_ends_with_a_word_about_it(tmp_path, started):
    (tmp_path / "crashing.py").write_text("import os\nos._exit(3)\n")
    supervised = Supervised("worker", "crashing", cwd=tmp_path, url=sqlite(tmp_path))
    started.append(supervised)
    assert supervised.process.ended() == 1
    problem = json.loads(supervised.process.errors().splitlines()[-1])
    assert problem["message"] == (
        "process 1 of 3 ended 5 times in a row soon after its start, the last time with exit code 3"
    )
    assert [line["delay_ms"] for line in supervised.log("process ended")] == [500, 1_000, 2_000, 4_000]


def test_one_process_has_no_supervisor(tmp_path):
    process = Process(
        "worker", PACK, "--processes", "1", "--json", "--url", sqlite(tmp_path), cwd=tmp_path, HOLDFAST_LOG="json"
    )
    try:
        ready = json.loads(process.line())
        assert "processes" not in ready
        [worker] = Cli(HOLDFAST_URL=sqlite(tmp_path))("workers", "--json").json["workers"]
        assert worker["pid"] == ready["pid"]
        assert process.stop() == 0
    finally:
        process.close()


def test_people_are_told_how_many_there_are(tmp_path):
    cores = max(2, usable_cores())
    wanted = "auto" if usable_cores() > 1 else "2"  # one core needs no supervisor
    process = Process("worker", PACK, "--processes", wanted, "--url", sqlite(tmp_path), cwd=tmp_path)
    try:
        line = process.line()
        assert f"as worker, scheduler ({cores} processes, " in line
        assert process.stop(signal.SIGINT) == 0, process.errors()
        assert "Traceback" not in process.errors()
    finally:
        process.close()
