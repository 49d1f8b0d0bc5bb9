"""Whatever code raises is an outcome of the code, never a fault of the engine: the run ends, and can be looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast, Pack, Retry, RunFailed
from holdfast.events import RunBlocked, RunLetGo
from tests.integration.conftest import Home, heard
from tests.odd_exceptions import ODD, NoWords, Unrepresentable, itself

odd = Pack("odd")
ONCE = Retry(attempts=1)


@odd.effect(retry=ONCE)
async def raising(name: str) -> None:
    ODD[name]()


@odd.effect(retry=ONCE)
def raising_in_a_thread(name: str) -> None:
    ODD[name]()


@odd.effect(retry=Retry(attempts=2, base=0, on=(BaseException,)))
async def raising_twice(name: str) -> None:
    ODD[name]()


@odd.kernel
def raising_kernel(name: str) -> None:
    ODD[name]()


@odd.effect(undo=raising)
async def undone_by_raising(name: str) -> None:
    del name


@odd.workflow
async def of_an_effect(name: str) -> None:
    await raising(name)


@odd.workflow
async def of_a_sync_effect(name: str) -> None:
    await raising_in_a_thread(name)


@odd.workflow
async def of_an_effect_tried_twice(name: str) -> None:
    await raising_twice(name)


@odd.workflow
async def of_a_kernel(name: str) -> None:
    raising_kernel(name)


@odd.workflow
async def of_the_code(name: str) -> None:
    await asyncio.sleep(0)
    ODD[name]()


@odd.workflow
async def of_a_task(name: str) -> None:
    await asyncio.create_task(_raising(name))


@odd.workflow
async def of_a_gather(name: str) -> None:
    await asyncio.gather(raising(name), asyncio.sleep(0))


@odd.workflow
async def of_a_child(name: str) -> None:
    await of_the_code(name)


async def _raising(name: str) -> None:
    ODD[name]()


@odd.workflow
async def waits(name: str) -> None:
    await undone_by_raising(name)
    await asyncio.sleep(3600)


VALUES: dict[str, Callable[[], object]] = {"contains itself": itself, "raises": Unrepresentable, "error": NoWords}


@odd.effect
async def value(name: str) -> Any:
    return VALUES[name]()


@odd.workflow
async def returning(name: str) -> Any:
    return VALUES[name]()


@odd.workflow
async def returning_from_an_effect(name: str) -> None:
    await value(name)


PLACES = [
    of_an_effect,
    of_a_sync_effect,
    of_an_effect_tried_twice,
    of_a_kernel,
    of_the_code,
    of_a_task,
    of_a_gather,
    of_a_child,
]


async def _outcome(hf: Holdfast, place: Any, name: str) -> tuple[str, str, str]:
    run, _ = await hf.start(place(name))
    try:
        await asyncio.wait_for(run.result(), 20)
    except RunFailed as failed:
        said = str(failed)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    else:
        said = "completed"
    run = await run.refresh()
    await run.journal()
    await hf.explain(run)
    return name, run.status, said


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.fn.__name__)
async def test_a_run_ends_failed_whatever_is_raised_in_it(home: Home, place: Any):
    """It can be read and explained, and is replayed to the same end."""
    async with home.holdfast(odd) as hf:
        outcomes = await asyncio.gather(*(_outcome(hf, place, name) for name in ODD))
        assert [each for each in outcomes if each[1] != "failed"] == []
        replayed = await hf.replay_check(status=["failed"])
        assert {each.divergence for each in replayed} == {""}
        assert not heard(hf).all(RunBlocked)


async def test_a_cancellation_ends_whatever_an_undo_raises(home: Home):
    """The receipt says that it was not undone, and why."""
    async with home.holdfast(odd) as hf:
        runs = [(await hf.start(waits(name)))[0] for name in ODD]
        await heard(hf).until(RunLetGo, count=len(runs))
        for receipt in await asyncio.gather(*(run.cancel("enough", deadline="60s") for run in runs)):
            assert receipt.outcome == "partial"
            [effect] = receipt.effects
            assert effect.problem
        for run in runs:
            assert (await run.refresh()).status == "cancelled"
            await hf.explain(run)


@pytest.mark.parametrize("name", VALUES)
async def test_a_value_whose_own_code_fails_when_it_is_stored_is_refused(home: Home, name: str):
    async with home.holdfast(odd) as hf:
        for place in (returning, returning_from_an_effect):
            run, _ = await hf.start(place(name))
            with pytest.raises(RunFailed) as failed:
                await run.result()
            assert failed.value.error_type == "holdfast.errors.NotSerializable"
            assert (await run.refresh()).status == "failed"
