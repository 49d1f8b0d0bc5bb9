"""A cancelled run: its code is told at every durable await, again and again; in a shield only after its time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import holdfast
from holdfast import hook, shield, spawn
from holdfast.engine.code.commands import CodeCancelled, CodeRaised
from holdfast.engine.code.machine import REFUSALS_MAX
from holdfast.errors import UsageError
from tests.builders import NOW_MS
from tests.unit.engine.driving import Play, assert_same_from_every_prefix, workflow_of
from tests.unit.engine.shop import charge, notify, pay, ship

# -- what plain asyncio does with it


async def _one() -> None:
    await charge(1)


async def _gathers() -> None:
    await asyncio.gather(charge(1), ship("lamp"), holdfast.sleep("1h"))


async def _groups() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(charge(1))
        group.create_task(_gathers())


async def _waits_for_a_time() -> None:
    async with asyncio.timeout(60):
        await charge(1)


async def _waits_for_one() -> None:
    await asyncio.wait_for(charge(1), 60)


async def _waits_for_a_task() -> None:
    await asyncio.create_task(_waits_for_a_time())


async def _waits_for_a_child() -> None:
    await pay(1)


async def _spawns() -> None:
    await spawn(pay(1))


async def _waits_for_a_hook() -> None:
    await hook("approval")


async def _claims_a_token() -> None:
    await hook("approval", token="t-1")


async def _sleeps() -> None:
    await holdfast.sleep("1h")


async def _waits_for_an_event() -> None:
    await asyncio.Event().wait()


WAYS = [
    _one,
    _gathers,
    _groups,
    _waits_for_a_time,
    _waits_for_one,
    _waits_for_a_task,
    _waits_for_a_child,
    _spawns,
    _waits_for_a_hook,
    _claims_a_token,
    _sleeps,
    _waits_for_an_event,
]


@pytest.mark.parametrize("waiting", WAYS, ids=lambda way: way.__name__)
def test_whatever_the_code_waits_for_it_is_cancelled_there_and_ends(waiting):
    @workflow_of
    async def code() -> None:
        try:
            await waiting()
        except asyncio.CancelledError:
            assert holdfast.current().run_id == "run-1"
            raise

    play = Play(code)
    steps = [command.step for command in play.machine.open.values()]
    play.cancel()
    assert sorted(play.dropped()) == sorted(steps)
    assert play.waits_for == []
    assert play.machine.ended == CodeCancelled()
    assert play.machine.outcome is None  # there may be something to unwind
    assert play.stopped().is_cancelled
    assert_same_from_every_prefix(play)


def test_code_that_has_ended_is_not_told():
    @workflow_of
    async def code() -> int:
        return await charge(1)

    play = Play(code).perform("charge#1", 1).cancel()
    assert play.result == 1


def test_code_may_end_in_an_answer_of_its_own():
    @workflow_of
    async def code() -> str:
        try:
            await charge(1)
        except asyncio.CancelledError:
            return "never mind"
        return "done"

    play = Play(code).cancel()
    assert play.result == "never mind"
    assert_same_from_every_prefix(play)


def test_code_may_end_in_an_error_of_its_own():
    @workflow_of
    async def code() -> None:
        try:
            await charge(1)
        except asyncio.CancelledError:
            raise ValueError("half done") from None

    play = Play(code).cancel()
    play.dropped()
    assert play.machine.outcome is None
    play.stopped()
    with pytest.raises(ValueError, match="half done"):
        _ = play.result


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_an_exit_of_cancelled_code_ends_the_run_and_not_the_worker(error):
    @workflow_of
    async def code() -> None:
        try:
            await charge(1)
        except asyncio.CancelledError:
            raise error from None

    play = Play(code).cancel()
    assert isinstance(play.machine.outcome, CodeRaised)


def test_a_run_that_is_only_to_pause_is_not_told():
    @workflow_of
    async def code() -> int:
        return await charge(1)

    play = Play(code).cancel(pausing=True)
    assert play.waits_for == ["charge#1"]
    assert not play.machine.cancelling
    assert play.perform("charge#1", 5).result == 5


# -- level-triggered


@pytest.mark.parametrize(
    "waiting", [way for way in WAYS if way is not _waits_for_an_event], ids=lambda way: way.__name__
)
def test_swallowing_a_cancellation_does_not_let_the_code_go_on(waiting):
    """C6."""
    swallowed: list[str] = []

    @workflow_of
    async def code() -> None:
        try:
            await charge(1)
        except asyncio.CancelledError:
            swallowed.append("first")
        try:
            await waiting()
        except asyncio.CancelledError:
            swallowed.append("second")
        await waiting()

    play = Play(code).cancel()
    assert swallowed == ["first", "second"]
    assert play.steps == ["charge#1"]
    assert play.waits_for == []
    assert play.machine.ended == CodeCancelled()


@pytest.mark.parametrize("waiting", [_one, _sleeps, _waits_for_a_hook, _spawns, _gathers], ids=lambda way: way.__name__)
def test_code_that_swallows_every_cancellation_is_left_standing(waiting):
    """C6."""
    rounds = 0

    @workflow_of
    async def code() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            try:
                await waiting()
            except asyncio.CancelledError:
                continue

    play = Play(code).cancel()
    assert rounds < 2 * REFUSALS_MAX
    assert play.waits_for == []
    assert play.machine.ended == CodeCancelled()
    assert play.stopped().is_cancelled
    play.evict()


def test_what_is_not_durable_may_go_on_to_the_end():
    @workflow_of
    async def code() -> str:
        try:
            await charge(1)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            lock = asyncio.Lock()
            async with lock:
                return await asyncio.create_task(_answer())
        return "not cancelled"

    assert Play(code).cancel().result == "cleaned up"


async def _answer() -> str:
    return "cleaned up"


def test_results_that_come_after_the_cancellation_reach_nobody():
    """The code has moved on; what came late is noted for the receipt."""

    @workflow_of
    async def code() -> None:
        await charge(1)

    play = Play(code).cancel()
    assert play.dropped() == ["charge#1"]
    play.late("charge#1", 1).stopped()
    assert play.is_cancelled
    assert_same_from_every_prefix(play)


# -- background tasks


def test_tasks_that_nobody_awaits_are_cancelled_too():
    ended: list[str] = []

    async def background(name: str, work: Awaitable[Any]) -> None:
        try:
            await work
        finally:
            ended.append(name)

    @workflow_of
    async def code() -> None:
        tasks = [asyncio.create_task(background("a", ship("a"))), asyncio.create_task(background("b", ship("b")))]
        try:
            await charge(len(tasks))
        finally:
            ended.append("main")

    play = Play(code).cancel()
    assert sorted(play.dropped()) == ["0/ship#1", "1/ship#1", "charge#1"]
    assert ended == ["main", "a", "b"]
    assert play.stopped().is_cancelled


def test_a_shielded_task_in_the_background_is_waited_for():
    @workflow_of
    async def code() -> None:
        async def stubborn() -> None:
            async with shield("10s"):
                await ship("slow")
            await ship("never")

        task = asyncio.create_task(stubborn())
        await charge(1)
        await task

    play = Play(code).cancel()
    assert play.dropped() == ["charge#1"]
    assert play.machine.ended is None
    play.perform("0/ship#1", "")
    assert play.machine.ended == CodeCancelled()
    assert play.waits_for == []
    assert sorted(play.steps) == ["0/ship#1", "charge#1"]
    assert play.stopped().is_cancelled
    assert_same_from_every_prefix(play)


def test_a_shielded_task_in_the_background_is_not_waited_for_beyond_its_time():
    @workflow_of
    async def code() -> None:
        async def stubborn() -> None:
            async with shield("10s"):
                await ship("slow")

        task = asyncio.create_task(stubborn())
        await charge(1)
        await task

    play = Play(code).cancel()
    [timer] = play.machine.timers
    play.elapse(timer)
    assert sorted(play.dropped()) == ["0/ship#1", "charge#1"]
    assert play.machine.ended == CodeCancelled()
    assert play.stopped().is_cancelled


# -- shields


@workflow_of
async def cleaning_up() -> None:
    """The shield begins after the cancellation."""
    try:
        await charge(1)
    except asyncio.CancelledError:
        async with shield("10s"):
            await ship("back")
            await notify("cleaned up")
        await notify("never")
        raise


def test_cleanup_in_a_shield_comes_to_its_end():
    """C6."""
    play = Play(cleaning_up).cancel()
    assert play.dropped() == ["charge#1"]
    assert play.waits_for == ["ship#1", "timeout#1"]
    assert not play.machine.ended
    play.perform("ship#1", "").perform("notify#1", "")
    assert play.machine.ended == CodeCancelled()
    assert play.waits_for == []
    assert play.steps == ["charge#1", "ship#1", "notify#1"]
    assert play.stopped().is_cancelled
    assert_same_from_every_prefix(play)


def test_a_shield_holds_only_until_its_deadline():
    play = Play(cleaning_up).cancel()
    play.dropped()
    assert play.machine.timers["timeout#1"].due_at_ms == play.now_ms - 1 + 10_000  # counted from the cancellation
    play.perform("ship#1", "").elapse("timeout#1")
    assert play.dropped() == ["notify#1"]
    assert play.machine.ended == CodeCancelled()
    assert play.stopped().is_cancelled
    assert_same_from_every_prefix(play)


@workflow_of
async def protected() -> str:
    """The shield begins before the cancellation."""
    async with shield("10s"):
        await charge(1)
        await charge(2)
    await ship("after")
    return "whole"


def test_a_shield_without_a_cancellation_is_nothing():
    play = Play(protected)
    assert play.machine.is_shielded("charge#1")
    assert play.waits_for == ["charge#1"]
    play.perform("charge#1", 1).perform("charge#2", 1)
    assert not play.machine.is_shielded("ship#1")
    assert play.perform("ship#1", "").result == "whole"


def test_a_cancellation_during_a_shield_is_delivered_when_it_ends():
    play = Play(protected).cancel()
    assert play.waits_for == ["charge#1", "timeout#1"]
    assert play.machine.timers["timeout#1"].due_at_ms == NOW_MS + 1 + 10_000
    play.perform("charge#1", 1)
    assert play.waits_for == ["charge#2", "timeout#1"]
    play.perform("charge#2", 1)
    assert play.machine.ended == CodeCancelled()
    assert play.steps == ["charge#1", "charge#2"]
    assert_same_from_every_prefix(play.stopped())


def test_a_shield_that_began_before_is_cancelled_at_its_deadline():
    play = Play(protected).cancel().elapse("timeout#1")
    assert play.dropped() == ["charge#1"]
    assert play.machine.ended == CodeCancelled()
    assert_same_from_every_prefix(play.stopped())


def test_an_owed_cancellation_reaches_what_is_not_durable_too():
    @workflow_of
    async def code() -> str:
        async with shield("10s"):
            await charge(1)
        await asyncio.sleep(0)
        return "went on"

    play = Play(code).cancel().perform("charge#1", 1)
    assert play.machine.ended == CodeCancelled()


@workflow_of
async def nested() -> None:
    async with shield("10s"):
        async with shield("5s"):
            await charge(1)
        await charge(2)
        async with shield("5s"):
            await charge(3)
        await charge(4)
    await ship("never")


def test_leaving_an_inner_shield_leaves_the_outer_one_in_force():
    play = Play(nested).cancel()
    for n in (1, 2, 3, 4):
        assert play.machine.is_shielded(f"charge#{n}")
        play.perform(f"charge#{n}", n)
    assert play.machine.ended == CodeCancelled()
    assert play.steps == ["charge#1", "charge#2", "charge#3", "charge#4"]
    assert play.waits_for == []
    assert_same_from_every_prefix(play.stopped())


def test_a_cancellation_during_nested_shields_is_owed_until_the_outermost_ends():
    @workflow_of
    async def code() -> None:
        async with shield("10s"):
            async with shield("5s"):
                await charge(1)
            await charge(2)
        await asyncio.Event().wait()  # nothing durable, so only what is owed can end it

    play = Play(code).cancel().perform("charge#1", 1).perform("charge#2", 2)
    assert play.machine.ended == CodeCancelled()


def test_an_inner_shield_that_is_over_cancels_its_block_and_no_more():
    @workflow_of
    async def code() -> None:
        async with shield("10s"):
            try:
                async with shield("5s"):
                    await charge(1)
            except asyncio.CancelledError:
                await ship("instead")
        await ship("never")

    play = Play(code).cancel()
    inner = min(play.machine.timers.values(), key=lambda timer: timer.due_at_ms)
    play.elapse(inner.step)
    assert play.dropped() == ["charge#1"]
    assert "ship#1" in play.waits_for
    play.perform("ship#1", "")
    assert play.machine.ended == CodeCancelled()
    assert play.steps == ["charge#1", "ship#1"]


def test_code_that_has_nothing_more_to_wait_for_after_its_shield_has_completed():
    @workflow_of
    async def code() -> int:
        async with shield("10s"):
            return await charge(1)

    play = Play(code).cancel().perform("charge#1", 5)
    assert play.result == 5
    assert_same_from_every_prefix(play)


def test_an_outer_shield_that_is_over_leaves_the_inner_one_its_time():
    @workflow_of
    async def code() -> None:
        async with shield("5s"):
            async with shield("10s"):
                await charge(1)
            await ship("never")

    play = Play(code).cancel()
    outer, inner = sorted(play.machine.timers.values(), key=lambda timer: timer.due_at_ms)
    play.elapse(outer.step)
    assert play.waits_for == ["charge#1", inner.step]
    play.perform("charge#1", 1)
    assert play.machine.ended == CodeCancelled()
    assert play.steps == ["charge#1"]
    assert_same_from_every_prefix(play.stopped())


async def _shielded(amount: int) -> int:
    async with shield("10s"):
        return await charge(amount)


async def _gathered() -> None:
    await asyncio.gather(_shielded(1), ship("b"))


async def _grouped() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_shielded(1))
        group.create_task(ship("b"))


@pytest.mark.parametrize("waiting", [_gathered, _grouped], ids=lambda way: way.__name__)
def test_a_shield_holds_in_a_task_whoever_passes_the_cancellation_on(waiting):
    @workflow_of
    async def code() -> None:
        await waiting()
        await ship("never")

    play = Play(code).cancel()
    assert play.dropped() == ["1/ship#1"]
    assert "0/charge#1" in play.waits_for
    assert play.machine.ended is None
    play.perform("0/charge#1", 1)
    assert play.machine.ended == CodeCancelled()
    assert play.steps == ["0/charge#1", "1/ship#1"]
    assert_same_from_every_prefix(play.stopped())


def test_a_task_that_is_awaited_directly_keeps_its_shield():
    @workflow_of
    async def code() -> None:
        await asyncio.create_task(_shielded(1))
        await ship("never")

    play = Play(code).cancel()
    assert "0/charge#1" in play.waits_for
    play.perform("0/charge#1", 1)
    assert play.machine.ended == CodeCancelled()
    assert play.steps == ["0/charge#1"]


def test_tasks_that_are_made_in_a_shield_are_in_it():
    @workflow_of
    async def code() -> list[Any]:
        async with shield("10s"):
            return list(await asyncio.gather(charge(1), _shipping()))

    async def _shipping() -> str:
        await asyncio.sleep(0)
        return await ship("lamp")

    play = Play(code).cancel()
    assert "0/charge#1" in play.waits_for
    assert "1/ship#1" in play.waits_for
    play.perform("0/charge#1", 1).perform("1/ship#1", "sent")
    assert_same_from_every_prefix(play)


def test_a_timeout_inside_a_shield_works_as_ever():
    @workflow_of
    async def code() -> None:
        try:
            await charge(1)
        except asyncio.CancelledError:
            async with shield("10s"):
                try:
                    async with asyncio.timeout(1):
                        await ship("slow")
                except TimeoutError:
                    await notify("too slow")
            raise

    play = Play(code).cancel()
    play.dropped()
    first = min(play.machine.timers.values(), key=lambda timer: timer.due_at_ms)
    play.elapse(first.step)
    assert play.dropped() == ["ship#1"]
    play.perform("notify#1", "")
    assert play.machine.ended == CodeCancelled()
    assert_same_from_every_prefix(play.stopped())


def test_a_task_that_fails_in_a_group_inside_a_shield_cancels_the_others():
    @workflow_of
    async def code() -> str:
        try:
            await charge(1)
        except asyncio.CancelledError:
            async with shield("10s"):
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(charge(2))
                        group.create_task(ship("b"))
                except* ValueError:
                    await notify("failed")
            raise
        return ""

    play = Play(code).cancel()
    play.dropped()
    play.give_up("0/charge#1", ValueError("no"))
    assert play.dropped() == ["1/ship#1"]
    assert "notify#1" in play.waits_for
    assert play.perform("notify#1", "").machine.ended == CodeCancelled()


def test_a_race_that_is_lost_cancels_a_shielded_task_as_long_as_the_run_is_not_cancelled():
    """A shield is against the cancellation of the run, not against the code itself."""

    @workflow_of
    async def code() -> str:
        task = asyncio.create_task(_shielded(1))
        await ship("b")
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return "cancelled"
        return "kept"

    play = Play(code).perform("ship#1", "")
    assert play.dropped() == ["0/charge#1"]
    assert play.result == "cancelled"


def test_an_error_in_a_shield_passes_through_it():
    @workflow_of
    async def code() -> None:
        async with shield("10s"):
            await charge(1)

    play = Play(code).cancel().give_up("charge#1", ValueError("no"))
    play.stopped()
    with pytest.raises(ValueError, match="no"):
        _ = play.result


def _hooks_in_a_shield() -> Callable[..., Any]:
    async def code() -> Any:
        try:
            await charge(1)
        except asyncio.CancelledError:
            async with shield("10s"):
                return [await hook("last"), await hook("words", token="t-1"), await spawn(pay(1)), await pay(2)]

    return code


def test_everything_durable_can_be_awaited_in_a_shield():
    play = Play(workflow_of(_hooks_in_a_shield())).cancel()
    play.dropped()
    play.signal("last", 1).claimed("hook:words#1").signal("words", 2)
    play.spawned("pay#1", "child-1").spawned("pay#2", "child-2").joined("pay#2", 9)
    assert play.result[:2] == [1, 2]
    assert play.result[3] == 9
    assert play.steps == ["charge#1", "hook:words#1", "pay#1", "pay#2"]


@pytest.mark.parametrize("wrong", ["soon", -1, None])
def test_the_deadline_of_a_shield_is_checked(wrong):
    @workflow_of
    async def code() -> None:
        async with shield(wrong):
            await charge(1)

    with pytest.raises(UsageError):
        _ = Play(code).result


def test_a_shield_belongs_into_a_workflow():
    with pytest.raises(UsageError, match="outside a workflow"):
        shield("10s")
