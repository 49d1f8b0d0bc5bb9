from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import Holdfast, Pack
from holdfast.events import RunAdmitted, RunEnded
from holdfast.testing import EventRecorder, eventually, temporary_holdfast, temporary_store

pack = Pack("p")


@pack.workflow(key="echo:{word}")
async def echo(word: str) -> str:
    return word


async def test_the_first_true_value_is_returned() -> None:
    values = iter([0, "", None, "found", "later"])
    assert await eventually(lambda: next(values)) == "found"


async def test_an_async_condition_is_awaited() -> None:
    values = iter([0, 7])

    async def condition() -> int:
        await asyncio.sleep(0)
        return next(values)

    assert await eventually(condition) == 7


async def test_what_does_not_happen_is_named() -> None:
    with pytest.raises(TimeoutError, match=r"0\.01 s for the end of days"):
        await eventually(lambda: False, within=0.01, what="the end of days")


async def test_a_condition_that_hangs_is_given_up() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await eventually(hang, within=0.01)


async def test_events_are_recorded_and_waited_for() -> None:
    async with temporary_holdfast(packs=[pack]) as hf:
        recorder = EventRecorder(hf)
        waiting = asyncio.create_task(recorder.until(RunEnded, count=2))
        first, _ = await hf.start(echo("a"))
        second, _ = await hf.start(echo("b"))
        assert (await waiting).run_id in {first.id, second.id}
        assert [event.run_id for event in recorder.all(RunAdmitted)] == [first.id, second.id]
        assert [event.key for event in recorder.all(RunAdmitted, run_id=second.id)] == ["echo:b"]
        with pytest.raises(TimeoutError, match=r"RunEnded .*none.* happened 0 times"):
            await recorder.until(RunEnded, within=0.01, run_id="none")


async def test_a_temporary_store_outlives_a_holdfast_and_is_gone_afterwards() -> None:
    with temporary_store() as url:
        async with Holdfast(url, packs=[pack], worker=False) as hf:
            run, _ = await hf.start(echo("a"))
        async with Holdfast(url, packs=[pack]) as hf:
            assert await (await hf.get(run.id)).result() == "a"
        directory = Path(url.removeprefix("sqlite:///")).parent
        assert directory.is_dir()
    assert not directory.exists()


async def test_each_temporary_holdfast_has_a_store_of_its_own() -> None:
    for _ in range(2):
        async with temporary_holdfast(packs=[pack]) as hf:
            started = await hf.start(echo("a"))
            assert started.created
            assert await started.run.result() == "a"
