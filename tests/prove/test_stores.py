"""The prover itself: a store that takes late writes fails every pack, and a good one none."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.kernel.changes import Change
from holdfast.kernel.runs import Fenced
from holdfast.prove import cases, prover
from holdfast.prove.explorer import Explored
from holdfast.prove.report import CaseReport
from holdfast.stores.memory.writes import MemoryWrites
from holdfast.testing.simulation.network import Observer, StoreModel
from holdfast.testing.simulation.world import World

PACKS = ("agent", "approvals", "demo_shop", "encryption", "onboarding", "orders", "shop", "thumbnails")
pytestmark = pytest.mark.timeout(600)  # thousands of worlds, on a busy machine
BUDGET = 60


class Found(Exception):
    """What was looked for: the worlds that are left show it again."""


def a_store_that_takes_late_writes(world: World, observer: Observer) -> StoreModel:
    """Neither the fence nor the length of the journal is looked at."""
    model = StoreModel(world, observer)
    writes: Any = model.inner._writes
    update = MemoryWrites._update

    def unguarded(change: Change, guard: Fenced) -> Any:
        current = writes._tables.runs.get(guard.run_id)
        if current is not None and change.run is not None and current.change_id != change.id:
            change = replace(change, run=replace(change.run, length=current.length + len(change.entries)))
            guard = current.fence
        return update(writes, change, guard)

    writes._update = unguarded
    return model


def until_found(_: str, explored: Explored) -> None:
    if explored.verdict == "failed":
        raise Found


async def prove(name: str, directory: Path, *, store: Any = None, tell: Any = lambda *_: None) -> list[CaseReport]:
    module = importlib.import_module(f"examples.{name}")
    packs = cases.packs_of([module])
    options = prover.ProveOptions(target=(f"examples.{name}",), seed=1, budget=BUDGET, directory=directory)
    return list((await prover.prove(cases.find([module], packs, store=store), packs, options, tell)).cases)


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKS)
async def test_the_examples_are_proved(name: str, tmp_path: Path) -> None:
    for case in await prove(name, tmp_path):
        assert case.verdict == "proved", (case.problem, [(each.rule, each.what, each.told) for each in case.found])


@pytest.mark.parametrize("name", PACKS)
async def test_a_store_with_a_broken_fence_fails_every_pack(name: str, tmp_path: Path) -> None:
    with pytest.raises(Found):
        await prove(name, tmp_path, store=a_store_that_takes_late_writes, tell=until_found)
