"""What the tests of faults share: the nest that hatches processes, and worlds that are cleared away afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.cases import Case
from tests.faults.processes import Nest

NewCase = Callable[[str], Case]


@pytest.fixture(scope="session")
def nest() -> Iterator[Nest]:
    nest = Nest()
    yield nest
    nest.close()


@pytest.fixture
def new_case(tmp_path: Path, nest: Nest) -> Iterator[NewCase]:
    """Makes worlds by name; nothing of them outlives the test."""
    cases: list[Case] = []

    def make(name: str) -> Case:
        cases.append(case := Case(tmp_path / name, nest))
        return case

    yield make
    for case in cases:
        case.processes.clear_away()


@pytest.fixture
def case(new_case: NewCase) -> Case:
    return new_case("case")
