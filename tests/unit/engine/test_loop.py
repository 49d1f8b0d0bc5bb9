"""Plain asyncio in a workflow: what each primitive waits for, what it answers, and how its steps are named (E12)."""

from __future__ import annotations

import asyncio
import contextvars
import math
from datetime import UTC, datetime
from typing import Any

import pytest

import holdfast
from holdfast.errors import UsageError
from tests.builders import DAY_MS, NOW_MS, FakeClock
from tests.unit.engine.driving import Play, workflow_of
from tests.unit.engine.shop import charge, notify, pay, ship


def test_steps_one_after_the_other():
    @workflow_of
    async def code() -> list[int]:
        return [await charge(1), await charge(2)]

    play = Play(code)
    assert play.waits_for == ["charge#1"]
    play.perform("charge#1", 10)
    assert play.waits_for == ["charge#2"]
    assert play.perform("charge#2", 20).result == [10, 20]


def test_gather_asks_for_all_at_once_and_keeps_the_order_of_its_arguments():
    @workflow_of
    async def code() -> list[int]:
        return list(await asyncio.gather(charge(1), charge(2), charge(3)))

    play = Play(code)
    assert play.waits_for == ["0/charge#1", "1/charge#1", "2/charge#1"]
    play.perform("2/charge#1", 3).perform("0/charge#1", 1)
    assert play.waits_for == ["1/charge#1"]
    assert play.perform("1/charge#1", 2).result == [1, 2, 3]


def test_gather_raises_the_first_failure_to_be_recorded():
    @workflow_of
    async def code() -> list[int]:
        return list(await asyncio.gather(charge(1), charge(2)))

    play = Play(code).give_up("1/charge#1", ValueError("second")).again()
    with pytest.raises(ValueError, match="second"):
        _ = play.result


def test_a_task_group_cancels_what_is_left_when_one_fails():
    @workflow_of
    async def code() -> str:
        try:
            async with asyncio.TaskGroup() as group:
                for amount in range(3):
                    group.create_task(charge(amount))
        except* ValueError:
            pass
        return await ship("apology")

    play = Play(code)
    assert play.waits_for == ["0/charge#1", "1/charge#1", "2/charge#1"]
    play.perform("0/charge#1", 0).give_up("1/charge#1", ValueError("no"))
    assert play.dropped() == ["2/charge#1"]
    assert play.waits_for == ["ship#1"]
    assert play.perform("ship#1", "sent").result == "sent"


def test_tasks_of_tasks_have_their_own_lineage():
    @workflow_of
    async def code() -> list[list[int]]:
        async def order(amount: int) -> list[int]:
            await ship()
            return list(await asyncio.gather(charge(amount), charge(amount + 1)))

        await charge(0)
        result = await asyncio.gather(order(10), order(20))
        await charge(0)
        return result

    play = Play(code).perform("charge#1", 0)
    assert play.waits_for == ["0/ship#1", "1/ship#1"]
    play.perform("1/ship#1", "")
    assert play.waits_for == ["0/ship#1", "1.0/charge#1", "1.1/charge#1"]
    play.perform("1.1/charge#1", 21).perform("0/ship#1", "").perform("1.0/charge#1", 20)
    play.perform("0.0/charge#1", 10).perform("0.1/charge#1", 11)
    assert play.waits_for == ["charge#2"]
    assert play.perform("charge#2", 0).result == [[10, 11], [20, 21]]


def test_occurrences_are_counted_per_task_and_name():
    @workflow_of
    async def code() -> None:
        async def twice() -> None:
            await charge(1)
            await ship()
            await charge(2)

        await charge(0)
        await asyncio.create_task(twice())
        await charge(3)

    play = Play(code)
    for step in ("charge#1", "0/charge#1", "0/ship#1", "0/charge#2", "charge#2"):
        assert play.waits_for == [step]
        play.perform(step, "" if "ship" in step else 0)
    assert play.result is None


def test_wait_answers_with_the_first_that_is_recorded():
    @workflow_of
    async def code() -> list[int]:
        tasks = [asyncio.create_task(charge(amount)) for amount in range(3)]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        return [task.result() for task in done]

    for winner in range(3):
        play = Play(code).perform(f"{winner}/charge#1", winner)
        assert play.result == [winner]
        assert sorted(play.dropped()) == [f"{n}/charge#1" for n in range(3) if n != winner]


def test_as_completed_hands_out_results_in_the_order_of_their_records():
    @workflow_of
    async def code() -> list[int]:
        return [await next_one for next_one in asyncio.as_completed([charge(amount) for amount in range(8)])]

    play = Play(code)
    order = [5, 2, 7, 0, 1, 6, 4, 3]
    by_amount = {command.call.arguments["amount"]: command.step for command in play.begun if command.call}
    for amount in order:
        play.perform(by_amount[amount], amount)
    assert play.result == order
    assert play.again().result == order


def test_as_completed_deals_the_same_step_to_the_same_call_in_every_life():
    @workflow_of
    async def code() -> None:
        for next_one in asyncio.as_completed([charge(amount) for amount in range(30)]):
            await next_one

    @workflow_of
    async def of_coroutines() -> None:
        async def one(amount: int) -> int:
            return await charge(amount)

        for next_one in asyncio.as_completed([one(amount) for amount in range(30)]):
            await next_one

    lives = [Play(written) for _ in range(3) for written in (code, of_coroutines)]
    dealt = [[(command.step, command.intent.digest) for command in play.begun] for play in lives]
    assert all(each == dealt[0] for each in dealt)


@pytest.mark.parametrize("kind", [set, frozenset])
@pytest.mark.parametrize("others", [0, 2])
def test_as_completed_refuses_a_set_of_coroutines_whose_order_is_another_in_each_process(kind, others):
    @workflow_of
    async def code() -> None:
        async def one(amount: int) -> int:
            return await charge(amount)

        for next_one in asyncio.as_completed(kind([*map(one, range(3 - others)), *map(charge, range(others))])):
            await next_one

    with pytest.raises(UsageError, match="set of 3 awaitables") as caught:
        _ = Play(code).result
    assert "list" in caught.value.hint


@pytest.mark.parametrize("further", [charge, lambda amount: asyncio.sleep(60, amount)], ids=["call", "coroutine"])
def test_as_completed_takes_a_set_of_tasks_and_calls_or_of_tasks_and_one_coroutine(further):
    @workflow_of
    async def code() -> list[int]:
        async def one(amount: int) -> int:
            return await charge(amount)

        awaitables: set[Any] = {asyncio.create_task(one(0)), further(1)}
        if further is charge:
            awaitables |= {charge(2), charge(3)}
        return [await next_one for next_one in asyncio.as_completed(awaitables)]

    play = Play(code)
    for step in list(play.waits_for):
        if step in play.machine.timers:
            play.elapse(step)
        else:
            play.perform(step, int(step[0]))
    assert play.result == play.again().result


async def test_outside_a_workflow_as_completed_is_what_it_was():
    async def one(amount: int) -> int:
        return amount

    assert sorted([await each for each in asyncio.as_completed({one(1), one(2)}, timeout=5)]) == [1, 2]
    with pytest.raises(TypeError, match="expect an iterable"):
        list(asyncio.as_completed(asyncio.get_running_loop().create_future()))  # pyright: ignore[reportArgumentType]


def test_the_sets_that_wait_answers_are_walked_alike_in_every_life():
    @workflow_of
    async def code() -> list[int]:
        tasks = [asyncio.create_task(charge(amount)) for amount in range(30)]
        done, _ = await asyncio.wait(tasks)
        return [task.result() for task in done]

    play = Play(code)
    for amount in reversed(range(30)):
        play.perform(f"{amount}/charge#1", amount)
    lives = [play.again() for _ in range(4)]
    assert [life.result for life in lives] == [play.result] * 4


def test_futures_are_walked_alike_in_every_life_too():
    @workflow_of
    async def code() -> list[int]:
        tasks = [asyncio.create_task(charge(amount)) for amount in range(30)]
        done, _ = await asyncio.wait([asyncio.shield(task) for task in tasks])
        return [future.result() for future in done]

    play = Play(code)
    for amount in range(30):
        play.perform(f"{amount}/charge#1", amount)
    lives = [play.again() for _ in range(4)]
    assert [life.result for life in lives] == [play.result] * 4


def test_tasks_have_the_same_names_in_every_life():
    @workflow_of
    async def code() -> list[str]:
        async def name() -> str:
            task = asyncio.current_task()
            assert task is not None
            return task.get_name()

        named = await asyncio.create_task(name(), name="mine")
        return [await name(), *await asyncio.gather(name(), name()), named]

    names = Play(code).result
    assert names[-1] == "mine"
    assert len(set(names)) == 4
    assert Play(code).result == names


def test_tasks_of_a_group_are_cancelled_in_the_same_order_in_every_life():
    @workflow_of
    async def code() -> list[int]:
        cancelled: list[int] = []

        async def member(number: int) -> None:
            try:
                await charge(number)
            except asyncio.CancelledError:
                cancelled.append(number)
                raise

        try:
            async with asyncio.TaskGroup() as group:
                for number in range(30):
                    group.create_task(member(number))
                group.create_task(ship())
        except* ValueError:
            pass
        return cancelled

    play = Play(code).give_up("30/ship#1", ValueError("no"))
    lives = [play.again() for _ in range(4)]
    assert sorted(play.result) == list(range(30))
    assert [life.result for life in lives] == [play.result] * 4


@pytest.mark.parametrize("form", ["timeout", "wait_for", "holdfast.timeout"])
def test_a_timeout_is_a_durable_timer_that_drops_what_it_waited_for(form):
    @workflow_of
    async def code() -> str:
        try:
            if form == "timeout":
                async with asyncio.timeout(30):
                    return await ship()
            elif form == "wait_for":
                return await asyncio.wait_for(ship(), 30)
            else:
                async with holdfast.timeout("30s"):
                    return await ship()
        except TimeoutError:
            return "too late"

    play = Play(code)
    [effect, timer] = play.waits_for
    assert effect.endswith("ship#1")
    assert timer == "timeout#1"
    assert play.machine.pending.next_due_at_ms() == NOW_MS + 30_000
    assert play.again().perform(effect, "in time").result == "in time"
    play.elapse(timer)
    assert play.dropped() == [effect]
    assert play.result == "too late"


def test_a_timeout_that_was_not_needed_leaves_no_timer():
    @workflow_of
    async def code() -> str:
        async with asyncio.timeout(30):
            await ship()
        return await ship()

    play = Play(code).perform("ship#1", "")
    assert play.waits_for == ["ship#2"]
    assert play.machine.pending.next_due_at_ms() is None


@pytest.mark.parametrize("form", ["asyncio", "holdfast"])
def test_sleep_is_a_durable_timer(form):
    @workflow_of
    async def code() -> str:
        await (asyncio.sleep(90) if form == "asyncio" else holdfast.sleep("90s"))
        return holdfast.now().isoformat()

    play = Play(code)
    assert play.waits_for == ["sleep#1"]
    assert play.machine.pending.next_due_at_ms() == NOW_MS + 90_000
    play.elapse("sleep#1")
    assert datetime.fromisoformat(play.result) >= datetime.fromtimestamp(NOW_MS / 1000 + 90, UTC)
    assert play.again().result == play.result


def test_sleeping_for_no_time_is_no_step():
    @workflow_of
    async def code() -> str:
        for seconds in (0, -5, 0.0001):
            await asyncio.sleep(seconds)
        await holdfast.sleep(0)
        return "awake"

    assert Play(code).result == "awake"


@pytest.mark.parametrize("seconds", [math.inf, 1e18, 1e300])
def test_a_wait_for_ever_is_one_that_a_store_can_hold(seconds):
    @workflow_of
    async def code() -> None:
        await asyncio.sleep(seconds)

    play = Play(code)
    assert play.waits_for == ["sleep#1"]
    due_at_ms = play.machine.pending.next_due_at_ms()
    assert due_at_ms is not None
    assert NOW_MS + 100 * 365 * DAY_MS < due_at_ms < 2**62


def test_of_several_timers_the_earliest_is_due_first_and_of_equals_the_first_one_set():
    @workflow_of
    async def code() -> None:
        await asyncio.gather(*(asyncio.sleep(seconds) for seconds in (3, 1, 2, 1)))

    play = Play(code)
    order = []
    while play.waits_for:
        due_at_ms = play.machine.pending.next_due_at_ms()
        assert due_at_ms is not None
        assert play.machine.pending.take_due(due_at_ms - 1) is None
        first = play.machine.pending.take_due(due_at_ms)
        assert first is not None
        order.append(first.step)
        play.elapse(first.step)
    assert order == ["1/sleep#1", "3/sleep#1", "2/sleep#1", "0/sleep#1"]


def test_queues_locks_events_semaphores_and_conditions_work_between_tasks():
    @workflow_of
    async def code() -> list[Any]:
        seen: list[object] = []
        queue: asyncio.Queue[int | None] = asyncio.Queue(maxsize=1)
        lock, opened, slots, condition = asyncio.Lock(), asyncio.Event(), asyncio.Semaphore(2), asyncio.Condition()

        async def produce() -> None:
            for amount in range(3):
                await queue.put(await charge(amount))
            await queue.put(None)

        async def consume() -> None:
            while (amount := await queue.get()) is not None:
                async with lock:
                    seen.append(amount)
            opened.set()

        async def wait() -> None:
            await opened.wait()
            async with slots, condition:
                seen.append("opened")

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            group.create_task(consume())
            group.create_task(wait())
        return seen

    play = Play(code)
    for number in range(3):
        play.perform(f"0/charge#{number + 1}", number)
    assert play.result == [0, 1, 2, "opened"]
    assert play.again().result == play.result


def test_a_semaphore_bounds_how_many_effects_are_asked_for():
    @workflow_of
    async def code() -> None:
        slots = asyncio.Semaphore(2)

        async def one(amount: int) -> None:
            async with slots:
                await charge(amount)

        await asyncio.gather(*(one(amount) for amount in range(4)))

    play = Play(code)
    assert play.waits_for == ["0/charge#1", "1/charge#1"]
    play.perform("1/charge#1", 0)
    assert play.waits_for == ["0/charge#1", "2/charge#1"]


def test_shield_keeps_the_step_when_its_waiter_is_gone():
    @workflow_of
    async def code() -> str:
        inner = asyncio.ensure_future(ship())
        try:
            async with asyncio.timeout(1):
                await asyncio.shield(inner)
        except TimeoutError:
            pass
        return await inner

    play = Play(code).elapse("timeout#1")
    assert play.dropped() == []
    assert play.waits_for == ["0/ship#1"]
    assert play.perform("0/ship#1", "late").result == "late"


def test_awaiting_a_workflow_is_a_child_and_spawn_gives_one_to_be_joined_later():
    @workflow_of
    async def code() -> list[Any]:
        child = await holdfast.spawn(pay(1))
        assert (child.id, child.workflow) == ("child-1", "shop.pay")
        other = await pay(2)
        return [other, await child.result()]

    play = Play(code)
    assert [(command.step, command.intent.kind, command.key) for command in play.begun] == [("pay#1", "spawn", "pay:1")]
    play.spawned("pay#1", "child-1")
    assert play.waits_for == ["pay#2"]
    play.spawned("pay#2", "child-2").joined("pay#2", 2)
    assert play.waits_for == ["pay.result#1"]
    assert play.joined("pay.result#1", 1).result == [2, 1]
    assert play.again().result == [2, 1]


def test_the_failure_of_a_child_is_raised_where_it_is_awaited():
    @workflow_of
    async def code() -> str:
        try:
            await pay(1)
        except KeyError as error:
            return f"caught {error}"
        return "paid"

    assert Play(code).spawned("pay#1", "child-1").joined("pay#1", error=KeyError("card")).result == "caught 'card'"


def test_the_group_that_a_child_failed_with_is_caught_by_its_members():
    @workflow_of
    async def code() -> str:
        caught = "nothing"
        try:
            await pay(1)
        except* KeyError as errors:
            caught = f"caught {errors.exceptions[0]}"
        return caught

    group = ExceptionGroup("unhandled errors in a TaskGroup (1 sub-exception)", [KeyError("card")])
    assert Play(code).spawned("pay#1", "child-1").joined("pay#1", error=group).result == "caught 'card'"


def test_callbacks_run_in_order_unless_they_are_cancelled_and_their_errors_are_their_own():
    @workflow_of
    async def code() -> list[str]:
        seen: list[str] = []
        loop = asyncio.get_running_loop()
        loop.call_soon(seen.append, "first")
        cancelled = loop.call_soon(seen.append, "never")
        cancelled.cancel()
        assert cancelled.cancelled()
        loop.call_soon(seen.remove, "nothing")
        loop.call_soon(seen.append, "last")
        later = loop.call_later(5, seen.append, "later")
        later.cancel()
        await asyncio.sleep(10)
        return seen

    play = Play(code)
    assert play.waits_for == ["sleep#1"]
    assert play.elapse("sleep#1").result == ["first", "last"]


def test_a_callback_of_the_code_is_a_durable_timer_too():
    @workflow_of
    async def code() -> str:
        loop = asyncio.get_running_loop()
        assert loop.is_running()
        assert not loop.is_closed()
        future: asyncio.Future[str] = loop.create_future()
        loop.call_later(60, future.set_result, "rang")
        return await future

    play = Play(code)
    [timer] = play.waits_for
    assert play.elapse(timer).result == "rang"
    assert play.again().result == "rang"


@pytest.mark.parametrize("thing", [pay, "pay", None])
def test_what_is_no_call_cannot_be_spawned(thing):
    @workflow_of
    async def code() -> None:
        await holdfast.spawn(thing)

    with pytest.raises(UsageError, match=r"spawn\(\) was given"):
        _ = Play(code).result


def test_only_a_workflow_can_be_spawned():
    @workflow_of
    async def code() -> None:
        await holdfast.spawn(charge(1))

    with pytest.raises(UsageError, match=r"spawn\(\) was given the effect 'shop.charge'"):
        _ = Play(code).result


@pytest.mark.parametrize(("key", "says"), [("", "empty"), ("k" * 256, "256 characters"), (7, "not int")])
def test_the_key_of_a_child_is_checked_where_it_is_given(key, says):
    @workflow_of
    async def code() -> None:
        await holdfast.spawn(pay(1), key=key)

    with pytest.raises(UsageError, match=says):
        _ = Play(code).result


def test_code_that_cancels_its_own_task_ends_cancelled():
    @workflow_of
    async def code() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await charge(1)

    play = Play(code)
    assert type(play.machine.outcome).__name__ == "CodeCancelled"
    assert play.waits_for == []


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_exit_ends_the_run_and_not_the_worker(error):
    @workflow_of
    async def code() -> None:
        await charge(1)
        raise error

    play = Play(code).perform("charge#1", 0)
    with pytest.raises(type(error)):
        _ = play.result


def test_an_exit_in_a_task_ends_the_run_and_not_the_worker():
    @workflow_of
    async def code() -> None:
        async def leave() -> None:
            await charge(1)
            raise SystemExit(3)

        await asyncio.gather(leave(), charge(2))

    play = Play(code).perform("0/charge#1", 0)
    with pytest.raises(SystemExit):
        _ = play.result


def test_nothing_of_the_process_leaks_into_the_run_by_context():
    leak: contextvars.ContextVar[str] = contextvars.ContextVar("leak", default="clean")
    leak.set("dirty")

    @workflow_of
    async def code() -> str:
        return leak.get()

    assert Play(code).result == "clean"


def test_a_callback_runs_in_the_context_that_it_is_given():
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")

    @workflow_of
    async def code() -> list[str]:
        tenant.set("acme")
        seen: list[str] = []
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: seen.append(tenant.get()), context=contextvars.Context())
        loop.call_soon(lambda: seen.append(tenant.get()))
        await asyncio.sleep(0)
        return seen

    assert Play(code).result == ["nobody", "acme"]


def test_context_variables_of_the_code_are_inherited_by_its_tasks():
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")

    @workflow_of
    async def code() -> str:
        tenant.set("acme")

        async def inner() -> str:
            await charge(1)
            return tenant.get()

        return await asyncio.create_task(inner())

    assert Play(code).perform("0/charge#1", 0).result == "acme"


def test_an_exception_in_a_task_nobody_awaits_changes_nothing(recwarn):
    @workflow_of
    async def code() -> str:
        async def fail() -> None:
            raise ValueError

        tasks = [asyncio.create_task(fail())]
        tasks.clear()
        return await ship()

    assert Play(code).perform("ship#1", "ok").result == "ok"
    assert not list(recwarn)


def test_an_effect_with_a_key_is_asked_for_under_it_and_another_under_its_run_and_step():
    """E2."""

    @workflow_of
    async def code() -> None:
        await notify("o-1")
        await charge(1)

    play = Play(code, run_id="run-7").perform("notify#1", "")
    assert [command.intent.key for command in play.begun] == ["notice:o-1", "run-7/charge#1"]


def test_the_intent_is_fixed_before_the_call():
    """E1: name, key, digest of the input, and the line that asks."""

    @workflow_of
    async def code() -> None:
        await charge(1)

    [command] = Play(code).begun
    assert (command.intent.kind, command.intent.name) == ("effect", "shop.charge")
    assert command.intent.line.startswith("test_loop.py:")
    [other] = Play(code).begun
    assert other.intent == command.intent
    assert other.arguments == command.arguments == b'{"amount":1}'


def test_a_failed_attempt_keeps_the_step_open_and_is_due_again():
    """E10."""

    @workflow_of
    async def code() -> int:
        return await charge(1)

    play = Play(code).attempt("charge#1", OSError("net"), delay_ms=5_000)
    for life in (play, play.again()):
        [command] = life.machine.open.values()
        assert command.failures == 1
        assert life.machine.pending.next_due_at_ms() == command.retry_at_ms
        assert command.is_under_way(FakeClock(wall=command.retry_at_ms - 1).wall_ms)
        assert not command.is_under_way(FakeClock(wall=command.retry_at_ms).wall_ms)
        assert life.machine.pending.take_due(command.retry_at_ms - 1) is None
        due = command.retry_at_ms
        assert life.machine.pending.take_due(due) is command
        assert life.machine.pending.take_due(due) is None
    play.attempt("charge#1", OSError("net"), delay_ms=1_000)
    assert play.machine.open["charge#1"].failures == 2
    assert play.perform("charge#1", 5).result == 5
