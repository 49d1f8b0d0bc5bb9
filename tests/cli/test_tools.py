"""`doctor`, `bench`, `replay-check`, `version`, completion and help."""

from __future__ import annotations

import io
import json
import re
from importlib import metadata
from pathlib import Path

import pytest
from rich.console import Console
from typer.main import get_command

from holdfast.cli import completions, divergences, doctor, watch
from holdfast.cli.main import app
from holdfast.cli.output import Output
from holdfast.cli.watch import View
from holdfast.client import Replayed
from tests.cli.conftest import ROOT

PACK = ("--pack", "tests.cli.bakery")


def levels(said):
    return {finding["what"]: finding["level"] for finding in json.loads(said.out)["findings"]}


def test_doctor_finds_nothing_wrong_with_a_good_store(cli):
    assert "none serves queue 'default'" in cli("start", "bake", "name=a", *PACK).err
    said = cli("doctor", *PACK, "--json")
    assert said.code == 0, said
    assert "error" not in levels(said).values()
    assert "bakery (4 workflows)" in cli("doctor", *PACK).out


def test_doctor_says_whether_somebody_attends_to_the_duties(cli, development):
    cli("start", "bake", "name=a", *PACK)
    assert levels(cli("doctor", "--json"))["duties"] == "warning"
    assert "no process attends to rescuer, pruner, relay" in cli("doctor").out
    there = cli("doctor", "--json", "--url", development["store"])
    [duties] = [finding for finding in there.json["findings"] if finding["what"] == "duties"]
    assert duties["level"] == "ok"
    assert re.fullmatch(r"rescuer: (\S+-\d+-\w{4}), pruner: \1, relay: \1, timeouts: \1", duties["detail"])


@pytest.mark.parametrize(
    ("arguments", "environment", "what"),
    [
        (("--url", "http://127.0.0.1:1"), {}, "gateway"),
        (("--pack", "no_such_module"), {}, "packs"),
        ((), {"HOLDFAST_PORT": "x"}, "settings"),
    ],
)
def test_doctor_exits_with_1_if_something_cannot_work(cli, arguments, environment, what):
    said = cli("doctor", *arguments, "--json", **environment)
    assert said.code == 1
    assert levels(said)[what] == "error"


def test_doctor_says_if_the_store_is_no_store(cli):
    Path("holdfast.db").write_text("not a database, but long enough to look at" * 100)
    said = cli("doctor", "--json")
    assert said.code == 1
    assert levels(said)["store"] == "error"


def test_doctor_doubts_variables_that_nothing_reads(cli):
    said = cli("doctor", HOLDFAST_NAMESPAEC="typo")
    assert said.code == 0
    assert "HOLDFAST_NAMESPAEC" in said.out


def test_doctor_knows_every_variable_that_the_code_reads():
    read = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r"environ(?:\.get\(|\[)\"(HOLDFAST_\w+)\"", path.read_text(encoding="utf-8"))
    }
    assert read == set(doctor.OTHERS)


def test_doctor_makes_nothing_and_says_what_it_looked_for(cli):
    said = cli("doctor")
    assert said.code == 0
    assert list(Path().iterdir()) == []
    for name in ("holdfast.db", "holdfast.toml"):
        assert str(Path(name).absolute()) in " ".join(said.out.split())


def test_bench_compares_with_a_floor_and_leaves_nothing_behind(cli):
    measures = cli("bench", "--runs", "20", "--json").json["measures"]
    assert [measure["name"] for measure in measures] == [
        "keyed starts",
        "effects",
        "start to result, p50",
        "start to result, p99",
    ]
    for measure in measures:
        assert measure["ratio"] == pytest.approx(measure["value"] / measure["floor"])
    assert list(Path().iterdir()) == []


def test_journals_are_exported_and_replayed_without_the_store(cli, tmp_path):
    run_id = cli("start", "bake", "name=a", "--delay", "1h", *PACK, "--json").json["id"]
    directory = tmp_path / "journals"
    said = cli("journals", "export", str(directory), "--json").json
    assert said == {"files": [str(directory / f"{run_id}.json")], "left_out": []}
    assert "1 journals written into" in cli("journals", "export", str(directory)).out
    nowhere = ("--url", f"sqlite:///{tmp_path}/nothing.db", "--journals", str(directory))
    assert "1 runs replayed, all of them fit." in cli("replay-check", *PACK, *nowhere).out
    assert not (tmp_path / "nothing.db").exists()
    said = cli("replay-check", "--pack", "examples.shop", *nowhere)
    assert (said.code, "bakery.bake" in said.out) == (1, True)
    assert cli("replay-check", *nowhere).code == 2  # no code to replay against
    assert cli("replay-check", *PACK, *nowhere, "--limit", "1").code == 2
    assert cli("replay-check", *PACK, "--journals", str(tmp_path)).code == 2  # there are none


def test_replay_check_names_the_runs_that_new_code_does_not_fit(cli):
    cli("start", "bake", "name=a", "--delay", "1h", *PACK)
    assert cli("replay-check", *PACK, "--json").json["diverged"] == 0
    assert "1 runs replayed, all of them fit." in cli("replay-check", *PACK).out
    said = cli("replay-check", "--pack", "examples.shop")  # which knows nothing of bakeries
    assert said.code == 1
    assert "bakery.bake" in said.out
    assert cli("replay-check").code == 2  # a wrong call, and no finding


def test_runs_that_do_not_fit_for_one_cause_are_one_finding(cli):
    runs = [cli("start", "bake", f"name={name}", "--delay", "1h", *PACK, "--json").json["id"] for name in "ab"]
    said = cli("replay-check", "--pack", "examples.shop")
    assert said.out.count("2 runs of bakery.bake: ") == 1
    assert all(run in said.out for run in runs)
    assert "patched" not in said.out  # the workflow is not there at all

    def diverged(n: int, step: str) -> Replayed:
        run = f"{n:032x}"
        text = (
            f"run {run}: the journal has performed {step}#1 as entry 1 (effect {step}, key '{step}:o-{n}', input "
            f"0a0b0c0{n}); the code waits for pack#1 (effect pack, key 'pack:o-{n}'). What was recorded returned {n}"
        )
        return Replayed(run, "shop.checkout", text)

    found = divergences.by_cause(
        [diverged(1, "charge"), diverged(2, "ship"), Replayed("x", "shop.checkout", ""), diverged(3, "charge")]
    )
    assert [[each.run_id[-1] for each in alike] for alike in found] == [["1", "3"], ["2"]]
    console = Console(width=4096, record=True, file=io.StringIO())
    console.print(divergences.shown(found))
    text = console.export_text()
    assert (text.count("patched("), text.count("the journal has")) == (1, 2)
    assert "2 runs of shop.checkout: the journal has performed charge#1" in text


def test_workflows_are_listed_without_a_store(cli):
    assert "name, grams" in cli("workflows", *PACK).out
    assert "name a pack" in cli("workflows").out
    assert not Path("holdfast.db").exists()


def test_version_is_that_of_the_package(cli):
    for arguments in (["version"], ["--version"]):
        said = cli(*arguments)
        assert (said.code, said.out.strip()) == (0, metadata.version("holdfast"))
    assert cli("version", "--json").json == {"version": metadata.version("holdfast")}


def test_names_and_runs_are_completed_and_nothing_is_ever_said(cli, monkeypatch, capfd):
    assert completions.run_ids("") == []
    assert completions.workflow_names("") == []
    assert not Path("holdfast.db").exists()
    run = cli("start", "bake", "name=a", "--json", *PACK).json["id"]
    monkeypatch.setenv("HOLDFAST_PACKS", "tests.cli.bakery")
    assert completions.run_ids(run[:5]) == [run]
    assert completions.run_ids("x") == []
    assert completions.workflow_names("bakery.o") == ["bakery.order"]
    shell = {"_HOLDFAST_COMPLETE": "complete_bash", "COMP_CWORD": "2", "HOLDFAST_PACKS": "tests.cli.bakery"}
    assert cli(COMP_WORDS="holdfast start bakery.b", **shell).out == "bakery.bake\n"
    assert cli(COMP_WORDS=f"holdfast show {run[:20]}", **shell).out == f"{run}\n"
    monkeypatch.setenv("HOLDFAST_PACKS", "no_such_module")
    assert completions.workflow_names("") == []
    assert capfd.readouterr() == ("", "")


def commands(group=None, path=()):
    group = group or get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def test_there_is_a_command_for_every_verb():
    wanted = "dev serve worker start runs show result signal cancel resume retry fork explain workflows workers"
    names = {path[0] for path, _ in commands()}
    assert {*wanted.split(), "keys", "doctor", "bench"} <= names


@pytest.mark.parametrize(("path", "command"), [pytest.param(*each, id=" ".join(each[0])) for each in commands()])
def test_every_command_and_every_option_has_help(cli, path, command):
    assert command.help
    assert [parameter.name for parameter in command.params if not parameter.help] == []
    assert cli(*path, "--help").code == 0


@pytest.mark.parametrize("columns", ["60", "200"])
def test_tables_fit_narrow_terminals_and_keep_ids_whole(cli, columns):
    run = cli("start", "bake", f"name={'long' * 20}", "--json", *PACK).json["id"]
    shown = cli("runs", COLUMNS=columns).out
    assert run in shown
    assert "pending" in shown
    assert max(map(len, shown.splitlines())) <= int(columns)


def test_eighty_columns_keep_status_key_and_reason(cli):
    run = cli("start", "bake", "name=a", "--delay", "1h", "--json", *PACK).json["id"]
    shown = cli("runs", COLUMNS="80").out
    for part in (run, "pending", "bakery.bake", "bake:a", "waits for its delayed start"):
        assert part in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_colours_are_for_terminals_only(cli):
    cli("start", "bake", "name=a", *PACK)
    assert "\x1b" not in cli("runs").out
    assert "\x1b[" in cli("runs", FORCE_COLOR="1").out
    assert "\x1b[3" not in cli("runs", FORCE_COLOR="1", NO_COLOR="1").out


async def test_a_view_is_told_anew_only_when_it_has_changed(capsys):
    seen = iter([View("a", ""), View("a", ""), View("b", ""), View("b", ""), View("a", "", over=True)])

    async def look():
        return next(seen)

    await watch.keep_showing(Output(as_json=True), look, every_seconds=0)
    assert capsys.readouterr().out.splitlines() == ['"a"', '"b"', '"a"']
