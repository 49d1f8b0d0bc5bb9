"""Mistakes in users' code: each is found, and the report names its line."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest

from holdfast.prove import cases, prover
from holdfast.prove.report import CaseReport, read_repeatable
from tests.prove import mistakes

MISTAKES = sorted(module.name for module in pkgutil.iter_modules(mistakes.__path__))
pytestmark = pytest.mark.timeout(600)  # a thousand worlds, on a busy machine
BUDGET = 75  # the rarest of them shows within 60; fewer worlds ask more of the prover


async def prove(name: str, directory: Path) -> list[CaseReport]:
    module = importlib.import_module(name)
    packs = cases.packs_of([module])
    options = prover.ProveOptions(target=(name,), seed=1, budget=BUDGET, directory=directory)
    return list((await prover.prove(cases.find([module], packs), packs, options)).cases)


def lines_of(name: str) -> set[str]:
    """The lines of a mistake: that which says so, or the step of it in the workflow."""
    file = Path(mistakes.__path__[0]) / f"{name}.py"
    lines = file.read_text().splitlines()
    return {f"{file.name}:{at}" for at, line in enumerate(lines, 1) if "the mistake" in line or "# the step" in line}


def test_there_are_twelve_and_more() -> None:
    assert len(MISTAKES) >= 12


@pytest.mark.parametrize("name", MISTAKES)
async def test_a_mistake_is_found_and_named(name: str, tmp_path: Path) -> None:
    [case] = await prove(f"tests.prove.mistakes.{name}", tmp_path)
    assert case.verdict == "failed", case
    lines = {found.line for found in case.found} | {word for found in case.found for word in found.what.split()}
    assert lines & lines_of(name), [(found.rule, found.what, found.line) for found in case.found]
    for found in case.found:
        assert read_repeatable(Path(found.file)).case == case.name
    assert not list(tmp_path.glob("**/evidence/*"))
