"""The arguments of effects are recorded where a workflow or a Holdfast says so, and can be read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import UNSET, json

from holdfast import Holdfast, NotPerformed, Pack, Retry, Run, RunFailed, sleep
from holdfast.journal import Journal
from holdfast.kernel.journal import EffectEntry, Value
from tests.integration.conftest import Home
from tests.integration.wrappers import CountingStore

LARGE = "x" * 300_000


class Works:
    """One workflow for each thing that it may say."""

    def __init__(self) -> None:
        self.pack = pack = Pack("p")
        self.calls: list[str] = []
        self.fails = 0

        @pack.effect
        async def restock(order: str, result: str) -> None:
            pass

        @pack.effect(retry=Retry(attempts=3, base=0.001), undo=restock)
        async def charge(order: str, amount: int = 7) -> str:
            self.calls.append(order)
            if len(self.calls) <= self.fails:
                raise OSError("no")
            return "charged"

        async def was_launched(key: str) -> str:
            raise NotPerformed(key)

        @pack.effect(safety="once", reconcile=was_launched)
        async def launch(order: str) -> str:
            return "launched"

        async def work(order: str) -> str:
            return await charge(order, amount=3) + await launch(order)

        def named(name: str) -> Any:
            async def code(order: str) -> str:
                return await work(order)

            code.__name__ = code.__qualname__ = name
            return code

        self.silent = pack.workflow(named("silent"))
        self.told = pack.workflow(record_inputs=True)(named("told"))
        self.never = pack.workflow(record_inputs=False)(named("never"))

        @pack.workflow(record_inputs=True, key="cancelled")
        async def cancelled() -> None:
            await charge("c", 1)
            await sleep("1h")

        self.cancelled = cancelled


@pytest.fixture
def works() -> Works:
    return Works()


def read(value: Value | None) -> Any:
    return None if value is None or value.json is UNSET else json.decode(value.json)


def inputs(journal: Journal) -> list[tuple[str, str, Any]]:
    return [(each.what, each.step, read(each.input)) for each in journal if isinstance(each, EffectEntry)]


RECORDED = [
    ("performed", "charge#1", {"order": "a", "amount": 3}),
    ("intended", "launch#1", {"order": "a"}),
    ("performed", "launch#1", None),  # the intent has them
]


@pytest.mark.parametrize(
    ("name", "option", "are_recorded"),
    [
        ("silent", False, False),
        ("silent", True, True),
        ("told", False, True),
        ("told", True, True),
        ("never", True, False),
    ],
)
async def test_a_workflow_says_whether_inputs_are_recorded_or_else_the_holdfast_does(
    home: Home, works: Works, name: str, option: bool, are_recorded: bool
) -> None:
    async with home.holdfast(works.pack, record_inputs=option) as hf:
        run: Run[str] = (await hf.start(getattr(works, name)("a"))).run
        assert await run.result() == "chargedlaunched"
        found = inputs(await run.journal())
    assert found == (RECORDED if are_recorded else [(what, step, None) for what, step, _ in RECORDED])


async def test_the_first_entry_of_a_step_has_them_and_no_other(home: Home, works: Works) -> None:
    works.fails = 2
    async with home.holdfast(works.pack) as hf:
        run = (await hf.start(works.told("a"))).run
        await run.result()
        charged = [each for each in inputs(await run.journal()) if each[1] == "charge#1"]
    assert charged == [
        ("attempted", "charge#1", {"order": "a", "amount": 3}),
        ("attempted", "charge#1", None),
        ("performed", "charge#1", None),
    ]


async def test_what_an_undo_was_given_is_recorded_too(home: Home, works: Works) -> None:
    async with home.holdfast(works.pack) as hf:
        run = (await hf.start(works.cancelled())).run
        async for event in run.events():
            if event.entry.what == "performed":
                break
        await run.cancel()
        assert inputs(await run.journal()) == [
            ("performed", "charge#1", {"order": "c", "amount": 1}),
            ("performed", "undo:charge#1", {"order": "c", "result": "charged"}),
        ]


async def test_a_large_input_is_kept_beside_the_journal_and_a_replay_does_not_read_it(home: Home, works: Works) -> None:
    works.fails = 99
    stores: list[CountingStore] = []

    def through(store: Any) -> CountingStore:
        stores.append(CountingStore(store))
        return stores[-1]

    async with home.holdfast(works.pack, through=through) as hf:
        run = (await hf.start(works.told(LARGE))).run
        with pytest.raises(RunFailed):
            await run.result()
        [first, *_] = [each for each in await run.journal() if isinstance(each, EffectEntry)]
        assert first.input is not None
        assert (first.input.json, first.input.size > len(LARGE)) == (UNSET, True)
        blob = await hf.runtime.store.blob(run.id, first.input.blob)
        assert blob is not None
        assert json.decode(blob) == {"order": LARGE, "amount": 3}
        before, read_before = len(works.calls), stores[0].calls["blob"]
        works.fails = 0
        await run.retry()
        assert await run.result() == "chargedlaunched"
        assert len(works.calls) == before + 1
        assert stores[0].calls["blob"] == read_before + 1  # the input of the run itself


async def test_a_fork_has_the_inputs_of_what_it_copies(home: Home, works: Works) -> None:
    async with home.holdfast(works.pack) as hf:
        run = (await hf.start(works.told(LARGE))).run
        await run.result()
        fork = await run.fork("launch#1")
        await fork.result()
        [first, *_] = [each for each in await fork.journal() if isinstance(each, EffectEntry)]
        assert first.input is not None
        assert await hf.runtime.store.blob(fork.id, first.input.blob) is not None
        assert [each.divergence for each in await hf.replay_check(status=None)] == ["", ""]


async def test_a_blocking_holdfast_takes_the_option_too(works: Works) -> None:
    def run() -> list[tuple[str, str, Any]]:
        with Holdfast.blocking("memory://", packs=[works.pack], worker=True, record_inputs=True) as hf:
            started = hf.start(works.silent("a")).run
            started.result()
            return inputs(started.journal())

    assert await asyncio.to_thread(run) == RECORDED
