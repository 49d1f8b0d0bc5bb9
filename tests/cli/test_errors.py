"""Mistakes are answered with a message, a hint and an exit code, and never with a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.cli.session import exit_code_of
from tests.cli.conftest import ROOT


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UsageError("x"), 2),
        (errors.InvalidConfig("x"), 2),
        (errors.UnknownRun("x"), 2),
        (errors.RunFailed("1", "ValueError", "x"), 1),
        (errors.RunCancelled("1"), 1),
        (errors.ReplayDiverged("x"), 1),
        (errors.EngineFault("x"), 1),
        (errors.StoreUnavailable("x"), 75),
        (errors.GatewayUnavailable("x"), 75),
        (errors.TimedOut("x"), 75),
    ],
)
def test_every_kind_of_error_has_its_exit_code(error, code):
    assert exit_code_of(error) == code


@pytest.mark.parametrize(
    ("source", "name", "says"),
    [
        (None, "bred", "there is no module 'bred'"),
        (None, "bred.sub", "there is no module 'bred.sub'"),
        (None, "./bred.py", "is a path, not a module"),
        ("x = 1", "bred", "module 'bred' has no pack"),
        ("def broken(:", "bred", "cannot be imported: SyntaxError"),
        ("1 / 0", "bred", "cannot be imported: ZeroDivisionError"),
        ("import no_such_thing", "bred", "needs 'no_such_thing', which is not installed"),
        ("from holdfast import Pack\np = Pack('p')\nx = 1", "bred:q", "'q' of module 'bred' is not there"),
        ("from holdfast import Pack\np = Pack('p')\nx = 1", "bred:x", "is no Pack but int"),
        ("from holdfast import Pack\na = Pack('p')\nb = Pack('p')", "bred", "two packs are named 'p'"),
    ],
)
@pytest.mark.parametrize("command", ["dev", "worker"])
def test_a_pack_that_cannot_be_loaded_is_named_with_the_reason(cli, monkeypatch, source, name, says, command):
    monkeypatch.delitem(sys.modules, "bred", raising=False)
    if source is not None:
        Path("bred.py").write_text(source)
    said = cli(command, name)
    monkeypatch.delitem(sys.modules, "bred", raising=False)
    assert said.code == 2
    assert says in said.err
    assert "hint:" in said.err
    assert "<frozen" not in said.err
    if "cannot be imported" in says:
        assert "bred.py:1." in said.err
    assert "Traceback" not in said.err


def test_a_function_that_holdfast_refuses_is_found_in_the_users_file(cli, monkeypatch):
    monkeypatch.delitem(sys.modules, "oops", raising=False)
    Path("oops.py").write_text(
        "from holdfast import Pack\np = Pack('p')\n\n@p.effect\nasync def charge(self, n: int) -> None: ...\n"
    )
    said = cli("worker", "oops")
    monkeypatch.delitem(sys.modules, "oops", raising=False)
    assert said.code == 2
    assert "(oops.py:4) takes 'self', as a method does" in said.err
    assert f"It was raised at {Path('oops.py').resolve()}:" in said.err
    assert "signatures.py" not in said.err


@pytest.mark.parametrize("command", ["dev", "dev --reload", "worker", "serve --roles gateway,worker"])
def test_a_process_without_packs_says_how_to_name_one(cli, command):
    said = cli(*command.split())
    assert said.code == 2
    assert f"holdfast {command.removesuffix(' --reload')} shop.orders" in said.err


def test_a_store_that_is_not_there_is_not_made_by_looking(cli):
    said = cli("runs")
    assert said.code == 2
    assert "there is no store at holdfast.db" in said.err
    assert not Path("holdfast.db").exists()


def test_a_file_that_is_no_store_is_refused(cli):
    Path("holdfast.db").write_text("not a database, but long enough to look at" * 100)
    said = cli("runs", "--json")
    assert (said.code, said.problem["code"]) == (2, "invalid_config")


def test_faults_of_the_settings_are_told_together(cli):
    Path("holdfast.toml").write_text("port = -1\ncolour = 'red'\n")
    said = cli("runs", HOLDFAST_LEASE="x")
    assert said.code == 2
    for part in ("holdfast.toml: port", "holdfast.toml: colour", "HOLDFAST_LEASE"):
        assert part in said.err


def test_a_settings_file_may_be_named(cli):
    Path("other.toml").write_text("url = 'sqlite:///elsewhere.db'\n")
    assert "elsewhere.db" in cli("runs", "--config", "other.toml").err
    assert "elsewhere.db" in cli("runs", HOLDFAST_CONFIG="other.toml").err


@pytest.mark.parametrize("arguments", [("nonsense",), ("runs", "--nonsense"), ("show",), ("runs", "--limit", "many")])
def test_a_command_line_that_makes_no_sense_exits_with_2(cli, arguments):
    assert cli(*arguments).code == 2


def test_a_gateway_that_is_not_there_exits_with_75(cli):
    said = cli("runs", "--url", "http://127.0.0.1:1", "--json")
    assert (said.code, said.problem["code"]) == (75, "gateway_unavailable")


@pytest.mark.parametrize("command", ["dev", "worker", "serve", "bench"])
def test_what_needs_a_store_refuses_a_gateway(cli, command):
    packs = ("tests.cli.bakery",) if command != "bench" else ()
    said = cli(command, *packs, "--url", "http://127.0.0.1:1")
    assert said.code == 2
    assert "gateway" in said.err


def test_a_namespace_cannot_be_chosen_at_a_gateway(cli):
    assert "The API key decides" in cli("runs", "--url", "http://127.0.0.1:1", "--namespace", "other").err


def test_what_others_wrote_is_shown_and_not_obeyed(cli):
    key = "[red]a\x1b[31mb\x07[/red]"
    run = cli("start", "bake", "name=x", "--pack", "tests.cli.bakery", "--key", key, "--json").json
    assert run["key"] == key
    for command in (("runs",), ("show", run["id"]), ("explain", run["id"]), ("show", f"bakery.bake/{key}x")):
        said = cli(*command)
        assert "[red]a\\x1b[31mb" in said.out + said.err, command
        assert not {"\x1b", "\x07"} & {*said.out, *said.err}


def test_without_the_extra_one_is_told_how_to_get_it():
    program = "import sys; sys.modules['typer'] = None; from holdfast.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert "extra `cli`" in done.stderr
    assert "Traceback" not in done.stderr
