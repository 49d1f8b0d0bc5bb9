"""`HOLDFAST_SEAL`: commands that have the seal, and those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli

PACKS = "tests.cli.bakery"
LOCK = "tests.cli.locks:lock"


def test_commands_with_the_seal_read_what_those_without_it_only_show(cli: Cli, tmp_path: Path):
    there = {"HOLDFAST_URL": f"sqlite:///{tmp_path}/sealed.db", "HOLDFAST_PACKS": PACKS}
    run = cli("start", "bake", "name=rye-canary", "--json", HOLDFAST_SEAL=LOCK, **there).json["id"]
    assert cli("input", run, HOLDFAST_SEAL=LOCK, **there).json["name"] == "rye-canary"
    assert b'"name":"rye-canary"' not in b"".join(file.read_bytes() for file in tmp_path.glob("sealed.db*"))
    refused = cli("input", run, "--json", **there)
    assert (refused.code != 0, refused.problem["code"]) == (True, "sealed_payload")
    assert "key 'k1'" in refused.err
    [first] = cli("journal", run, **there).lines
    assert first["input"]["sealed"] == "k1"
    assert cli("show", run, **there).code == 0


@pytest.mark.parametrize(
    "name", ["tests.cli.locks:key", "tests.cli.locks:none", "tests.cli.locks", "tests.cli.no:lock"]
)
def test_what_is_no_seal_is_refused_before_anything_is_stored(cli: Cli, tmp_path: Path, name: str):
    there = {"HOLDFAST_URL": f"sqlite:///{tmp_path}/none.db", "HOLDFAST_PACKS": PACKS}
    said = cli("start", "bake", "name=rye", "--json", HOLDFAST_SEAL=name, **there)
    assert (said.code != 0, said.problem["code"]) == (True, "invalid_config")
    assert not (tmp_path / "none.db").exists()
