"""anyio in a workflow: its task groups, cancel scopes and events are durable as those of asyncio are."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from holdfast import shield
from holdfast.engine.code.sandbox import keep_order
from holdfast.errors import UsageError
from tests.unit.engine.driving import Play, assert_same_from_every_prefix, workflow_of
from tests.unit.engine.shop import charge, notify, ship


@pytest.fixture(autouse=True)
def _as_a_worker_arranges_it() -> None:
    keep_order()


def test_a_task_group_runs_its_tasks_side_by_side():
    @workflow_of
    async def code() -> list[int]:
        paid: list[int] = []

        async def pay(amount: int) -> None:
            paid.append(await charge(amount))

        async with anyio.create_task_group() as group:
            for amount in range(3):
                group.start_soon(pay, amount)
        return paid

    play = Play(code)
    assert play.waits_for == ["0/charge#1", "1/charge#1", "2/charge#1"]
    play.perform("2/charge#1", 2).perform("0/charge#1", 0).perform("1/charge#1", 1)
    assert play.result == [2, 0, 1]
    assert_same_from_every_prefix(play)


def test_a_task_that_fails_cancels_its_group():
    @workflow_of
    async def code() -> str:
        async def pay(amount: int) -> None:
            await charge(amount)

        try:
            async with anyio.create_task_group() as group:
                for amount in range(3):
                    group.start_soon(pay, amount)
        except* ValueError:
            pass
        return await ship("apology")

    play = Play(code)
    play.perform("0/charge#1", 0).give_up("1/charge#1", ValueError("no"))
    assert play.dropped() == ["2/charge#1"]
    assert play.perform("ship#1", "sent").result == "sent"
    assert_same_from_every_prefix(play)


def test_a_time_limit_is_a_durable_timer():
    @workflow_of
    async def code() -> str:
        with anyio.move_on_after(5) as scope:
            await charge(1)
        await anyio.sleep(1)
        return "too slow" if scope.cancelled_caught else "in time"

    play = Play(code)
    assert play.waits_for == ["charge#1", "timeout#1"]
    play.elapse("timeout#1")
    assert play.dropped() == ["charge#1"]
    assert play.elapse("sleep#1").result == "too slow"
    assert_same_from_every_prefix(play)


def test_events_and_streams():
    @workflow_of
    async def code() -> list[int]:
        send, receive = anyio.create_memory_object_stream[int](1)
        done = anyio.Event()

        async def produce() -> None:
            async with send:
                for amount in range(3):
                    await send.send(await charge(amount))
            done.set()

        async with anyio.create_task_group() as group:
            group.start_soon(produce)
            async with receive:
                got = [amount async for amount in receive]
            await done.wait()
        return got

    play = Play(code)
    for nth in range(3):
        play.perform(f"0/charge#{nth + 1}", nth * 10)
    assert play.result == [0, 10, 20]
    assert_same_from_every_prefix(play)


def test_scopes_within_a_scope_are_cancelled_in_the_same_order_in_every_life():
    """anyio keeps them in a set; by their addresses, they would come in another order in each process."""

    @workflow_of
    async def code() -> list[int]:
        cancelled: list[int] = []

        async def pay(amount: int) -> None:
            with anyio.CancelScope():
                try:
                    await charge(amount)
                finally:
                    cancelled.append(amount)

        async with anyio.create_task_group() as group:
            for amount in range(40):
                group.start_soon(pay, amount)
            await ship("first")
            group.cancel_scope.cancel()
        return cancelled

    results = []
    keep: list[Any] = []
    for life in range(5):
        keep.append([object() for _ in range(life * 7)])  # memory is laid out otherwise
        results.append(Play(code).perform("ship#1", "sent").result)
    assert results == [results[0]] * 5
    assert sorted(results[0]) == list(range(40))


def test_a_cancellation_that_a_shield_withholds_does_not_keep_the_run_busy():
    """anyio delivers it again in every turn of the loop until the task has ended, which may be much later."""

    @workflow_of
    async def code() -> None:
        async def pay() -> None:
            async with shield("10s"):
                await charge(1)
                await notify("paid")

        async with anyio.create_task_group() as group:
            group.start_soon(pay)

    play = Play(code).cancel()
    assert "0/charge#1" in play.waits_for
    play.perform("0/charge#1", 1)
    assert "0/notify#1" in play.waits_for
    play.perform("0/notify#1", "told").stopped()
    assert play.is_cancelled
    assert_same_from_every_prefix(play)


def test_code_that_goes_on_in_a_cancelled_scope_is_cancelled_at_each_wait():
    """As anyio has it everywhere: a scope stays cancelled."""

    @workflow_of
    async def code() -> int:
        waits = 0
        with anyio.move_on_after(5):
            try:
                await charge(1)
            finally:
                for _ in range(3):
                    waits += 1
                    try:
                        await ship("apology")
                    except anyio.get_cancelled_exc_class():
                        continue
        with anyio.CancelScope(shield=True):
            await ship("lamp")
        return waits

    play = Play(code).elapse("timeout#1")
    assert play.perform("ship#4", "sent").result == 3
    assert_same_from_every_prefix(play)


def test_tasks_are_made_by_the_engine_alone():
    @workflow_of
    async def code() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(None)
        assert loop.get_task_factory() is None
        loop.set_task_factory(lambda loop, coro: asyncio.Task(coro, loop=loop))

    with pytest.raises(UsageError, match="task factory"):
        _ = Play(code).result
