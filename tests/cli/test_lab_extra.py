"""The lab is behind an extra: nothing but its own commands imports it, and these say what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.conftest import ROOT

COUNT = "print(sorted(name for name in sys.modules if name.startswith('holdfast.lab')))"


def run(program: str) -> subprocess.CompletedProcess[str]:
    """A fresh process: in this one, much is imported already."""
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    "program",
    [
        "import holdfast",
        "import holdfast.assembly, holdfast.gateway, holdfast.server, holdfast.dashboard, holdfast.asgi",
        "import holdfast.cli.main",
        "from typer.testing import CliRunner; from holdfast.cli.main import app; CliRunner().invoke(app, ['version'])",
        "from typer.testing import CliRunner; from holdfast.cli.main import app; CliRunner().invoke(app, ['--help'])",
    ],
)
def test_nothing_but_its_own_commands_imports_the_lab(program: str) -> None:
    done = run(f"import sys; {program}; {COUNT}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("module", ["holdfast.lab", "hiredis", "nats"])
@pytest.mark.parametrize(
    "command",
    [["cluster", "up", "tests.cli.bakery"], ["cluster", "status"], ["cluster", "down"], ["gate"]],
    ids=" ".join,
)
def test_without_the_extra_its_commands_say_what_to_install(command: list[str], module: str) -> None:
    program = f"""
import sys
sys.modules[{module!r}] = None
sys.argv = ["holdfast", *{command!r}]
from holdfast.__main__ import main
main()
"""
    done = run(program)
    assert done.returncode == 2
    assert "extra `lab`" in done.stderr
    assert f"{module} cannot be imported" in " ".join(done.stderr.split())
    assert "pip install '.[lab]'" in done.stderr
    assert "Traceback" not in done.stderr
