"""A run that is let go from memory leaves nothing behind: no command, no task, no warning."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import holdfast
from holdfast.engine.code import generators
from holdfast.pack import Workflow
from tests.unit.engine.driving import Play, workflow_of
from tests.unit.engine.shop import charge, notify, pay, ship


async def _helper() -> None:
    await notify("clean-up")


@workflow_of
async def awaits_in_finally() -> None:
    try:
        await charge(1)
    finally:
        await notify("clean-up")
        await asyncio.sleep(5)


@workflow_of
async def swallows_everything() -> None:
    while True:
        try:
            await charge(1)
        except BaseException:
            await notify("again")


@workflow_of
async def swallows_everything_at_a_timer() -> None:
    """A timer that was refused would be asked for again, forever, inside the worker's own loop."""
    while True:
        try:
            async with holdfast.timeout("1h"):
                await charge(1)
        except BaseException:
            continue


@workflow_of
async def sleeps_whatever_comes() -> None:
    while True:
        try:
            await asyncio.sleep(60)
        except BaseException:
            continue


@workflow_of
async def begins_tasks_in_finally() -> None:
    try:
        await charge(1)
    finally:
        await asyncio.create_task(_helper())


@workflow_of
async def gathers_in_finally() -> None:
    try:
        await charge(1)
    finally:
        await asyncio.gather(_helper(), _helper(), notify("x"))


@workflow_of
async def opens_a_group_in_finally() -> None:
    try:
        await charge(1)
    finally:
        async with asyncio.TaskGroup() as group:
            group.create_task(_helper())
            group.create_task(_helper())


@workflow_of
async def spawns_in_finally() -> None:
    try:
        await charge(1)
    finally:
        await holdfast.spawn(pay(1))


@workflow_of
async def finally_in_finally() -> None:
    await _careful()


async def _careful() -> None:
    try:
        await charge(1)
    finally:
        await _clean_up()


async def _clean_up() -> None:
    try:
        await asyncio.gather(_helper())
    finally:
        await _clean_up_at_last()


async def _clean_up_at_last() -> None:
    await ship(f"{holdfast.random()}")


@workflow_of
async def in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        for amount in range(3):
            group.create_task(charge(amount))
        group.create_task(_nested())


async def _nested() -> None:
    try:
        await asyncio.gather(ship(), asyncio.sleep(60))
    except BaseException:
        await notify("nested")
        raise


@workflow_of
async def under_a_timeout() -> None:
    async with asyncio.timeout(60):
        try:
            await charge(1)
        finally:
            await notify("clean-up")


@workflow_of
async def in_a_generator() -> None:
    async for _ in _numbers():
        await charge(1)


async def _numbers() -> AsyncIterator[int]:
    try:
        for number in range(9):
            yield number
            await ship()
    finally:
        await notify("clean-up")


@workflow_of
async def inside_a_generator() -> None:
    numbers = _numbers()
    async for _ in numbers:
        pass


@workflow_of
async def in_a_context_manager() -> None:
    @asynccontextmanager
    async def room() -> AsyncIterator[str]:
        try:
            yield "room"
        finally:
            await notify("clean-up")

    async with room():
        await charge(1)


@workflow_of
async def at_a_queue() -> None:
    queue: asyncio.Queue[int] = asyncio.Queue()
    lock = asyncio.Lock()
    async with lock:
        waiting = [asyncio.create_task(lock.acquire()), asyncio.create_task(queue.get())]
        await asyncio.wait([*waiting, asyncio.create_task(charge(1))])


@workflow_of
async def with_a_failed_task() -> None:
    async def fail() -> None:
        raise ValueError

    tasks = [asyncio.create_task(fail()), asyncio.create_task(_nested())]
    await charge(1)
    await asyncio.gather(*tasks)


@workflow_of
async def in_a_hook_block() -> None:
    async with holdfast.hook("orders", token="t-1") as orders:
        async for order in orders:
            await ship(order)


@workflow_of
async def closing_a_hook_in_finally() -> None:
    orders = holdfast.hook("orders")
    try:
        await asyncio.gather(_listen(orders), charge(1))
    finally:
        await orders.close()
        await orders


async def _listen(orders: holdfast.Hook[Any]) -> None:
    async for _ in orders:
        pass


@workflow_of
async def in_a_shield() -> None:
    async with holdfast.shield("10s"):
        async with holdfast.shield("5s"):
            await asyncio.gather(charge(1), _helper())
        await notify("shielded")


@workflow_of
async def noting_in_finally() -> None:
    try:
        await charge(1)
    finally:
        await holdfast.set_attributes(stage="left")
        holdfast.patched("left")
        holdfast.continue_as_new(noting_in_finally())


WAITING = [
    awaits_in_finally,
    swallows_everything,
    swallows_everything_at_a_timer,
    sleeps_whatever_comes,
    begins_tasks_in_finally,
    gathers_in_finally,
    opens_a_group_in_finally,
    spawns_in_finally,
    finally_in_finally,
    in_a_group,
    under_a_timeout,
    in_a_generator,
    inside_a_generator,
    in_a_context_manager,
    at_a_queue,
    with_a_failed_task,
    in_a_hook_block,
    closing_a_hook_in_finally,
    in_a_shield,
    noting_in_finally,
]


@pytest.fixture
def from_here_on() -> Iterator[None]:
    """What was there before is set aside, so that to collect garbage is to look at what the test has made."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("from_here_on")
@pytest.mark.parametrize("cancelled", [False, True], ids=["", "cancelled"])
@pytest.mark.parametrize("code", WAITING, ids=lambda code: code.fn.__name__)
async def test_eviction_leaves_no_task_no_output_and_no_warning(code, cancelled, capfd, recwarn, monkeypatch):
    """It happens inside the worker's own loop, whose tasks must not notice."""
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    outer = asyncio.get_running_loop()
    before = asyncio.all_tasks(outer)
    play = Play(code)
    assert play.waits_for
    if code is inside_a_generator:
        assert play.waits_for == ["ship#1"]
    if cancelled:
        play.cancel()
    play.evict()
    assert asyncio.get_running_loop() is outer
    assert asyncio.current_task() in before
    del play
    gc.collect()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert asyncio.all_tasks(outer) == before
    assert not list(recwarn)
    assert not unraisable
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("from_here_on")
@pytest.mark.parametrize("cancelled", [False, True], ids=["", "cancelled"])
@pytest.mark.parametrize("code", WAITING, ids=lambda code: code.fn.__name__)
def test_an_evicted_run_is_forgotten(code, cancelled):
    """Nothing keeps it in memory: 10,000 waiting runs cost nothing (K15)."""
    play = Play(code)
    if cancelled:
        play.cancel()
    machine = weakref.ref(play.machine)
    play.evict()
    del play
    gc.collect()
    assert machine() is None


def test_eviction_of_a_run_that_has_ended_is_nothing():
    @workflow_of
    async def code() -> str:
        return "done"

    play = Play(code)
    play.evict()
    play.evict()
    assert play.result == "done"


def test_a_run_goes_on_in_another_life_as_if_nothing_had_been():
    play = Play(awaits_in_finally)
    play.evict()
    life = play.again().perform("charge#1", 1)
    assert life.waits_for == ["notify#1"]
    life.evict()


# -- async generators: they end inside the run, as any other code of it


def _breaking_off() -> Workflow[..., Any]:
    @workflow_of
    async def code() -> str:
        async for _ in _numbers():
            break
        return await ship("after")

    return code


async def test_a_generator_that_is_left_early_cleans_up_within_its_run():
    """Its clean-up is a step of the run, and not a task of the worker's loop."""
    before = asyncio.all_tasks()
    play = Play(_breaking_off())
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    assert sorted(step.rpartition("/")[2] for step in play.waits_for) == ["notify#1", "ship#1"]
    [notice] = [step for step in play.waits_for if "notify" in step]
    play.perform(notice, "").perform("ship#1", "shipped")
    assert play.result == "shipped"
    assert play.again().result == "shipped"


async def test_generators_of_the_worker_are_the_business_of_its_own_loop_as_before():
    play = Play(_breaking_off())
    ended = asyncio.Event()

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            ended.set()

    async for _ in numbers():
        break
    await ended.wait()  # left early, it is closed by the loop in which it began
    play.evict()


async def test_hooks_for_generators_are_set_once_and_not_by_each_run():
    Play(_breaking_off()).evict()
    before = sys.get_asyncgen_hooks()
    play = Play(_breaking_off())
    assert sys.get_asyncgen_hooks() is not before  # it is made anew each time it is asked for
    assert sys.get_asyncgen_hooks() == before
    play.evict()


async def test_a_generator_of_a_run_that_was_let_go_is_not_closed_by_the_loop_of_the_worker():
    kept: list[AsyncGenerator[int, None]] = []

    @workflow_of
    async def code() -> str:
        generator = _numbers()
        kept.append(generator)
        await anext(generator)
        return await ship("after")

    play, before = Play(code), asyncio.all_tasks()
    play.evict()
    kept.clear()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    assert not generators._owners


async def test_a_generator_at_the_address_of_one_that_has_ended_belongs_to_its_own_loop():
    @workflow_of
    async def code() -> str:
        return "".join([str(number) async for number in _ended()])

    async def _ended() -> AsyncGenerator[int, None]:
        yield 1

    play, ended = Play(code), asyncio.Event()

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            ended.set()

    [address] = generators._owners
    others: list[AsyncGenerator[int, None]] = []
    while id(other := numbers()) != address and len(others) < 10_000:
        others.append(other)
    await anext(other)
    del other
    await ended.wait()
    play.evict()


def test_driving_a_run_outside_any_loop_leaves_no_loop_behind():
    play = Play(in_a_group)
    assert asyncio._get_running_loop() is None
    play.evict()
    assert asyncio._get_running_loop() is None
