"""A call that a workflow makes and does not await: a warning with the author's line, an error in strict mode."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Coroutine
from pathlib import Path

import pytest

from holdfast import Call, Holdfast, Pack, RunFailed, continue_as_new, hook, sleep, spawn
from holdfast.errors import NeverAwaited, UsageError
from holdfast.events import CallDropped, RunLetGo
from holdfast.pack import Workflow
from holdfast.warnings import CallNeverAwaited, HoldfastWarning
from tests.integration.conftest import Home, heard

shop = Pack("shop")
performed: list[str] = []
mended = threading.Event()
HERE = Path(__file__).name


@pytest.fixture(autouse=True)
def nothing_has_happened():
    performed.clear()
    mended.clear()


@shop.effect
async def charge(order: str) -> str:
    performed.append(f"charge {order}")
    return f"ch-{order}"


@shop.effect
def refund(order: str) -> None:
    performed.append(f"refund {order}")


@shop.effect(undo=refund)
async def book(order: str) -> str:
    performed.append(f"book {order}")
    return order


@shop.workflow
async def ship(order: str) -> str:
    return await charge(order)


@shop.workflow
async def forgets(order: str) -> str:
    charge(order)  # the line: forgets
    return "shipped"


@shop.workflow
async def forgets_after(order: str) -> str:
    await charge(f"{order} first")
    if mended.is_set():
        await charge(order)
    else:
        charge(order)  # the line: forgets_after
    return await charge(f"{order} last")


@shop.workflow
async def forgets_a_child(order: str) -> str:
    ship(order)  # the line: forgets_a_child
    await sleep(0.01)
    return "shipped"


@shop.workflow
async def keeps(order: str) -> str:
    kept = charge(order)  # the line: keeps
    await asyncio.sleep(0)
    del order
    return "shipped" if kept else ""


FORGETFUL = {
    forgets: "shop.charge",
    forgets_after: "shop.charge",
    forgets_a_child: "shop.ship",
    keeps: "shop.charge",
}


def line_of(workflow: Workflow[..., str]) -> int:
    """The line on which this workflow forgets its call."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(
        n for n, line in enumerate(lines, 1) if line.endswith(f"# the line: {workflow.name.removeprefix('shop.')}")
    )


@pytest.mark.parametrize("workflow", FORGETFUL)
async def test_it_is_warned_of_with_the_line_and_the_run_goes_on(home: Home, workflow: Workflow[..., str]) -> None:
    async with home.holdfast(shop) as hf:
        with pytest.warns(CallNeverAwaited) as caught:
            await (await hf.start(workflow("o-1"))).run.result("30s")
    assert [(Path(each.filename).name, each.lineno) for each in caught] == [(HERE, line_of(workflow))]
    assert str(caught[0].message) == f"{FORGETFUL[workflow]} was called and never awaited, so it was not performed"
    assert issubclass(CallNeverAwaited, RuntimeWarning)
    assert issubclass(CallNeverAwaited, HoldfastWarning)
    [told] = heard(hf).all(CallDropped)
    assert (told.workflow, told.call) == (workflow.name, FORGETFUL[workflow])
    assert told.line == f"{HERE}:{line_of(workflow)}"
    assert "charge o-1" not in performed


@pytest.mark.parametrize("workflow", FORGETFUL)
async def test_in_strict_mode_the_run_is_blocked_with_the_line(home: Home, workflow: Workflow[..., str]) -> None:
    async with home.holdfast(shop, strict=True) as hf:
        run = (await hf.start(workflow("o-1"))).run
        with pytest.raises(NeverAwaited, match=f"{FORGETFUL[workflow]}.*{HERE}:{line_of(workflow)}"):
            await run.result("30s")
        assert (await run.refresh()).waiting_on[0].name.startswith("never_awaited: ")
        assert not [each for each in performed if not each.endswith("first")]


async def test_mended_a_blocked_run_goes_on_where_it_was(home: Home) -> None:
    async with home.holdfast(shop, strict=True) as hf:
        run = (await hf.start(forgets_after("o-1"))).run
        with pytest.raises(NeverAwaited):
            await run.result("30s")
        mended.set()
        await (await run.retry()).result("30s")
    assert performed == ["charge o-1 first", "charge o-1", "charge o-1 last"]


async def test_a_filter_that_makes_errors_of_warnings_blocks_the_run_too(home: Home) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", CallNeverAwaited)
        async with home.holdfast(shop) as hf:
            with pytest.raises(NeverAwaited):
                await (await hf.start(forgets("o-1"))).run.result("30s")


@shop.workflow
async def forgets_and_waits(order: str) -> str:
    charge(order)
    await charge(f"{order} first")
    return await hook("go", type=str)


async def test_what_was_told_is_not_told_again_on_a_replay(home: Home) -> None:
    home.paced(idle_ms=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CallNeverAwaited)
        async with home.holdfast(shop) as hf:
            run = (await hf.start(forgets_and_waits("o-1"))).run
            await heard(hf).until(RunLetGo)
            assert heard(hf).all(CallDropped)
    async with home.holdfast(shop, strict=True) as hf:
        again = await hf.get(run.id)
        await again.signal("go", "gone")
        assert await again.result("30s") == "gone"
        assert not heard(hf).all(CallDropped)


# -- what is no mistake


@shop.workflow
async def hands_over(order: str) -> str:
    made = [charge(f"{order}-{n}") for n in range(3)]
    for each in made:
        await each
    task = asyncio.create_task(charge(f"{order}-task"))
    async with asyncio.TaskGroup() as group:
        group.create_task(ship(f"{order}-group"))
    await asyncio.gather(charge(f"{order}-gathered"), asyncio.wait_for(charge(f"{order}-timed"), 30))
    await (await spawn(ship(f"{order}-spawned"))).result()
    charge(f"{order}-closed").close()
    return await task


@shop.workflow
async def is_cancelled_first(order: str) -> str:
    """A task that is cancelled before it begins has not forgotten its call."""
    task = asyncio.create_task(charge(order))
    task.cancel()
    await asyncio.wait([task])
    del task
    return order


@shop.workflow
async def fails(order: str) -> str:
    made = charge(order)
    raise ValueError(made.__class__.__name__)


@shop.workflow
async def starts_over(order: str, more: int) -> str:
    if more:
        continue_as_new(starts_over(order, more - 1))
    return order


@shop.workflow
async def undone(order: str) -> str:
    await book(order)
    made = charge(order)
    await sleep("1h")
    return await made


@pytest.mark.parametrize("call", [hands_over("o-1"), is_cancelled_first("o-1"), starts_over("o-1", 2)], ids=repr)
async def test_a_call_that_is_handed_over_or_closed_is_no_mistake(home: Home, call: Call[str]) -> None:
    async with home.holdfast(shop, strict=True) as hf:
        assert await (await hf.start(call)).run.result("30s")
        assert not heard(hf).all(CallDropped)


async def test_a_failure_is_what_there_is_to_say(home: Home) -> None:
    async with home.holdfast(shop, strict=True) as hf:
        with pytest.raises(RunFailed, match="Call"):
            await (await hf.start(fails("o-1"))).run.result("30s")
        assert not heard(hf).all(CallDropped)


async def test_a_run_that_is_cancelled_or_let_go_has_forgotten_nothing(home: Home) -> None:
    home.paced(idle_ms=0)
    async with home.holdfast(shop, strict=True) as hf:
        run = (await hf.start(undone("o-1"))).run
        await heard(hf).until(RunLetGo)
        assert (await run.cancel()).outcome == "compensated"
        assert not heard(hf).all(CallDropped)
    assert performed == ["book o-1", "refund o-1"]


async def test_a_call_that_is_made_to_be_started_warns_of_nothing() -> None:
    async with Holdfast("memory://", packs=[shop], strict=True) as hf:
        forgets("o-1")  # pyright: ignore[reportUnusedCoroutine] - that is the case
        call = ship("o-1")
        run, _ = await hf.start(call)
        await run.result("30s")


# -- a call as a coroutine


def test_a_call_is_a_coroutine_and_says_so_outside_of_a_workflow() -> None:
    call = charge("o-1")
    assert asyncio.iscoroutine(call)
    assert isinstance(call, Coroutine)
    with pytest.raises(UsageError, match=r"effect 'shop.charge' was awaited outside a workflow"):
        asyncio.run(call)
    other = ship("o-1")
    with pytest.raises(KeyError):
        other.throw(KeyError("thrown"))
    other.close()
    charge("o-1").close()
