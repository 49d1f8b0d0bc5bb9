"""`dev`, `serve` and `worker` as real processes: they say where they are, do their work, and stop in order."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.engine.duties.leaders import DUTIES
from tests.cli.conftest import Cli, Process, until

PACK = "tests.cli.bakery"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for process in started:
        process.close()


def posted(url: str, body: str) -> dict[str, object]:
    request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_dev_says_where_to_click_and_what_to_type_and_both_work(tmp_path, processes):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = Process("dev", PACK, cwd=tmp_path, HOLDFAST_PORT=str(port))
        processes.append(process)
        said = ""
        while "Ctrl-C" not in said:
            said += process.line()
    url = re.search(r"dashboard +(http://\S+)", said)[1]
    assert url != f"http://127.0.0.1:{port}", "the next free port was taken"
    assert f"Port {port} is taken" in process.errors()
    with urllib.request.urlopen(url, timeout=60) as page:
        assert page.status == 200

    curl = shlex.split(re.search(r"curl (.*?\n.*?)\n", said, re.DOTALL)[1].replace("\\\n", " "))
    run = posted(curl[2], curl[-1])
    assert run["status"] == "completed"
    typed = shlex.split(re.search(r"^ +\S*holdfast (start .*)$", said, re.MULTILINE)[1])
    assert Cli()(*typed).json == run["result"]

    assert (tmp_path / "holdfast.db").exists()
    assert process.stop(signal.SIGINT) == 0, process.errors()
    assert "Traceback" not in process.errors()


def test_an_ephemeral_store_leaves_nothing_behind(tmp_path, processes):
    process = Process("dev", PACK, "--ephemeral", "--port", "0", "--json", cwd=tmp_path, TMPDIR=str(tmp_path))
    processes.append(process)
    ready = json.loads(process.line())
    assert Path(ready["store"].removeprefix("sqlite:///")).exists()
    assert process.stop() == 0, process.errors()
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("errors-")] == []


def test_a_gateway_and_a_worker_share_a_store(tmp_path, processes):
    options = ("--url", f"sqlite:///{tmp_path}/shared.db", "--json")
    gateway = Process("serve", PACK, "--port", "0", "--no-dashboard", *options, cwd=tmp_path)
    processes.append(gateway)
    url = json.loads(gateway.line())["url"]
    cli = Cli(HOLDFAST_URL=url)
    run = cli("start", "bake", "name=rye", "--json").json
    assert cli("show", run["id"], "--json").json["waiting_on"][0]["kind"] == "no_worker"
    assert "no live workers" in cli("workers").out.lower()
    worker = Process("worker", PACK, "--concurrency", "7", *options, cwd=tmp_path)
    processes.append(worker)
    assert cli("result", run["id"]).json == {"name": "rye", "grams": 500}
    assert cli("workers", "--json").json["workers"][0]["concurrency"] == 7
    assert worker.stop() == 0, worker.errors()
    assert gateway.stop() == 0, gateway.errors()


def test_each_role_may_have_a_process_of_its_own(tmp_path, processes):
    store = f"sqlite:///{tmp_path}/roles.db"
    ready = {}
    for roles, packs in (("gateway", [PACK]), ("worker", [PACK]), ("scheduler", [])):
        options = ("--roles", roles, "--port", "0", "--url", store, "--json")
        process = Process("serve", *packs, *options, cwd=tmp_path, HOLDFAST_LOG="json")
        processes.append(process)
        ready[roles] = json.loads(process.line())
    assert [each["roles"] for each in ready.values()] == [["gateway"], ["worker"], ["scheduler"]]
    run = Cli(HOLDFAST_URL=ready["gateway"]["url"])("start", "bake", "name=rye", "--json").json
    assert Cli(HOLDFAST_URL=ready["gateway"]["url"])("result", run["id"]).json == {"name": "rye", "grams": 500}
    for roles, each in ready.items():
        assert {
            path: status(f"{each['url']}{path}") for path in ("/livez", "/readyz", "/metrics", "/v1/runs", "/")
        } == {
            "/livez": 200,
            "/readyz": 200,
            "/metrics": 200,
            "/v1/runs": 200 if roles == "gateway" else 404,
            "/": 200 if roles == "gateway" else 404,
        }
    led = {roles: told(f"{each['url']}/metrics", r"holdfast_leads\{.*\} 1\.0") for roles, each in ready.items()}
    assert {roles: len(lines) for roles, lines in led.items()} == {"gateway": 0, "worker": 0, "scheduler": 4}
    doctor = Cli(HOLDFAST_URL=store)("doctor", "--json").json["findings"]
    [leader] = {part.partition(": ")[2] for part in doctor[-1]["detail"].split(", ")}
    assert all(f'instance_id="{leader}"' in line for line in led["scheduler"])
    for process in processes:
        assert process.stop() == 0, process.errors()
    lines = [json.loads(line) for line in processes[2].errors().splitlines() if line.startswith("{")]
    assert {line["duty"] for line in lines if line["event"] == "duty taken up"} == set(DUTIES)
    assert {line["instance"] for line in lines} == {leader}


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        return refused.code


def told(url: str, pattern: str) -> list[str]:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return re.findall(pattern, answer.read().decode())


def test_a_gateway_that_needs_keys_takes_those_of_its_store(tmp_path, processes):
    store = f"sqlite:///{tmp_path}/keyed.db"
    admin = Cli(HOLDFAST_URL=store)("keys", "create", "me", "--scope", "admin")
    token = admin.out.strip()
    process = Process("serve", PACK, "--port", "0", "--require-keys", "--json", "--url", store, cwd=tmp_path)
    processes.append(process)
    url = json.loads(process.line())["url"]
    assert Cli(HOLDFAST_URL=url)("runs", "--json").problem["code"] == "not_authenticated"
    keyed = Cli(HOLDFAST_URL=url, HOLDFAST_API_KEY=token)
    assert keyed("runs", "--json").json == {"runs": [], "next": None}

    made = keyed("keys", "create", "reader", "--scope", "read", "--expires-in", "90d", "--json").json
    reader = Cli(HOLDFAST_URL=url, HOLDFAST_API_KEY=made["token"])
    assert reader("runs").code == 0
    assert reader("start", "bake", "name=x", "--json").problem["code"] == "not_permitted"
    listed = keyed("keys", "list", "--json").json["keys"]
    assert [(key["name"], key["scope"]) for key in listed] == [("me", "admin"), ("reader", "read")]
    assert made["token"] not in keyed("keys", "list").out
    assert keyed("keys", "revoke", made["key"]["id"], "--json").json["revoked_at"]
    assert "revoked" in keyed("keys", "list").out
    assert token not in process.errors()


def test_an_address_that_others_can_reach_needs_keys(tmp_path):
    said = Cli(HOLDFAST_URL=f"sqlite:///{tmp_path}/open.db")("serve", "--host", "0.0.0.0", "--open", "--port", "0")
    assert said.code == 2
    assert "hint:" in said.err


def test_a_port_that_is_taken_is_a_usage_error(tmp_path, processes):
    cli = Cli(HOLDFAST_URL=f"sqlite:///{tmp_path}/x.db")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = cli("serve", "--port", port, "--json")
        assert (said.code, said.problem["code"]) == (2, "invalid_config")
        process = Process("dev", PACK, "--port", port, cwd=tmp_path)
        processes.append(process)
        assert process.ended() == 2  # the one that was asked for, or none


def test_watching_shows_each_change_once(tmp_path, processes):
    store = f"sqlite:///{tmp_path}/watched.db"
    cli = Cli(HOLDFAST_URL=store, HOLDFAST_PACKS=PACK)
    cli("start", "bake", "name=a", "--delay", "1h")
    process = Process("runs", "--watch", "--json", "--url", store, cwd=tmp_path)
    processes.append(process)
    assert len(json.loads(process.line())["runs"]) == 1
    cli("start", "bake", "name=b", "--delay", "1h")
    assert len(json.loads(process.line())["runs"]) == 2
    assert process.stop(signal.SIGINT) == 130


def test_an_ephemeral_store_outlives_a_change_of_the_code_and_goes_with_the_command(tmp_path, processes):
    source = "from holdfast import Pack\n\npack = Pack('p')\n\n@pack.workflow\nasync def one() -> int:\n    return {}\n"
    module = tmp_path / "shifting.py"
    module.write_text(source.format(1))
    process = Process(
        *("dev", "shifting", "--port", "0", "--json", "--ephemeral", "--reload"), cwd=tmp_path, TMPDIR=str(tmp_path)
    )
    processes.append(process)
    before = json.loads(process.line())
    run = Cli(HOLDFAST_URL=before["url"])("start", "one", "--json").json
    module.write_text(source.format(22))
    after = json.loads(process.line())
    assert after["store"] == before["store"]
    assert [each["id"] for each in Cli(HOLDFAST_URL=after["url"])("runs", "--json").json["runs"]] == [run["id"]]
    assert process.stop() == 0, process.errors()
    assert not Path(before["store"].removeprefix("sqlite:///")).parent.exists()


def test_dev_starts_anew_when_the_code_of_a_pack_changes(tmp_path, processes):
    source = (
        "from holdfast import Pack\n\npack = Pack('p')\n\n@pack.workflow\nasync def {name}() -> int:\n    return 1\n"
    )
    module = tmp_path / "shifting.py"
    module.write_text(source.format(name="first"))
    process = Process("dev", "shifting", "--port", "0", "--json", "--reload", cwd=tmp_path)
    processes.append(process)

    def names():
        url = json.loads(process.line())["url"]
        return [each["name"] for each in Cli(HOLDFAST_URL=url)("workflows", "--json").json["workflows"]]

    assert names() == ["p.first"]
    module.write_text("broken(")
    until(lambda: "SyntaxError" in process.errors(), process.errors)
    module.write_text(source.format(name="second"))
    assert names() == ["p.second"]
    assert process.stop() == 0, process.errors()
