"""`Simulated`: the real engine in virtual time, inside an ordinary async test."""

from __future__ import annotations

import asyncio
import unittest
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from holdfast import (
    Pack,
    Permanent,
    Retry,
    RunFailed,
    TimedOut,
    UnknownRun,
    UsageError,
    attempt,
    continue_as_new,
    effect_key,
    hook,
    shield,
    sleep,
    timeout,
)
from holdfast.errors import RunTimedOut, UnknownOutcome
from holdfast.events import Deposed, RunsPruned, RunsRescued
from holdfast.testing import NotSimulated, Simulated, SimulationStuck, replay

shop = Pack("shop")


@shop.effect(key="refund:{order}")
async def refund(order: str) -> None:
    raise AssertionError("a test stubs it")


@shop.effect(key="charge:{order}", undo=refund, retry=Retry(attempts=4, base="4h", cap="24h"))
async def charge(order: str) -> str:
    return f"paid {order} by {effect_key()}"


@shop.effect
def pack_up(order: str) -> str:
    return f"packed {order} at attempt {attempt()}"


@shop.effect(key="send:{order}", safety="once")
async def send(order: str) -> str:
    return f"sent {order}"


@shop.workflow(key="{order}")
async def buy(order: str) -> str:
    payment = await charge(order)
    await sleep("30d")
    return f"{payment}, {await pack_up(order)}"


@shop.workflow
async def pay(order: str) -> str:
    return await charge(order)


@shop.workflow(key="approve:{order}")
async def approve(order: str) -> str:
    return await hook("approval", type=str)


@shop.workflow
async def remind(times: int) -> int:
    for number in range(times):
        await sleep("1h")
        await pack_up(str(number))
    return times


@shop.workflow
async def count_down(left: int) -> str:
    await sleep("1d")
    if left:
        continue_as_new(count_down(left - 1))
    return "over"


@shop.workflow
async def family(orders: list[str]) -> list[str]:
    return list(await asyncio.gather(*(buy(order) for order in orders)))


@shop.workflow
async def ship(order: str) -> str:
    return await send(order)


@shop.workflow
async def wait_long(order: str) -> str:
    payment = await charge(order)
    await sleep("100d")
    return payment


def days(hf: Simulated, began: Any) -> float:
    return (hf.now - began) / timedelta(days=1)


async def test_a_month_of_sleep_passes_at_once():
    async with Simulated(packs=[shop]) as hf:
        began = hf.now
        run, created = await hf.start(buy("o-1"))
        assert created
        assert await run.result() == "paid o-1 by charge:o-1, packed o-1 at attempt 1"
        assert days(hf, began) == 30
        assert [call.effect for call in hf.ledger] == ["shop.charge", "shop.pack_up"]
        assert [entry.at_ms for entry in await run.journal()][-1] == int(hf.now.timestamp() * 1000)


async def test_timers_ring_on_time_one_after_the_other():
    async with Simulated(packs=[shop]) as hf:
        began = hf.now
        run, _ = await hf.start(remind(50))
        await run.result()
        assert [call.at - began for call in hf.ledger.calls(pack_up)] == [timedelta(hours=n + 1) for n in range(50)]


async def test_between_two_awaits_time_stands_still():
    async with Simulated(packs=[shop]) as hf:
        await hf.start(remind(2))
        began = hf.now
        for _ in range(50):
            await asyncio.sleep(0)
        assert hf.now == began
        assert not hf.ledger.count()


async def test_advance_does_what_is_due_by_then_and_no_more():
    async with Simulated(packs=[shop]) as hf:
        began = hf.now
        run, _ = await hf.start(remind(10))
        await hf.advance("3h")
        assert hf.ledger.count(pack_up) == 3
        await hf.advance("30m")
        assert hf.ledger.count(pack_up) == 3
        assert hf.now - began == timedelta(hours=3.5)
        assert (await run.refresh()).status == "waiting"


async def test_what_the_test_does_next_comes_before_time_passes_for_another_wait_of_it():
    async with Simulated(packs=[shop]) as hf:
        began = hf.now
        run, _ = await hf.start(buy("o-1"))
        waiting = asyncio.create_task(run.result())
        for _ in range(3):
            await asyncio.wait_for(asyncio.gather(asyncio.gather(hf.get(run.id))), 60)
        assert hf.now == began
        await waiting
        assert days(hf, began) == 30


async def test_workers_do_not_notice_that_time_was_passed_over():
    async with Simulated(packs=[shop], replicas=2) as hf:
        heard: list[Any] = []
        hf.listen(heard.append)
        owners = {worker.owner for worker in await hf.workers()}
        run, _ = await hf.start(remind(100))
        await run.result()
        with pytest.raises(SimulationStuck):
            await hf.until(lambda: False)  # meanwhile every part of a worker has its turn
        assert {worker.owner for worker in await hf.workers()} == owners
        assert not [event for event in heard if isinstance(event, Deposed)]


async def test_a_hook_is_waited_for_while_the_test_signals_it():
    async with Simulated(packs=[shop]) as hf:
        run, _ = await hf.start(approve("o-1"))
        waiting = asyncio.create_task(run.result())
        await hf.advance("7d")
        assert not waiting.done()
        await run.signal("approval", "yes")
        assert await waiting == "yes"


async def test_calls_that_are_made_together_are_together():
    async with Simulated(packs=[shop], replicas=2) as hf:
        started = await asyncio.gather(*(hf.start(buy("o-1")) for _ in range(10)))
        assert len({each.run.id for each in started}) == 1
        assert [each.created for each in started].count(True) == 1
        assert len({await each.run.result() for each in started}) == 1
        assert hf.ledger.count(charge) == 1


async def test_children_are_waited_for():
    async with Simulated(packs=[shop], replicas=2) as hf:
        run, _ = await hf.start(family(["a", "b", "c"]))
        assert [text.split(",")[0] for text in await run.result()] == [f"paid {n} by charge:{n}" for n in "abc"]
        assert sorted(call.arguments["order"] for call in hf.ledger.calls(charge)) == ["a", "b", "c"]


async def test_a_cancelled_run_is_undone_and_leaves_a_receipt():
    async with Simulated(packs=[shop]) as hf:
        hf.stub(refund, returns=None)
        run, _ = await hf.start(buy("o-1"))
        await hf.advance("3d")
        receipt = await run.cancel("changed my mind")
        assert [effect.state for effect in receipt.effects] == ["undone"]
        assert hf.ledger.count(refund, order="o-1") == 1
        assert hf.ledger.count(pack_up) == 0


async def test_a_run_that_begins_again_goes_on_for_days():
    async with Simulated(packs=[shop]) as hf:
        began = hf.now
        run, _ = await hf.start(count_down(9))
        assert await run.result() == "over"
        assert days(hf, began) == 10


async def test_retries_wait_for_hours_of_virtual_time():
    async with Simulated(packs=[shop]) as hf:
        hf.stub(charge, fails=3)
        run, _ = await hf.start(pay("o-1"))
        assert await run.result() == "paid o-1 by charge:o-1"
        called = [call.at for call in hf.ledger.calls(charge)]
        waited = [after - before for before, after in pairwise(called)]
        assert all(timedelta(0) < each <= timedelta(hours=4 * 2**n) for n, each in enumerate(waited))
        assert max(waited) > timedelta(minutes=10)
        assert [call.outcome for call in hf.ledger] == ["raised", "raised", "raised", "returned"]
        assert hf.ledger.count(charge) == 1


@pytest.mark.parametrize("replicas", [1, 2])
async def test_an_effect_whose_worker_dies_before_the_record_is_called_again_with_the_same_key(replicas: int):
    async with Simulated(packs=[shop], replicas=replicas) as hf:
        hf.kill_at(charge, "after")
        run, _ = await hf.start(pay("o-1"))
        assert await run.result() == "paid o-1 by charge:o-1"
        first, second = hf.ledger.calls(charge)
        assert (first.outcome, second.outcome) == ("lost", "returned")
        assert first.key == second.key == "charge:o-1"
        assert first.attempt == second.attempt == 1
        assert hf.ledger.count(charge) == 2


async def test_an_effect_whose_worker_dies_before_it_happens_once():
    async with Simulated(packs=[shop]) as hf:
        hf.kill_at(charge, "before")
        run, _ = await hf.start(pay("o-1"))
        await run.result()
        assert hf.ledger.count(charge) == 1
        assert (await run.refresh()).fence > 1


async def test_what_is_recorded_is_not_repeated_after_a_kill():
    async with Simulated(packs=[shop]) as hf:
        run, _ = await hf.start(buy("o-1"))
        await hf.until(lambda: hf.ledger.count(charge) == 1)
        await hf.advance("1d")
        await hf.kill()
        await hf.advance("1h")
        await hf.restart()
        await run.result()
        assert hf.ledger.count(charge) == 1
        assert hf.ledger.count(pack_up) == 1


async def test_the_runs_of_a_killed_worker_are_taken_over_by_the_other_one():
    async with Simulated(packs=[shop], replicas=2) as hf:
        heard: list[Any] = []
        hf.listen(heard.append)
        hf.stub(charge, latency="1h")
        run, _ = await hf.start(pay("o-1"))
        await hf.until(lambda: len(hf.ledger) == 1)
        await hf.advance("10m")
        await hf.kill()
        await run.result()
        first, second = hf.ledger
        assert first.worker != second.worker
        assert first.outcome == "lost"
        assert not first.happened
        assert any(isinstance(event, RunsRescued) for event in heard)


async def test_a_dead_worker_is_noticed_when_its_lease_expires_though_another_run_sleeps_for_a_month():
    async with Simulated(packs=[shop]) as hf:
        other, _ = await hf.start(buy("o-1"))
        await hf.advance("1d")
        hf.kill_at(charge)
        run, _ = await hf.start(pay("o-2"))
        await asyncio.gather(run.result(), other.result())
        first, second = hf.ledger.calls(charge, order="o-2")
        assert timedelta(seconds=20) < second.at - first.at < timedelta(minutes=2)


async def test_a_late_write_of_a_paused_worker_is_refused():
    async with Simulated(packs=[shop], replicas=2) as hf:
        heard: list[Any] = []
        hf.listen(heard.append)
        hf.pause_at(charge, "after")
        run, _ = await hf.start(wait_long("o-1"))
        await hf.until(lambda: hf.ledger.count(charge) == 2)
        await hf.advance("1d")
        await hf.unpause()
        await hf.advance("1m")
        assert await run.result() == "paid o-1 by charge:o-1"
        assert hf.ledger.count(charge) == 2
        assert len({call.worker for call in hf.ledger}) == 2
        performed = [entry for entry in await run.journal() if type(entry).__name__ == "Performed"]
        assert len(performed) == 1
        assert len(await hf.workers()) == 2


async def test_an_unknown_outcome_waits_for_a_decision():
    async with Simulated(packs=[shop]) as hf:
        hf.kill_at(send, "after")
        run, _ = await hf.start(ship("o-1"))
        with pytest.raises(UnknownOutcome):
            await run.result()
        assert hf.ledger.count(send) == 1
        await run.decide("send#1", returned="sent by hand", by="me")
        assert await run.result() == "sent by hand"
        assert hf.ledger.count(send) == 1


async def test_a_lost_reply_leaves_the_outcome_of_a_once_effect_unknown():
    async with Simulated(packs=[shop]) as hf:
        hf.stub(send, returns="sent", loses_reply=True)
        run, _ = await hf.start(ship("o-1"))
        with pytest.raises(UnknownOutcome):
            await run.result()
        assert [(call.happened, call.outcome) for call in hf.ledger] == [(True, "lost")]


async def test_a_lost_reply_lets_a_keyed_effect_happen_twice_under_one_key():
    async with Simulated(packs=[shop]) as hf:
        hf.stub(charge, returns="paid", loses_reply=True)
        run, _ = await hf.start(pay("o-1"))
        assert await run.result() == "paid"
        assert [call.key for call in hf.ledger] == ["charge:o-1"] * 2
        assert hf.ledger.count(charge) == 2


# -- stubs


async def test_a_stub_returns_what_it_is_told_and_replaces_the_function_here_alone():
    async with Simulated(packs=[shop]) as hf, Simulated(packs=[shop]) as other:
        hf.stub(charge, returns="free")
        mine, theirs = await hf.start(pay("o-1")), await other.start(pay("o-1"))
        assert await mine.run.result() == "free"
        assert await theirs.run.result() == "paid o-1 by charge:o-1"


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_fake_is_called_with_the_arguments_of_the_effect(is_async: bool):
    async def slowly(order: str) -> str:
        await asyncio.sleep(60)
        return f"{order} {effect_key()} {attempt()}"

    def at_once(order: str) -> str:
        return f"{order} {effect_key()} {attempt()}"

    async with Simulated(packs=[shop]) as hf:
        hf.stub(charge, calls=slowly if is_async else at_once)
        run, _ = await hf.start(pay("o-1"))
        assert await run.result() == "o-1 charge:o-1 1"


async def test_a_stub_fails_as_often_as_it_is_told_under_each_key():
    async with Simulated(packs=[shop]) as hf:
        hf.stub(charge, fails=2, then="paid")
        runs = [(await hf.start(pay(order))).run for order in ("a", "b")]
        assert [await run.result() for run in runs] == ["paid", "paid"]
        assert [len(hf.ledger.calls(charge, order=order)) for order in ("a", "b")] == [3, 3]


async def test_a_stub_fails_with_an_error_of_the_tests():
    async with Simulated(packs=[shop]) as hf:
        hf.stub(charge, fails=Permanent("no money"))
        run, _ = await hf.start(pay("o-1"))
        with pytest.raises(RunFailed) as failed:
            await run.result()
        assert "no money" in str(failed.value)
        assert hf.ledger.count(charge) == 0
        hf.stub(charge, fails=ValueError("once"), then="paid")
        await run.retry()
        assert await run.result() == "paid"


async def test_latency_is_virtual_and_the_journal_tells_it_truly():
    async with Simulated(packs=[shop]) as hf:
        hf.stub(charge, returns="paid", fails=1, latency="2h")
        run, _ = await hf.start(pay("o-1"))
        await run.result()
        first, second = hf.ledger
        assert second.at - first.at > timedelta(hours=2)
        assert hf.now - second.at == timedelta(hours=2)
        [performed] = [entry for entry in await run.journal() if type(entry).__name__ == "Performed"]
        assert performed.began_at == second.at


async def test_the_limit_of_an_effect_counts_in_virtual_time():
    limited = Pack("limited")

    @limited.effect(timeout="10s", retry=Retry(attempts=1))
    async def slow() -> None:
        await asyncio.sleep(3600)

    @limited.workflow
    async def work() -> None:
        await slow()

    async with Simulated(packs=[limited]) as hf:
        began = hf.now
        run, _ = await hf.start(work())
        with pytest.raises(RunFailed) as failed:
            await run.result()
        assert isinstance(failed.value.__cause__, TimedOut)
        assert hf.now - began == timedelta(seconds=10)


async def test_a_resource_is_provided():
    bank = Pack("bank")

    @bank.resource
    async def account() -> AsyncIterator[list[int]]:
        raise AssertionError("it is provided")
        yield []

    @bank.effect
    async def deposit(cents: int, into: list[int] = account.shared) -> int:
        into.append(cents)
        return sum(into)

    @bank.workflow
    async def save(cents: int) -> int:
        return await deposit(cents)

    async with Simulated(packs=[bank]) as hf:
        mine: list[int] = [5]
        hf.provide(account, mine)
        run, _ = await hf.start(save(10))
        assert await run.result() == 15
        assert mine == [5, 10]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"returns": "a", "calls": print}, "one thing"),
        ({"then": "a"}, "then="),
        ({"returns": "a", "fails": ValueError()}, "returns nothing"),
        ({"calls": "print"}, "cannot be called"),
    ],
)
async def test_a_stub_that_contradicts_itself_is_refused(options: dict[str, Any], said: str):
    async with Simulated(packs=[shop]) as hf:
        with pytest.raises(UsageError, match=said):
            hf.stub(charge, **options)
        with pytest.raises(UsageError, match="not an effect"):
            hf.stub(buy, **options)  # type: ignore[arg-type]


# -- what cannot work says so


async def test_a_wait_for_what_never_comes_names_the_run_and_what_it_waits_for():
    async with Simulated(packs=[shop]) as hf:
        run, _ = await hf.start(approve("o-1"))
        with pytest.raises(SimulationStuck) as stuck:
            await run.result()
        assert run.id in str(stuck.value)
        assert "approve:o-1" in str(stuck.value)
        assert "a signal to hook 'approval'" in str(stuck.value)
        await run.signal("approval", "after all")
        assert await run.result() == "after all"


async def test_a_condition_that_never_comes_true_is_told():
    async with Simulated(packs=[shop]) as hf:
        with pytest.raises(SimulationStuck, match="no run"):
            await hf.until(lambda: False)


@pytest.mark.filterwarnings("ignore::holdfast.warnings.NoWorker")
async def test_without_a_worker_it_says_that_there_is_none():
    async with Simulated(packs=[shop]) as hf:
        await hf.kill()
        run, _ = await hf.start(pay("o-1"))
        with pytest.raises(SimulationStuck, match=r"restart\(\)"):
            await run.result()
        await hf.restart()
        await run.result()
        with pytest.raises(UsageError, match="no worker 7"):
            await hf.kill(7)


async def test_an_effect_that_never_returns_is_named():
    async def forever(order: str) -> str:
        await asyncio.Event().wait()
        return order

    async with Simulated(packs=[shop]) as hf:
        hf.stub(charge, calls=forever)
        run, _ = await hf.start(pay("o-1"))
        with pytest.raises(SimulationStuck, match=r"effect shop\.charge, attempt 1, which does not return"):
            await run.result()


async def test_what_goes_on_forever_ends_after_a_year():
    stubborn = Pack("stubborn")

    @stubborn.effect(retry=Retry(attempts=1_000_000, base="20d", cap="20d"))
    async def hopeless() -> None:
        raise ValueError("never")

    @stubborn.workflow
    async def work() -> None:
        await hopeless()

    async with Simulated(packs=[stubborn]) as hf:
        run, _ = await hf.start(work())
        with pytest.raises(SimulationStuck, match=r"a year has passed.*ValueError: never"):
            await run.result()
        await hf.advance("1000d")


@pytest.mark.parametrize(
    "reach",
    [
        lambda: asyncio.open_connection("localhost", 1),
        lambda: asyncio.to_thread(print),
        lambda: asyncio.create_subprocess_exec("true"),
    ],
)
async def test_an_effect_that_reaches_for_the_real_world_is_told_to_be_stubbed(reach: Callable[[], Any]):
    async def real(order: str) -> str:
        await reach()
        return order

    async with Simulated(packs=[shop]) as hf:
        hf.stub(charge, calls=real)
        run, _ = await hf.start(pay("o-1"))
        with pytest.raises(NotSimulated, match=r"effect shop\.charge .*hf\.stub"):
            await run.result()
        hf.stub(charge, returns="paid")
        assert (await run.wait()).status == "failed"
        await run.retry()
        assert await run.result() == "paid"


async def test_the_verbs_belong_into_the_block():
    hf = Simulated(packs=[shop])
    with pytest.raises(UsageError, match="has not begun"):
        await hf.start(pay("o-1"))
    with pytest.raises(UsageError, match="has not begun"):
        await hf.advance("1h")
    async with hf:
        run, _ = await hf.start(pay("o-1"))
    with pytest.raises(UsageError, match="is over"):
        await run.result()
    with pytest.raises(UsageError, match="used already"):
        async with hf:
            pass
    with pytest.raises(UsageError, match="replicas=0"):
        Simulated(packs=[shop], replicas=0)


# -- the same, whatever is around it


async def ids_of(seed: int) -> tuple[list[str], list[str]]:
    async with Simulated(packs=[shop], replicas=3, seed=seed) as hf:
        hf.stub(charge, fails=1, latency="3s")
        runs = [each.run for each in await asyncio.gather(*(hf.start(buy(f"o-{n}")) for n in range(5)))]
        for run in runs:
            await run.result()
        return [run.id for run in runs], [f"{call.at} {call.worker} {call.key}" for call in hf.ledger]


async def test_equal_seeds_give_equal_runs():
    assert await ids_of(7) == await ids_of(7)
    assert (await ids_of(7))[0] != (await ids_of(8))[0]


async def test_what_is_still_waited_for_at_the_end_is_cancelled():
    async with Simulated(packs=[shop]) as hf:
        run, _ = await hf.start(approve("o-1"))
        waiting = asyncio.create_task(run.result())
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_call_that_the_test_gives_up_harms_nothing():
    async with Simulated(packs=[shop]) as hf:
        run, _ = await hf.start(buy("o-1"))
        waiting = asyncio.create_task(run.result())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await run.result()


async def test_a_caller_may_wait_for_a_limited_time():
    async with Simulated(packs=[shop]) as hf:
        began = hf.now
        run, _ = await hf.start(buy("o-1"))
        with pytest.raises(TimedOut):
            await run.result(timeout="2d")
        assert hf.now - began == timedelta(days=2)
        assert await run.result()


async def test_a_run_has_a_limit_of_its_own():
    async with Simulated(packs=[shop]) as hf:
        began = hf.now
        run, _ = await hf.start(buy("o-1"), timeout="5d")
        with pytest.raises(RunTimedOut):
            await run.result()
        assert 5 <= days(hf, began) < 5.001


async def test_a_run_is_removed_when_its_retention_is_over():
    async with Simulated(packs=[shop]) as hf:
        run, _ = await hf.start(pay("o-1"), retention="10d")
        await run.result()
        await hf.advance("9d")
        await run.refresh()
        await hf.advance("2d")
        with pytest.raises(UnknownRun):
            await run.refresh()


async def test_retention_ends_on_its_day_though_the_test_waits_for_something_else():
    async with Simulated(packs=[shop]) as hf:
        began, pruned = hf.now, list[Any]()
        hf.listen(lambda event: pruned.append(hf.now) if isinstance(event, RunsPruned) else None)
        run, _ = await hf.start(pay("o-1"), retention="10d")
        other, _ = await hf.start(buy("o-2"))
        await other.result()
        assert timedelta(days=10) <= pruned[0] - began < timedelta(days=10, minutes=1)
        assert run.id not in [each.id async for each in hf.runs()]


async def test_runs_wait_for_each_other_where_there_is_little_room():
    async with Simulated(packs=[shop], concurrency=1) as hf:
        began = hf.now
        hf.stub(charge, latency="1h")
        runs = [(await hf.start(pay(str(n)))).run for n in range(3)]
        for run in runs:
            await run.result()
        assert timedelta(hours=3) <= hf.now - began < timedelta(hours=3, minutes=5)


async def test_a_run_can_be_followed_and_its_journal_replayed(tmp_path: Any):
    async with Simulated(packs=[shop]) as hf:
        run, _ = await hf.start(buy("o-1"))
        kinds = [type(event.entry).__name__ async for event in run.events()]
        assert kinds == ["Started", "Performed", "Elapsed", "Performed", "Completed"]
        assert [each.id async for each in hf.runs(buy)] == [run.id]
        assert "charge" in str(await run.explain())
        await hf.export_journals(tmp_path, status="completed")
    [file] = tmp_path.iterdir()
    assert replay(file, packs=[shop]).divergence == ""
    with pytest.raises(UsageError, match="no exported journal"):
        replay(tmp_path / "missing.json", packs=[shop])


async def test_a_workflow_may_bound_and_shield_what_it_waits_for():
    careful = Pack("careful")

    @careful.effect
    async def fetch() -> str:
        await asyncio.sleep(7200)
        return "late"

    @careful.workflow
    async def work() -> str:
        try:
            async with timeout("1h"):
                return await fetch()
        except TimeoutError:
            async with shield("3h"):
                return await fetch()

    async with Simulated(packs=[careful]) as hf:
        began = hf.now
        run, _ = await hf.start(work())
        assert await run.result() == "late"
        assert hf.now - began == timedelta(hours=3)


def test_it_works_in_asyncio_run_and_in_other_loops():
    uvloop = pytest.importorskip("uvloop")

    async def main() -> str:
        async with Simulated(packs=[shop]) as hf:
            run, _ = await hf.start(pay("o-1"))
            return await run.result()

    assert asyncio.run(main()) == "paid o-1 by charge:o-1"
    assert uvloop.run(main()) == "paid o-1 by charge:o-1"


def test_it_works_under_anyio():
    anyio = pytest.importorskip("anyio")

    async def main() -> list[str]:
        results: list[str] = []

        async def one(hf: Simulated, order: str) -> None:
            run, _ = await hf.start(buy(order))
            results.append(await run.result())

        async with Simulated(packs=[shop]) as hf, anyio.create_task_group() as tasks:
            for order in ("a", "b"):
                tasks.start_soon(one, hf, order)
        return sorted(results)

    assert [text[:6] for text in anyio.run(main)] == ["paid a", "paid b"]


def test_it_works_in_a_unittest():
    class Case(unittest.IsolatedAsyncioTestCase):
        async def test_paying(self) -> None:
            async with Simulated(packs=[shop]) as hf:
                run, _ = await hf.start(buy("o-1"))
                assert (await run.result()).startswith("paid o-1")

    result = unittest.TestResult()
    Case("test_paying").run(result)
    assert result.testsRun == 1
    assert not result.failures + result.errors


async def test_a_fault_of_the_world_reaches_all_who_wait(monkeypatch: pytest.MonkeyPatch):
    async with Simulated(packs=[shop]) as hf:
        run, _ = await hf.start(approve("o-1"))

        def broken(*args: Any) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(hf._time, "go_on", broken)
        outcomes = await asyncio.gather(run.result(), hf.advance("1h"), return_exceptions=True)
        assert [type(each) for each in outcomes] == [ZeroDivisionError] * 2
