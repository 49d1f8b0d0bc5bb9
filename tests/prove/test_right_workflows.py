"""Workflows that are right are proved, whatever they look like from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.prove import cases, prover
from tests.prove import right_workflows

pytestmark = pytest.mark.timeout(600)  # a hundred worlds each, on a busy machine
BUDGET = 100
NAMES = sorted(name.partition(".")[2] for name in right_workflows.shop.workflows)


@pytest.mark.parametrize("name", NAMES)
async def test_what_is_right_is_proved(name: str, tmp_path: Path) -> None:
    packs = cases.packs_of([right_workflows])
    options = prover.ProveOptions(target=(right_workflows.__name__,), seed=1, budget=BUDGET, directory=tmp_path)
    for case in (await prover.prove(cases.find([right_workflows], packs, only=name), packs, options)).cases:
        assert case.verdict == "proved", (case.problem, [(each.rule, each.what, each.told) for each in case.found])
