"""`holdfast prove`: what it says meanwhile, what it refuses before it begins, and how it is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PACK = """
from holdfast import Pack

shop = Pack("cli_proved")
print("loading settings")

@shop.effect(key="charge:{order}")
async def charge(order: str) -> str:
    return order

@shop.workflow(key="{order}")
async def checkout(order: str) -> str:
    print("a word of the workflow")
    return await charge(order)
"""
BUSY = """

@shop.workflow(key="b:{order}")
async def busy(order: str) -> str:
    while True:
        pass
"""
HOLDFAST = Path(sys.executable).parent / "holdfast"
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "cli_proved.py").write_text(PACK)
    return tmp_path


def prove(here: Path, *arguments: str) -> Any:
    command = [str(HOLDFAST), "prove", *arguments]
    return subprocess.run(command, cwd=here, capture_output=True, text=True, check=False, timeout=100)


def test_what_users_print_is_not_in_the_report(here: Path):
    ran = prove(here, "cli_proved", "--budget", "10", "--json")
    assert ran.returncode == 0, ran.stderr
    assert [case["verdict"] for case in json.loads(ran.stdout)["cases"]] == ["proved"]
    assert "a word of the workflow" in ran.stderr


def test_a_finished_case_is_told_where_there_is_no_terminal(here: Path):
    ran = prove(here, "cli_proved", "--budget", "10")
    assert "✓ cli_proved.checkout proved, 10 worlds" in ran.stderr


def test_one_interruption_ends_it_and_finished_cases_keep_their_evidence(here: Path):
    (here / "cli_proved.py").write_text(PACK + BUSY)
    command = [str(HOLDFAST), "prove", "cli_proved", "--budget", "10"]
    with subprocess.Popen(command, cwd=here, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = next(line for line in process.stderr if "checkout proved" in line)
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=100)
    assert told
    assert process.returncode == 130, errors
    assert "stopped: 1 of 2 cases are done; cli_proved.busy: 0 of 1 worlds" in errors
    assert "Traceback" not in errors
    assert [file.name for file in (here / ".holdfast" / "evidence").iterdir()] == ["cli_proved.checkout.json"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--html", "a-directory"), "a-directory cannot be written: it is a directory"),
        (("--html", "nowhere/report.html"), "nowhere/report.html cannot be written: there is no such directory"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_before_anything_is_proved(here: Path, arguments, words):
    (here / "a-directory").mkdir()
    ran = prove(here, "cli_proved", *arguments)
    assert ran.returncode == 2
    assert words in ran.stderr
    assert "a word of the workflow" not in ran.stderr


def test_a_directory_that_cannot_be_written_is_refused_before_anything_is_proved(here: Path):
    (here / ".holdfast").write_text("a file")
    ran = prove(here, "cli_proved")
    assert ran.returncode == 2
    assert ".holdfast" in ran.stderr
    assert "cannot be written" in ran.stderr
    assert "hint" in ran.stderr
    assert "a word of the workflow" not in ran.stderr


def test_an_error_of_a_proof_names_it_and_its_line(here: Path):
    proof = (
        "\nfrom holdfast.testing import FakeWorld, prove\n\n@prove(checkout)\ndef the_world(world: FakeWorld) -> None:"
        '\n    raise RuntimeError("no such bank")\n'
    )
    (here / "cli_proved.py").write_text(PACK + proof)
    line = (PACK + proof).splitlines().index('    raise RuntimeError("no such bank")') + 1
    ran = prove(here, "cli_proved")
    assert ran.returncode == 2
    assert f"the proof the_world raises RuntimeError: no such bank (cli_proved.py:{line})" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_pack_without_workflows_is_an_error(here: Path):
    (here / "cli_proved.py").write_text('from holdfast import Pack\nshop = Pack("cli_proved")\n')
    ran = prove(here, "cli_proved")
    assert ran.returncode == 2
    assert "cli_proved has no workflow to prove" in ran.stderr
