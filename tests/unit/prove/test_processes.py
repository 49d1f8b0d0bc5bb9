"""Child processes, and what one process of a proof with real processes says of effects."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import HoldfastError, NotPerformed
from holdfast.prove import hash_seeds
from holdfast.prove.child_processes import ChildEnd, run_module
from holdfast.prove.one_process import OneProcess, ProcessPlan
from tests.unit.prove.cases_of_shop import Order, a_case, charge, shop


def a_process(directory: Path) -> OneProcess:
    plan = ProcessPlan(target=("tests.unit.prove.cases_of_shop",), case="a case", directory=str(directory))
    return OneProcess(plan, a_case())


async def test_another_process_is_given_its_arguments_and_environment():
    ended = await run_module(
        "timeit", "-n1", "-r1", "import os; print(os.environ['WORDS'])", environment={"WORDS": "hi"}
    )
    assert ended.code == 0
    assert ended.output.startswith(b"hi")


async def test_the_last_words_of_a_process_are_its_error():
    ended = await run_module("timeit", "raise ValueError('no')")
    assert ended.code != 0
    assert ended.last_words == "ValueError: no"
    assert ChildEnd(1, b"", b"").last_words == ""


async def test_a_process_that_takes_too_long_is_killed():
    with pytest.raises(TimeoutError):
        await run_module("timeit", "-n1", "-r1", "import time; time.sleep(600)", limit_seconds=0.2)


async def test_journals_that_cannot_be_replayed_elsewhere_name_the_reason(monkeypatch):
    async def run(*_: str, **__: object) -> ChildEnd:
        return ChildEnd(1, b"", b"Traceback\nModuleNotFoundError: No module named 'shop'")

    monkeypatch.setattr(hash_seeds, "run_module", run)
    with pytest.raises(HoldfastError, match="No module named 'shop'") as refused:
        await hash_seeds.divergences([], [shop])
    assert "python -c 'import tests.unit.prove.cases_of_shop'" in refused.value.hint


async def test_what_another_process_finds_is_told_once_for_each_run(monkeypatch):
    asked: list[str] = []

    async def run(*_: str, environment: dict[str, str]) -> ChildEnd:
        asked.append(environment["PYTHONHASHSEED"])
        return ChildEnd(0, b'{"r1": "another order"}' if environment["PYTHONHASHSEED"] == "2" else b"{}", b"")

    monkeypatch.setattr(hash_seeds, "run_module", run)
    assert await hash_seeds.divergences([], [shop]) == {"r1": "another order"}
    assert asked == [str(seed) for seed in hash_seeds.SEEDS]


async def test_an_effect_whose_process_was_killed_before_it_was_not_performed(tmp_path: Path):
    process = a_process(tmp_path)
    process.ledger.write(call="charge#1", run="r1", key="charge:o-1", arguments="{}")
    with pytest.raises(NotPerformed):
        await process.reconcile(charge, "charge:o-1")


async def test_an_effect_that_happened_is_reconciled_with_what_its_stub_returns(tmp_path: Path):
    process = a_process(tmp_path)
    process.ledger.write(call="charge#1", run="r1", key="charge:o-1", arguments="{}")
    process.ledger.write(done="charge#1", run="r1", key="charge:o-1")
    assert await process.reconcile(charge, "charge:o-1") == Order("stubbed", 3)
