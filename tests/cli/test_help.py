"""`holdfast --help` is told from a table, and a command is imported when it is called."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.main import get_command

from holdfast.cli import help_page
from holdfast.cli.commands import ABOUT, GROUPS, PANELS
from holdfast.cli.main import app
from tests.cli.conftest import COMMANDS, ROOT

NAMES = {name: words for commands in PANELS.values() for name, (_, words) in commands.items()}
HEAVY = {"asyncio", "click", "inspect", "msgspec", "pydantic", "rich", "typer", "typing", "importlib.metadata"}


def loaded(*arguments: str) -> set[str]:
    """The modules that a command loads in a fresh process, called as the installed script calls it."""
    script = """
import json, sys
known = set(sys.modules)
from holdfast.__main__ import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
sys.stderr.write("\\n" + json.dumps(sorted(set(sys.modules) - known)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_the_help_page_loads_nothing_but_itself():
    modules = loaded("--help")
    own = {name for name in modules if name.split(".")[0] == "holdfast"}
    assert own == {"holdfast", "holdfast.__main__", "holdfast.cli", "holdfast.cli.commands", "holdfast.cli.help_page"}
    assert modules & HEAVY == set()
    assert len(modules - own) <= 25, sorted(modules - own)  # what `importlib.util` needs


@pytest.mark.parametrize(
    ("arguments", "module", "others"),
    [
        (["version"], "version", ["holdfast.assembly", "holdfast.cli.session", "asyncio"]),
        (["runs", "--help"], "runs", ["holdfast.cli.bench", "holdfast.cli.doctor", "holdfast.cli.keys", "apsw"]),
        (["doctor", "-h"], "doctor", ["holdfast.cli.runs", "holdfast.cli.starts", "holdfast.cli.cluster"]),
        (["keys", "--help"], "keys", ["holdfast.cli.runs", "holdfast.cli.serving", "holdfast.cli.gate"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_a_command_loads_itself_and_no_other(arguments: list[str], module: str, others: list[str]):
    modules = loaded(*arguments)
    assert f"holdfast.cli.{module}" in modules
    assert modules & {*others, "holdfast.gateway", "holdfast.dashboard", "holdfast.server", "uvicorn"} == set()


def test_the_table_says_what_the_commands_say():
    assert [*COMMANDS.commands] == [*NAMES]
    assert len(COMMANDS.commands) == len(NAMES)
    for name, words in NAMES.items():
        command = COMMANDS.commands[name]
        assert command.help.partition("\n\n")[0].replace("\n", " ") == words, name
        assert command.name == name
        assert [*getattr(command, "commands", {})] == [*GROUPS.get(name, {})]
    assert COMMANDS.help == ABOUT


def test_the_page_shows_the_options_that_typer_has():
    context = COMMANDS.make_context("holdfast", [], resilient_parsing=True)
    options = {frozenset(each.opts): each.help for each in COMMANDS.get_params(context)}
    assert options == {frozenset(forms.split(", ")): words for forms, words in help_page.OPTIONS.items()}


def test_the_page_is_the_same_whichever_way_it_is_asked_for(cli):
    page = help_page.HelpPage(100, coloured=False).text()
    for arguments in (["--help"], ["-h"], ["--help", "runs"]):
        said = cli(*arguments, COLUMNS="100")
        assert (said.code, said.out.rstrip("\n"), said.err) == (0, page.rstrip("\n"), "")
    bare = cli(COLUMNS="100")
    assert (bare.code, bare.out.rstrip("\n"), bare.err) == (2, page.rstrip("\n"), "")
    for flag in ("--help", "-h"):
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", flag],
            env={"COLUMNS": "100", "PYTHONUTF8": "1", "PYTHONPATH": f"{ROOT}/src"},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout == page


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_page_fits_its_width_and_loses_no_word(width: int):
    page = help_page.HelpPage(width, coloured=False).text()
    assert {len(line) for line in page.splitlines() if line.startswith(("╭", "│", "╰"))} == {width}
    assert max(map(len, page.splitlines())) <= max(width, len(help_page.USAGE) + 8)
    told = " ".join(page.replace("│", " ").split())
    for name, words in NAMES.items():
        assert f"{name} {words}" in told


def test_the_page_has_colours_on_a_terminal_and_draws_with_what_the_output_can_show(monkeypatch):
    class Terminal:
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert "\x1b[1;36mdev" in help_page.help_page()
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in help_page.help_page()
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" in help_page.help_page()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in help_page.help_page()
    assert not help_page.help_page().isascii()
    monkeypatch.setattr(Terminal, "encoding", "iso8859-1")
    assert help_page.help_page().isascii()


def test_a_name_that_no_command_has_is_refused_and_the_likely_one_suggested(cli):
    said = cli("frobnicate")
    assert said.code == 2
    assert "No such command 'frobnicate'." in said.err
    assert "Did you mean 'runs'?" in cli("run").err
    assert "Did you mean 'create'?" in cli("keys", "creat").err
    assert "No such option: --frobnicate" in cli("--frobnicate").err


def test_a_shell_completes_the_names_of_commands_and_their_options(cli):
    shell = {"_HOLDFAST_COMPLETE": "complete_bash"}
    assert cli(COMP_WORDS="holdfast re", COMP_CWORD="1", **shell).out.split() == [
        *("result", "resume-hook", "receipt", "resume", "retry", "retry-now", "release-key", "replay-check")
    ]
    assert cli(COMP_WORDS="holdfast keys ", COMP_CWORD="2", **shell).out.split() == ["create", "list", "revoke"]
    assert "--key-prefix" in cli(COMP_WORDS="holdfast runs --k", COMP_CWORD="2", **shell).out.split()


def test_without_the_extra_the_help_page_says_how_to_get_it():
    program = "import sys; sys.modules['typer'] = None; from holdfast.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "--help"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert "extra `cli`" in done.stderr
    assert done.stdout == ""


def test_a_command_is_made_once():
    assert COMMANDS.commands["runs"] is get_command(app).commands["runs"]
    assert "runs" in COMMANDS.commands
    assert COMMANDS.commands.get("frobnicate") is None
