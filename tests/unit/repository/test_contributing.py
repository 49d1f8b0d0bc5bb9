"""CONTRIBUTING is complete: every make target, package, layer and test tier that there is stands on it."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "holdfast"
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z][a-z-]*):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
LINT_AND_TYPES = ["ruff format --check", "ruff check", "lint-imports", "basedpyright"]


def named_in(cells: list[str]) -> set[str]:
    return {name.strip("/") for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def first_cells(heading: str) -> list[str]:
    """The first column of the table whose heading this is."""
    table = PAGE.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0]
    return [line.split("|")[1] for line in table.splitlines()[2:]]


def test_every_make_target_is_on_the_page_and_no_other():
    assert named_in(first_cells("verb")) == {f"make {target}" for target in TARGETS}


def test_every_make_target_that_the_readme_names_exists():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"(?:^|`)(?:[A-Z]+=\w+ )?make ([a-z-]+)", readme, re.MULTILINE)) <= TARGETS


def test_every_module_and_package_at_the_top_level_is_on_the_page_and_no_other():
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert {name.removesuffix(".py") for name in named_in(first_cells("in `src/holdfast/`"))} == there - {"__init__"}


def test_every_room_of_the_engine_is_on_the_page():
    for room in (PACKAGE / "engine").iterdir():
        if (room / "__init__.py").is_file():
            assert f"`{room.name}`" in PAGE


def test_every_test_tier_is_on_the_page_and_no_other():
    tiers = {f"tests/{path.name}" for path in (ROOT / "tests").iterdir() if any(path.glob("**/*.py"))}
    assert named_in(first_cells("tier")) == tiers


def test_the_layers_on_the_page_are_those_that_are_checked():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    [layers] = [contract["layers"] for contract in contracts if contract["id"] == "layers"]
    assert "\n".join(["```", *layers, "```"]) in PAGE


def test_the_ci_runs_the_test_command_of_the_readme():
    assert (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1] == "make test"
    assert "\nmake test " in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_test_command_checks_format_lint_layers_and_types_before_the_suite():
    done = subprocess.run(["make", "--dry-run", "test"], cwd=ROOT, capture_output=True, text=True, check=True)
    places = [done.stdout.index(command) for command in [*LINT_AND_TYPES, "pytest"]]
    assert places == sorted(places)
