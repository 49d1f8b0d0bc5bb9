"""Several cases of one proof: each is judged by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.prove import cases, prover
from holdfast.prove.report import CaseReport
from tests.unit.prove import two_cases

BUDGET = 10


async def prove(directory: Path, *modules: Any, only: str | None = None, budget: int = BUDGET) -> list[CaseReport]:
    packs = cases.packs_of(modules)
    target = tuple(module.__name__ for module in modules)
    options = prover.ProveOptions(target=target, seed=1, budget=budget, directory=directory)
    return list((await prover.prove(cases.find(list(modules), packs, only=only), packs, options)).cases)


async def test_each_case_is_replayed_elsewhere_by_its_own_journals(tmp_path: Path):
    wrong, right = await prove(tmp_path, two_cases)
    assert [found.rule for found in wrong.found] == ["it depends on its process"]
    assert right.verdict == "proved", right.found
