"""A clean run that fails proves nothing, unless its proof says that it is to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.prove import cases, prover
from holdfast.prove.report import CaseReport
from tests.prove import failing_workflows

pytestmark = pytest.mark.timeout(600)


async def prove(only: str, directory: Path) -> CaseReport:
    packs = cases.packs_of([failing_workflows])
    options = prover.ProveOptions(target=(failing_workflows.__name__,), seed=1, budget=12, directory=directory)
    found = cases.find([failing_workflows], packs, only=only)
    [case] = (await prover.prove(found, packs, options)).cases
    return case


async def test_a_run_that_fails_by_a_mistake_is_not_proved(tmp_path: Path) -> None:
    case = await prove("mistyped", tmp_path)
    assert case.verdict == "not proved"
    lines = (Path(failing_workflows.__file__)).read_text().splitlines()
    [line] = [at for at, words in enumerate(lines, 1) if "# the line" in words]
    assert "AttributeError: 'NoneType' object has no attribute 'name'" in case.problem
    assert f"(failing_workflows.py:{line})" in case.problem
    assert not list(tmp_path.glob("**/evidence/*"))


async def test_a_run_that_is_to_fail_is_proved(tmp_path: Path) -> None:
    case = await prove("rejected", tmp_path)
    assert case.verdict == "proved", (case.problem, case.found)


@pytest.mark.parametrize(
    ("only", "why"),
    [
        ("refused", "the clean run fails with Rejected: we have none (failing_workflows.py:"),
        ("taken", "the clean run does not fail, and is to fail with Rejected"),
    ],
)
async def test_a_run_that_does_not_fail_as_its_proof_says_is_not_proved(only: str, why: str, tmp_path: Path) -> None:
    case = await prove(only, tmp_path)
    assert case.verdict == "not proved"
    assert case.problem.startswith(why)
