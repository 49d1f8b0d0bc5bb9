"""Several cases of one proof: each is judged by itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.prove import cases, prover
from holdfast.prove.report import CaseReport, read_repeatable
from tests.prove import restless
from tests.unit.prove import two_cases

BUDGET = 10


async def prove(directory: Path, *modules: Any, only: str | None = None, **changes: Any) -> list[CaseReport]:
    packs = cases.packs_of(modules)
    target = tuple(module.__name__ for module in modules)
    options = prover.ProveOptions(**{"target": target, "seed": 1, "budget": BUDGET, "directory": directory, **changes})
    return list((await prover.prove(cases.find(list(modules), packs, only=only), packs, options)).cases)


async def test_each_case_is_replayed_elsewhere_by_its_own_journals(tmp_path: Path):
    wrong, right, *_ = await prove(tmp_path, two_cases)
    assert [found.rule for found in wrong.found] == ["it depends on its process"]
    assert right.verdict == "proved", right.found


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("busy", r"it computes for too long: more than 0\.3 s of the processor in one world \(restless\.py:2[01]\)"),
        ("turns", "it computes for too long|it never comes to rest"),
    ],
)
async def test_a_workflow_that_does_not_come_to_an_end_is_not_proved(name: str, words: str, tmp_path: Path):
    [case] = await prove(tmp_path, restless, only=name, world_seconds_max=0.3)
    assert case.verdict == "not proved"
    assert re.search(words, case.problem), case.problem


async def test_code_that_catches_everything_and_waits_again_holds_up_no_world(tmp_path: Path):
    """It never ends, but it rests: what is let go from memory must not be waited for."""
    [case] = await prove(tmp_path, restless, only="swallows")
    assert case.verdict == "proved", case.problem


async def test_each_run_of_a_proof_keeps_its_worlds_in_files_of_its_own(tmp_path: Path):
    reports = await prove(tmp_path, two_cases, only="a_walks_a_set_of")
    assert [case.verdict for case in reports] == ["failed", "failed"]
    files = [found.file for case in reports for found in case.found]
    assert [read_repeatable(Path(file)).case for file in files] == [case.name for case in reports for _ in case.found]
