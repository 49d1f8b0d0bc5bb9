"""A cancellation reaches the code at every durable await, again and again; a shield keeps it out for a time (C6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from holdfast import Holdfast, Pack, Run, RunCancelled, hook, now, shield, sleep, spawn, timeout
from holdfast.engine.runs.activation import Activation
from holdfast.kernel.messages import CancelRequest
from tests.integration.conftest import PATIENCE_SECONDS, Home, eventually, worker_of
from tests.integration.ledgers import ONCE, Shop, ThreadLedger, lefts, until_recorded
from tests.integration.wrappers import StoreWrapper

Wait = Callable[[Shop], Coroutine[Any, Any, object]]


async def _effect(shop: Shop) -> object:
    return await shop.act("after")


async def _timer(shop: Shop) -> object:
    del shop
    return await sleep("10ms")


async def _asyncio_timer(shop: Shop) -> object:
    del shop
    return await asyncio.sleep(0.01)


async def _hook(shop: Shop) -> object:
    del shop
    return await hook("told")


async def _child(shop: Shop) -> object:
    return await shop.pack.workflows["shop.child"]()


async def _spawned(shop: Shop) -> object:
    return await spawn(shop.pack.workflows["shop.child"]())


async def _gather(shop: Shop) -> object:
    return await asyncio.gather(shop.act("after"), shop.act("after too"))


async def _timeout(shop: Shop) -> object:
    async with timeout("1s"):
        return await shop.act("after")


WAITS: dict[str, Wait] = {
    "effect": _effect,
    "timer": _timer,
    "asyncio timer": _asyncio_timer,
    "hook": _hook,
    "child": _child,
    "spawned child": _spawned,
    "gather": _gather,
    "timeout": _timeout,
}


def with_child(shop: Shop) -> Shop:
    @shop.pack.workflow
    async def child() -> str:
        return await shop.act("after, in a child")

    return shop


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
async def test_code_that_swallows_a_cancellation_is_cancelled_at_its_next_await(home: Home, wait: Wait) -> None:
    """C6"""
    shop, swallowed, went_on = with_child(Shop()), list[str](), list[str]()

    @shop.pack.workflow
    async def stubborn() -> str:
        await shop.act("before")
        for n in range(3):
            try:
                await (hook("never") if n == 0 else wait(shop))
                went_on.append("!")
            except asyncio.CancelledError:
                swallowed.append(f"{n}")
        await wait(shop)
        went_on.append("!")
        return "done"

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(stubborn())).run
        await run.signal("told", "there is something to read")
        await until_recorded(run, "act#1")
        receipt = await run.cancel()
        assert (receipt.outcome, lefts(receipt), receipt.stopped) == ("partial", {"step:before": "performed"}, False)
        with pytest.raises(RunCancelled):
            await run.result(timeout=PATIENCE_SECONDS)
        assert [each async for each in hf.runs("child")] == []
    assert (swallowed, went_on) == (["0", "1", "2"], [])
    assert shop.ledger.done == ["step:before"]


async def test_code_that_never_gives_up_is_stopped_all_the_same(home: Home) -> None:
    """C6"""
    shop = Shop()

    @shop.pack.workflow
    async def stubborn() -> None:
        await shop.take("a")
        while True:
            try:
                await hook("never")
            except asyncio.CancelledError:
                continue

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(stubborn())).run
        await until_recorded(run, "take#1")
        receipt = await run.cancel()
        assert (receipt.outcome, receipt.stopped) == ("compensated", False)
    assert shop.ledger.done == ["step:a", "undo:step:a"]


async def test_code_that_swallows_the_cancellation_and_returns_has_completed(home: Home) -> None:
    """C3"""
    shop = Shop()

    @shop.pack.workflow
    async def order() -> str:
        await shop.take("a")
        with suppress(asyncio.CancelledError):
            await hook("never")
        return "good enough"

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await until_recorded(run, "take#1")
        assert (await run.cancel()).outcome == "completed_first"
        assert await run.result(timeout=PATIENCE_SECONDS) == "good enough"
    assert shop.ledger.done == ["step:a"]  # nothing of it is undone


async def test_an_error_in_the_cleanup_makes_the_run_fail_and_is_undone_all_the_same(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow
    async def order() -> None:
        await shop.take("a")
        try:
            await hook("never")
        finally:
            raise ValueError("cleanup")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await until_recorded(run, "take#1")
        assert (await run.cancel()).outcome == "compensated"
        assert (await run.refresh()).status == "failed"
    assert shop.ledger.done == ["step:a", "undo:step:a"]


@pytest.mark.parametrize("place", ["except", "finally", "around"])
async def test_a_shield_lets_the_cleanup_finish(home: Home, place: str) -> None:
    """C6"""
    shop = Shop()
    steps = ["step:one", "step:two"]

    async def clean_up() -> None:
        await shop.act("one")
        await sleep("10ms")
        await asyncio.gather(hook("told"), shop.act("two"))

    @shop.pack.workflow
    async def order() -> None:
        if place == "around":
            async with shield("20s"):
                await hook("go on")
                await clean_up()
            await shop.act("never")
        try:
            await hook("never")
        except asyncio.CancelledError:
            if place == "except":
                async with shield("20s"):
                    await clean_up()
            raise
        finally:
            if place == "finally":
                async with shield("20s"):
                    await clean_up()

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await run.signal("told", 1)
        await eventually(lambda: _has(run, "received"))
        cancelling = asyncio.ensure_future(run.cancel(deadline="25s"))
        await eventually(lambda: _has(run, "cancel_asked"))
        if place == "around":
            await run.signal("go on")
        receipt = await asyncio.wait_for(cancelling, PATIENCE_SECONDS)
        assert (receipt.outcome, receipt.stopped) == ("partial", False)
        assert lefts(receipt) == dict.fromkeys(steps, "performed")
        assert (await run.refresh()).status == "cancelled"
    assert shop.ledger.done == steps


async def _has(run: Run[Any], what: str) -> bool:
    return any(entry.what == what for entry in await run.journal())


async def test_an_effect_in_flight_under_a_shield_is_not_interrupted(home: Home) -> None:
    shop = Shop()
    shop.ledger.hold("step:a")

    @shop.pack.workflow
    async def order() -> None:
        async with shield("20s"):
            await shop.act("a")
        await shop.act("b")

    told = asyncio.Event()

    class Telling(StoreWrapper):
        async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
            found = await verb(*args)
            if name == "messages" and found:
                told.set()  # the run has the request before any other task goes on
            return found

    async with home.holdfast(shop.pack, through=Telling) as hf:
        run = (await hf.start(order())).run
        await shop.ledger.until_begun("step:a")
        cancelling = asyncio.ensure_future(run.cancel())
        await told.wait()
        shop.ledger.let_go()
        receipt = await asyncio.wait_for(cancelling, PATIENCE_SECONDS)
        assert (receipt.outcome, lefts(receipt)) == ("partial", {"step:a": "performed"})
    assert shop.ledger.done == ["step:a"]


async def test_a_shield_that_takes_too_long_is_cancelled_like_everything_else(home: Home) -> None:
    """C6"""
    shop = Shop()
    shop.ledger.hold("step:slow")
    saw = list[str]()

    @shop.pack.workflow
    async def order() -> None:
        await shop.take("a")
        try:
            await hook("never")
        finally:
            try:
                async with shield("100ms"):
                    await shop.act("slow")
            except asyncio.CancelledError:
                saw.append("cancelled")
                raise

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await until_recorded(run, "take#1")
        receipt = await run.cancel(deadline="25s")
        # The deadline of the cancellation itself was far: what can be undone is undone.
        assert receipt.stopped is False
        assert lefts(receipt) == {"step:a": "undone", "step:slow": "unknown"}
        assert receipt.outcome == "unknown"
    assert saw == ["cancelled"]
    assert shop.ledger.done == ["step:a", "undo:step:a"]


async def test_a_shield_does_not_outlast_the_deadline_of_the_cancellation(home: Home) -> None:
    """C7"""
    shop = Shop()
    shop.ledger.hold("step:slow")

    @shop.pack.workflow
    async def order() -> None:
        await shop.take("a")
        try:
            await hook("never")
        finally:
            async with shield("1h"):
                await shop.act("slow")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await until_recorded(run, "take#1")
        receipt = await run.cancel(deadline="200ms")
        assert receipt.stopped
        assert lefts(receipt) == {"step:a": "performed", "step:slow": "unknown"}
        assert await run.receipt() == receipt
    assert shop.ledger.done == ["step:a"]


async def test_what_follows_a_shield_is_cancelled(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow
    async def order() -> None:
        try:
            await hook("never")
        except asyncio.CancelledError:
            async with shield("20s"):
                async with shield("10s"):
                    await shop.act("inner")
                await shop.act("outer")
            await shop.act("never")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await eventually(lambda: _waits(run))
        receipt = await run.cancel()
        assert lefts(receipt) == {"step:inner": "performed", "step:outer": "performed"}
        assert (await run.refresh()).status == "cancelled"


async def _waits(run: Run[Any]) -> bool:
    return bool((await run.refresh()).waiting_on)


@pytest.mark.parametrize("by", ["gather", "task group", "awaited task"])
async def test_a_shield_holds_in_a_task_whose_parent_is_cancelled(home: Home, by: str) -> None:
    """C6"""
    shop = Shop()

    async def shielded() -> None:
        async with shield("20s"):
            await hook("told")
            await shop.act("a")
        await shop.act("never")

    async def other() -> None:
        await hook("never")
        await shop.act("never")

    @shop.pack.workflow
    async def order() -> None:
        match by:
            case "gather":
                await asyncio.gather(shielded(), other())
            case "task group":
                async with asyncio.TaskGroup() as group:
                    group.create_task(shielded())
                    group.create_task(other())
            case _:
                await asyncio.create_task(shielded())

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await eventually(lambda: _waits(run))
        cancelling = asyncio.ensure_future(run.cancel(deadline="20s"))
        await eventually(lambda: _has(run, "cancel_asked"))
        await run.signal("told")
        receipt = await asyncio.wait_for(cancelling, PATIENCE_SECONDS)
        assert (lefts(receipt), receipt.stopped) == ({"step:a": "performed"}, False)
        assert (await run.refresh()).status == "cancelled"
    assert shop.ledger.done == ["step:a"]


async def test_cleanup_under_a_shield_is_continued_by_another_replica(home: Home) -> None:
    shop = Shop()
    shop.ledger.hold("step:one")

    @shop.pack.workflow
    async def order() -> None:
        try:
            await hook("never")
        finally:
            async with shield("60s"):
                await shop.act("one")
                await shop.act("two")

    async with home.holdfast(shop.pack, worker=False) as client:
        async with home.holdfast(shop.pack) as first:
            run = (await first.start(order())).run
            await eventually(lambda: _waits(run))
            cancelling = asyncio.ensure_future((await client.get(run.id)).cancel(deadline="60s"))
            await shop.ledger.until_begun("step:one")
            asyncio.get_running_loop().call_later(0.05, shop.ledger.let_go)
        assert "step:two" not in shop.ledger.begun
        async with home.holdfast(shop.pack):
            receipt = await asyncio.wait_for(cancelling, PATIENCE_SECONDS)
        assert (receipt.outcome, receipt.stopped) == ("partial", False)
        assert lefts(receipt) == {"step:one": "performed", "step:two": "performed"}
    assert shop.ledger.done == ["step:one", "step:two"]


async def test_a_shield_without_a_cancellation_changes_nothing(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow
    async def order() -> bool:
        async with shield("1ms"):  # it counts from a cancellation, and there is none
            began = now()
            await sleep("30ms")
            await shop.act("a")
            return now() > began

    async with home.holdfast(shop.pack) as hf:
        assert await (await hf.start(order())).run.result(timeout=PATIENCE_SECONDS)
    assert shop.ledger.done == ["step:a"]


async def test_a_timeout_inside_a_shield_still_is_one(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow
    async def order() -> None:
        try:
            await hook("never")
        finally:
            async with shield("20s"):
                try:
                    async with timeout("20ms"):
                        await hook("also never")
                except TimeoutError:
                    await shop.act("late")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await eventually(lambda: _waits(run))
        receipt = await run.cancel()
        assert (lefts(receipt), receipt.stopped) == ({"step:late": "performed"}, False)


async def test_a_sync_effect_under_a_shield_is_not_told_of_the_cancellation(home: Home) -> None:
    pack, thread = Pack("shop"), ThreadLedger()

    @pack.effect(key="a", retry=ONCE)
    def act() -> str:
        return thread.act()

    @pack.workflow
    async def order() -> str:
        async with shield("20s"):
            done = await act()
        await hook("never")
        return done

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await eventually(thread.begun.is_set)
        cancelling = asyncio.ensure_future(run.cancel())
        await eventually(lambda: _has(run, "cancel_asked"))
        thread.gate.set()
        receipt = await asyncio.wait_for(cancelling, PATIENCE_SECONDS)
        assert (receipt.outcome, lefts(receipt)) == ("partial", {"a": "performed"})
        assert not await _has(run, "dropped")


@pytest.mark.parametrize("way", ["task", "gather", "TaskGroup", "wait_for"])
async def test_a_shield_in_a_task_of_its_own_protects_the_effect_that_is_under_way(home: Home, way: str) -> None:
    """The run waits for one effect alone, and the task that is shielded is not the main one."""
    shop = Shop()
    shop.ledger.hold("step:first")

    async def both() -> None:
        async with shield("1m"):
            await shop.act("first")
            await shop.act("second")

    @shop.pack.workflow
    async def order() -> None:
        match way:
            case "task":
                await asyncio.create_task(both())
            case "gather":
                await asyncio.gather(both())
            case "TaskGroup":
                async with asyncio.TaskGroup() as group:
                    group.create_task(both())
            case _:
                await asyncio.wait_for(both(), None)
        await hook("never")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await shop.ledger.until_begun("step:first")
        cancelling = asyncio.create_task(run.cancel())
        await eventually(lambda: _has_come_to_the_run(hf, run))
        shop.ledger.let_go()
        receipt = await cancelling
        assert (receipt.stopped, shop.ledger.done) == (False, ["step:first", "step:second"])


def _has_come_to_the_run(hf: Holdfast, run: Run[Any]) -> bool:
    """Whether the request to cancel lies before the run in memory, which is busy."""
    execution = worker_of(hf).held.execution_of(run.id)
    assert isinstance(execution, Activation)
    return any(isinstance(arrival, CancelRequest) for arrival in execution._loaded.arrivals)
