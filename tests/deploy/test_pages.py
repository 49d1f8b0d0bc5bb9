"""The pages about operating: each command on them exists, and the program of the guide runs on every store."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.deploy import settings
from tests.examples.pages import ROOT, blocks, name_of

GUIDE = ROOT / "docs" / "guides" / "replicas.md"
TROUBLES = ROOT / "docs" / "operating" / "troubleshooting.md"
PAGES = [GUIDE, *sorted((ROOT / "docs" / "operating").glob("*.md")), ROOT / "deploy" / "README.md"]
COMMENT = re.compile(r"\s+#.*$")
ASSIGNMENTS = re.compile(r"^(?:[A-Z_]+=\S+ )+")
# Programs that are not ours.
OTHERS = {"curl", "docker", "export", "kubectl", "pip", "python", "redis-cli", "redis-server", "sqlite3"}


def commands(page: Path) -> list[str]:
    """Every command line of a page: of its blocks, and those that stand in its text."""
    text = page.read_text(encoding="utf-8")
    typed = [line for block in blocks(page) if block.info == "sh" for line in block.body.splitlines()]
    named = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    typed += [each for each in named if each.split()[0] in OTHERS | {"holdfast"} and " " in each]
    return [ASSIGNMENTS.sub("", COMMENT.sub("", line)) for line in typed if line.strip()]


COMMANDS = [(page, line) for page in PAGES for line in dict.fromkeys(commands(page))]


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[f"{name_of(page)}: {line}" for page, line in COMMANDS])
def test_every_command_on_a_page_is_one_that_exists(page, line):
    _, _, ours = line.rpartition("-- ") if line.startswith("kubectl") else ("", "", line)
    ours = re.sub(r"^docker compose .* exec \w+ ", "", ours)
    if ours.startswith("holdfast ") and "--help" not in ours:
        settings.parsed_line(ours)
    else:
        assert line.split()[0] in OTHERS | {"holdfast"}, line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_setting_on_a_page_is_one_that_exists(page):
    assert set(re.findall(r"\bHOLDFAST_[A-Z_]+\b", page.read_text(encoding="utf-8"))) <= settings.VARIABLES


def test_the_links_of_the_page_beside_the_files_lead_somewhere():
    page = ROOT / "deploy" / "README.md"
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_each_trouble_has_a_command_and_a_cure():
    rows = [line.strip("|").split(" | ") for line in TROUBLES.read_text().splitlines() if line.startswith("| ")]
    troubles = [row for row in rows if row[0].strip() != "symptom"]
    assert len(troubles) >= 15
    for symptom, command, cure in troubles:
        assert symptom.strip()
        assert re.fullmatch(r"`[^`]+`", command.strip()), f"{symptom}: {command}"
        assert len(cure.split()) > 3


@pytest.mark.parametrize("where", ["sqlite", "redis and nats", "cluster"])
def test_the_program_of_the_guide_runs_on_each_store_by_changing_a_url(where, request, tmp_path):
    [program] = [block.body for block in blocks(GUIDE) if block.info == "python file"]
    (tmp_path / "shop.py").write_text(program)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    if where != "sqlite":
        server = request.getfixturevalue("redis_cluster" if where == "cluster" else "redis_server")
        environment["HOLDFAST_URL"] = f"{server.url}?name={tmp_path.name}"
    if where == "redis and nats":
        environment["HOLDFAST_BUS"] = request.getfixturevalue("nats_server").url
    said = [
        subprocess.run(
            [sys.executable, "shop.py"],
            cwd=tmp_path,
            env=environment | {"PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        for _ in range(2)
    ]
    assert [each.stdout for each in said] == [
        "True charged 4200 under charge:o-1\n",
        "False charged 4200 under charge:o-1\n",
    ], said


def test_doctor_looks_at_the_bus_that_the_environment_names(redis_server, nats_server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    doctor = Cli(HOLDFAST_URL=f"{redis_server.url}?name={tmp_path.name}", HOLDFAST_BUS=nats_server.url)
    findings = {finding["what"]: finding["level"] for finding in doctor("doctor", "--json").json["findings"]}
    assert findings["NATS"] == "ok", findings
