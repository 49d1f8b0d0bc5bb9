"""`run.cancel()`: the receipt says what the world has seen, and the world has seen no more than that (C1-C4, C8)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from holdfast import (
    Holdfast,
    NotAllowedNow,
    Pack,
    Permanent,
    Receipt,
    Retry,
    Run,
    RunCancelled,
    RunFailed,
    TimedOut,
    UnknownRun,
    UsageError,
    cancel_requested,
    continue_as_new,
    hook,
    sleep,
)
from holdfast.errors import StoreUnavailable, UndeclaredOutcome
from holdfast.events import CancelRequested, EffectBegan, EffectWillRetry, OutcomeUndeclared, RunEnded, RunOvertaken
from holdfast.kernel.changes import Change
from holdfast.kernel.journal import CancelAsked, Cancelled, Dropped, Late
from tests.integration.conftest import PATIENCE_SECONDS, Home, SqliteHome, eventually, heard, worker_of
from tests.integration.ledgers import ONCE, Ledger, Moments, Shop, ThreadLedger, lefts, time_is_up, until_recorded
from tests.integration.wrappers import CountingStore, GatedStore, LossyStore, SeverableStore

NAMES = "abcde"


class Five(Shop):
    """A workflow of five effects in a row."""

    def __init__(self, **options: Any) -> None:
        super().__init__()

        @self.pack.workflow(key="five:{n}", **options)
        async def five(n: int = 1) -> list[str]:
            return [await self.act(f"{name}{n}") for name in NAMES]

        self.five = five


async def status_of(run: Run[Any]) -> str:
    return (await run.refresh()).status


async def until_status(run: Run[Any], status: str) -> None:
    async def has_it() -> bool:
        return await status_of(run) == status

    await eventually(has_it)


# -- what the receipt says


@pytest.mark.parametrize("done", range(5))
async def test_after_k_of_n_effects_the_receipt_has_exactly_those_keys(home: Home, done: int) -> None:
    """C1"""
    five = Five()

    @five.pack.workflow
    async def some() -> None:
        for name in NAMES[:done]:
            await five.act(name)
        await hook("never")
        for name in NAMES[done:]:
            await five.act(name)

    async with home.holdfast(five.pack) as hf:
        run = (await hf.start(some())).run
        await until_recorded(run, *(f"act#{n + 1}" for n in range(done)))
        receipt = await run.cancel("enough")
        keys = [f"step:{name}" for name in NAMES[:done]]
        assert receipt.outcome == ("partial" if done else "no_effects")
        assert list(receipt.effects) == keys
        assert lefts(receipt) == dict.fromkeys(keys, "performed")
        assert (receipt.run_id, receipt.reason, receipt.stopped, receipt.children) == (run.id, "enough", False, ())
        assert await run.receipt() == receipt
        with pytest.raises(RunCancelled):
            await run.result(timeout=PATIENCE_SECONDS)
    assert five.ledger.done == keys
    async with home.holdfast(five.pack) as hf:  # asked for again, it is the same
        assert await (await hf.get(run.id)).receipt() == receipt


async def test_a_cancellation_that_was_asked_for_is_done_though_nobody_waits(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow
    async def some() -> None:
        await shop.take("a")
        await hook("never")

    async with home.holdfast(shop.pack) as hf, home.holdfast(worker=False) as elsewhere:
        run = (await hf.start(some())).run
        await until_recorded(run, "take#1")
        shop.ledger.hold("undo:step:a")
        cancelling = await (await elsewhere.get(run.id)).ask_cancel("enough")
        await eventually(lambda: any("undo" in key for key in shop.ledger.begun))
        assert not (await run.refresh()).is_settled
        shop.ledger.let_go()
        await run.wait(timeout=PATIENCE_SECONDS)
        receipt = await cancelling.receipt()
        assert receipt == await run.receipt()
        assert (receipt.outcome, receipt.reason) == ("compensated", "enough")
        assert len(heard(elsewhere).all(CancelRequested)) == 1


async def test_an_effect_in_flight_is_interrupted_and_its_outcome_is_unknown(home: Home) -> None:
    pack, interrupted = Pack("shop"), asyncio.Event()
    begun = asyncio.Event()

    @pack.effect(key="charge")
    async def charge() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert cancel_requested()
            interrupted.set()
            raise

    @pack.workflow
    async def order() -> None:
        await charge()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await asyncio.wait_for(begun.wait(), PATIENCE_SECONDS)
        receipt = await run.cancel()
        assert (receipt.outcome, lefts(receipt)) == ("unknown", {"charge": "unknown"})
        assert interrupted.is_set()
        assert await run.receipt() == receipt


async def test_an_effect_that_ends_in_time_although_it_is_interrupted_is_known(home: Home) -> None:
    pack, begun, done = Pack("shop"), asyncio.Event(), list[str]()

    @pack.effect(key="charge")
    async def charge() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            done.append("charge")  # it had got so far that it could only be ended
        return "paid"

    @pack.workflow
    async def order() -> str:
        return await charge()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await asyncio.wait_for(begun.wait(), PATIENCE_SECONDS)
        receipt = await run.cancel()
        assert (receipt.outcome, lefts(receipt)) == ("partial", {"charge": "performed"})
        assert [each.what for each in await run.journal()].count("late") == 1


async def test_a_sync_effect_sees_the_request_and_its_late_result_is_recorded(home: Home) -> None:
    pack, thread, saw = Pack("shop"), ThreadLedger(), list[bool]()

    @pack.effect(key="charge")
    def charge() -> str:
        saw.append(cancel_requested())
        done = thread.act()
        saw.append(cancel_requested())
        return done

    @pack.workflow
    async def order() -> str:
        return await charge()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await eventually(thread.begun.is_set)
        cancelling = asyncio.ensure_future(run.cancel())
        await eventually(lambda: _has(run, Dropped))
        assert await status_of(run) == "running"  # what is under way is waited for
        thread.gate.set()
        receipt = await asyncio.wait_for(cancelling, PATIENCE_SECONDS)
        assert (receipt.outcome, lefts(receipt)) == ("partial", {"charge": "performed"})
        assert await _has(run, Late)
    assert (saw, thread.done) == ([False, True], ["charge"])


async def _has(run: Run[Any], kind: type[object]) -> bool:
    return any(isinstance(entry, kind) for entry in await run.journal())


async def test_a_sync_effect_that_fails_late_has_not_happened(home: Home) -> None:
    pack, thread = Pack("shop"), ThreadLedger()

    @pack.effect(key="charge")
    def charge() -> None:
        thread.act()
        raise Permanent("declined")

    @pack.workflow
    async def order() -> None:
        await charge()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await eventually(thread.begun.is_set)
        cancelling = asyncio.ensure_future(run.cancel())
        await eventually(lambda: _has(run, Dropped))
        thread.gate.set()
        assert (await asyncio.wait_for(cancelling, PATIENCE_SECONDS)).outcome == "no_effects"


async def test_a_sync_effect_that_does_not_end_by_the_deadline_is_unknown(home: Home) -> None:
    """C7"""
    pack, thread = Pack("shop"), ThreadLedger()

    @pack.effect(key="charge")
    def charge() -> str:
        return thread.act()

    @pack.workflow
    async def order() -> str:
        return await charge()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await eventually(thread.begun.is_set)
        receipt = await run.cancel(deadline="100ms")
        assert (receipt.outcome, receipt.stopped) == ("unknown", True)
        assert lefts(receipt) == {"charge": "unknown"}
        thread.gate.set()
        await eventually(lambda: thread.done)
        assert await run.receipt() == receipt


async def test_an_effect_that_waits_for_its_retry_is_not_tried_again(home: Home) -> None:
    pack, attempts = Pack("shop"), list[str]()

    @pack.effect(key="charge", retry=Retry(attempts=9, base="60s"))
    async def charge() -> None:
        attempts.append("charge")
        raise OSError("not now")

    @pack.workflow
    async def order() -> None:
        await charge()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await heard(hf).until(EffectWillRetry)
        receipt = await run.cancel()
        assert (receipt.outcome, receipt.effects, receipt.stopped) == ("no_effects", (), False)
    assert attempts == ["charge"]


async def test_an_effect_whose_attempt_was_cut_short_by_its_timeout_is_unknown(home: Home) -> None:
    """C1: it may have happened, so `no_effects` would be a lie."""
    pack, done = Pack("shop"), list[str]()

    @pack.effect(key="charge", timeout="20ms", retry=Retry(attempts=9, base="60s"))
    async def charge() -> None:
        done.append("charge")
        await asyncio.Event().wait()

    @pack.workflow
    async def order() -> None:
        await charge()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await heard(hf).until(EffectWillRetry)
        receipt = await run.cancel()
        assert (receipt.outcome, lefts(receipt)) == ("unknown", {"charge": "unknown"})
    assert done == ["charge"]


async def test_an_effect_that_a_timeout_dropped_before_is_in_the_receipt(home: Home) -> None:
    shop = Shop()
    shop.ledger.hold("step:slow")

    @shop.pack.workflow
    async def order() -> None:
        async with asyncio.TaskGroup() as group:
            limit = asyncio.timeout(3_600)
            group.create_task(time_is_up(limit))
            with suppress(TimeoutError):
                async with limit:
                    await shop.act("slow")
            await hook("never")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await shop.ledger.until_begun("step:slow")
        await run.signal("time is up")
        await eventually(lambda: _has(run, Dropped))
        receipt = await run.cancel()
        assert (receipt.outcome, lefts(receipt)) == ("unknown", {"step:slow": "unknown"})


async def test_a_once_effect_in_flight_is_unknown_and_never_called_again(home: Home) -> None:
    pack, ledger = Pack("shop"), Ledger()
    ledger.hold("charge")

    @pack.effect(key="charge", safety="once")
    async def charge() -> str:
        return await ledger.act()

    @pack.workflow
    async def order() -> str:
        return await charge()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await ledger.until_begun("charge")
        receipt = await run.cancel()
        assert (receipt.outcome, lefts(receipt)) == ("unknown", {"charge": "unknown"})
        ledger.let_go()
        await run.resume()  # it is asked for again, and only a person can say what has happened
        await until_status(run, "blocked")
        again = await run.cancel()
        assert (again.outcome, lefts(again)) == ("unknown", {"charge": "unknown"})
    assert ledger.begun["charge"] == 1


async def test_of_effects_beside_each_other_each_is_as_far_as_it_got(home: Home) -> None:
    shop = Shop()
    shop.ledger.hold("step:c", "step:d")

    @shop.pack.workflow
    async def order() -> None:
        await asyncio.gather(*(shop.act(name) for name in "abcd"))

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await until_recorded(run, "0/act#1", "1/act#1")
        await shop.ledger.until_begun("step:c")
        await shop.ledger.until_begun("step:d")
        receipt = await run.cancel()
        assert receipt.outcome == "unknown"
        assert lefts(receipt) == {
            "step:a": "performed",
            "step:b": "performed",
            "step:c": "unknown",
            "step:d": "unknown",
        }


async def test_what_was_done_before_the_run_continued_as_new_is_not_forgotten(home: Home) -> None:
    """C1"""
    shop = Shop()

    @shop.pack.workflow
    async def order(n: int = 0) -> None:
        if n == 0:
            await shop.act("a")
            continue_as_new(order(1))
        await hook("never")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run

        async def is_waiting() -> bool:
            return any(each.what == "continued" for each in await run.journal())

        await eventually(is_waiting)
        receipt = await run.cancel()
        assert receipt.outcome != "no_effects"
    assert shop.ledger.done == ["step:a"]


async def test_an_effect_that_waits_for_room_has_not_begun(home: Home) -> None:
    shop = Shop()
    shop.ledger.hold("step:a")

    @shop.pack.workflow
    async def order() -> None:
        await asyncio.gather(shop.act("a"), shop.act("b"))

    async with home.holdfast(shop.pack, concurrency=1) as hf:
        run = (await hf.start(order())).run
        await shop.ledger.until_begun("step:a")
        receipt = await run.cancel()
        assert lefts(receipt) == {"step:a": "unknown"}
    assert shop.ledger.begun == {"step:a": 1}


async def test_an_effect_that_does_not_heed_its_cancellation_is_left_behind_at_the_deadline(home: Home) -> None:
    """C7"""
    pack, begun, gate = Pack("shop"), asyncio.Event(), asyncio.Event()

    @pack.effect(key="charge")
    async def charge() -> None:
        begun.set()
        for _ in range(3):
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    @pack.workflow
    async def order() -> None:
        await charge()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await asyncio.wait_for(begun.wait(), PATIENCE_SECONDS)
        try:
            receipt = await asyncio.wait_for(run.cancel(deadline="100ms"), PATIENCE_SECONDS)
        finally:
            gate.set()
        assert (receipt.outcome, receipt.stopped) == ("unknown", True)


async def test_without_any_time_the_run_is_stopped_where_it_is(home: Home) -> None:
    shop = Shop()
    shop.ledger.hold("step:b")

    @shop.pack.workflow
    async def order() -> None:
        await shop.take("a")
        await shop.take("b")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await shop.ledger.until_begun("step:b")
        receipt = await run.cancel(deadline=0)
        assert (receipt.outcome, receipt.stopped) == ("unknown", True)
        assert lefts(receipt) == {"step:a": "performed", "step:b": "unknown"}
    assert shop.ledger.done == ["step:a"]


async def test_a_run_that_continues_as_new_for_ever_is_cancelled(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow
    async def order(n: int) -> None:
        await shop.act(f"{n}")
        continue_as_new(order(n + 1))

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order(0))).run
        await shop.ledger.until_done("step:20")
        receipt = await asyncio.wait_for(run.cancel(), PATIENCE_SECONDS)
        assert (await status_of(run), receipt.stopped) == ("cancelled", False)
        assert receipt.outcome in {"partial", "unknown"}
        done = len(shop.ledger.done)
    assert (len(shop.ledger.done), shop.ledger.most()) == (done, 1)


async def test_the_token_of_a_cancelled_run_is_free_and_what_it_had_not_read_is_gone(home: Home) -> None:
    pack = Pack("shop")

    @pack.workflow
    async def order(n: int) -> tuple[bool, Any]:
        approval = hook("approval", token="t-1")
        other = await approval.conflict()
        await sleep("50ms")
        return other is None, await approval

    async with home.holdfast(pack) as hf:
        first = (await hf.start(order(1))).run
        await until_recorded(first, "hook:approval#1")
        await first.signal("approval", "unread")
        await first.cancel()
        second = (await hf.start(order(2))).run
        await until_recorded(second, "hook:approval#1")
        assert (await hf.resume_hook("t-1", "yes")).id == second.id
        assert await second.result(timeout=PATIENCE_SECONDS) == (True, "yes")


# -- the status in which it comes


async def test_a_run_that_no_worker_has_begun_is_cancelled_at_once(home: Home) -> None:
    five = Five()
    async with home.holdfast(five.pack, worker=False) as hf:
        run = (await hf.start(five.five())).run
        receipt = await asyncio.wait_for(run.cancel("never mind", deadline="1h"), PATIENCE_SECONDS)
        assert (receipt.outcome, receipt.effects, receipt.stopped) == ("no_effects", (), False)
        assert receipt.reason == "never mind"
        assert await status_of(run) == "cancelled"
        assert heard(hf).all(CancelRequested, run_id=run.id, reason="never mind")
    async with home.holdfast(five.pack) as hf:
        with pytest.raises(RunCancelled):
            await (await hf.get(run.id)).result(timeout=PATIENCE_SECONDS)
    assert five.ledger.begun == {}


async def test_a_delayed_start_is_cancelled_at_once(home: Home) -> None:
    five = Five()
    async with home.holdfast(five.pack) as hf:
        run = (await hf.start(five.five(), delay="1h")).run
        assert (await run.cancel(deadline="1h")).outcome == "no_effects"
    assert five.ledger.begun == {}


@pytest.mark.parametrize("wait", ["hook", "timer"])
async def test_a_waiting_run_is_cancelled(home: Home, wait: str) -> None:
    shop = Shop()

    @shop.pack.workflow
    async def order() -> None:
        await shop.act("a")
        await (hook("never") if wait == "hook" else sleep("1h"))
        await shop.act("b")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await until_status(run, "waiting")
        receipt = await run.cancel()
        assert (receipt.outcome, lefts(receipt)) == ("partial", {"step:a": "performed"})
    assert shop.ledger.done == ["step:a"]


async def test_a_waiting_run_without_any_worker_is_stopped_at_the_deadline(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow
    async def order() -> None:
        await shop.act("a")
        await sleep("1h")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await until_status(run, "waiting")
    async with home.holdfast(shop.pack, worker=False) as client:
        receipt = await asyncio.wait_for((await client.get(run.id)).cancel(deadline="100ms"), PATIENCE_SECONDS)
        assert (receipt.outcome, receipt.stopped) == ("partial", True)
        assert lefts(receipt) == {"step:a": "performed"}


async def test_a_blocked_run_is_cancelled_at_once(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow
    async def order() -> None:
        await shop.act("a")
        await asyncio.Event().wait()

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await until_status(run, "blocked")
        receipt = await asyncio.wait_for(run.cancel(deadline="1h"), PATIENCE_SECONDS)
        assert (receipt.outcome, lefts(receipt)) == ("partial", {"step:a": "performed"})
        assert (await status_of(run), receipt.stopped) == ("cancelled", False)


async def test_a_run_that_has_ended_is_left_alone(home: Home) -> None:
    """C3"""
    shop = Shop()

    @shop.pack.workflow
    async def order(fail: bool) -> str:
        done = await shop.act(f"{fail}")
        if fail:
            raise ValueError("no")
        return done

    async with home.holdfast(shop.pack) as hf:
        completed, failed = (await hf.start(order(False))).run, (await hf.start(order(True))).run
        assert await completed.result(timeout=PATIENCE_SECONDS) == "step:False"
        with pytest.raises(RunFailed):
            await failed.result(timeout=PATIENCE_SECONDS)
        for run, status, outcome in ((completed, "completed", "completed_first"), (failed, "failed", "partial")):
            receipt = await run.cancel("too late")
            assert (receipt.outcome, receipt.reason) == (outcome, "")
            assert await status_of(run) == status
            assert not await _has(run, CancelAsked)
        assert heard(hf).all(CancelRequested) == []


async def test_a_cancelled_run_answers_with_the_same_receipt_again(home: Home) -> None:
    five = Five()
    five.ledger.hold("step:b1")
    async with home.holdfast(five.pack) as hf:
        run = (await hf.start(five.five())).run
        await five.ledger.until_begun("step:b1")
        receipt = await run.cancel("first")
        length = len(await run.journal())
        assert await run.cancel("second", deadline="1ms") == receipt
        assert (receipt.reason, len(await run.journal())) == ("first", length)


async def test_of_cancellations_at_the_same_time_one_is_recorded_and_all_have_its_receipt(home: Home) -> None:
    five = Five()
    five.ledger.hold("step:c1")
    async with home.holdfast(five.pack) as hf:
        run = (await hf.start(five.five())).run
        await five.ledger.until_begun("step:c1")
        receipts = await asyncio.gather(*(run.cancel(f"{n}") for n in range(5)))
        assert all(receipt == receipts[0] for receipt in receipts)
        journal = await run.journal()
        assert sum(isinstance(entry, CancelAsked) for entry in journal) == 1
        assert sum(isinstance(entry, Cancelled) for entry in journal) == 1
        assert len(heard(hf).all(RunEnded, run_id=run.id)) == 1


async def test_a_live_run_has_no_receipt_and_an_unknown_one_cannot_be_cancelled(home: Home) -> None:
    five = Five()
    five.ledger.hold("step:a1")
    async with home.holdfast(five.pack) as hf:
        run = (await hf.start(five.five())).run
        with pytest.raises(NotAllowedNow):
            await run.receipt()
        five.ledger.let_go()
        await run.result(timeout=PATIENCE_SECONDS)
        assert (await run.receipt()).outcome == "completed_first"
        with pytest.raises(UnknownRun):
            await (await hf.get("nobody")).cancel()
        with pytest.raises(UsageError):
            await run.cancel(deadline=-1)


async def test_a_client_cancels_what_another_process_executes(sqlite_home: SqliteHome) -> None:
    five = Five()
    five.ledger.hold("step:c1")
    async with sqlite_home.holdfast(five.pack), sqlite_home.holdfast(five.pack, worker=False) as client:
        run = (await client.start(five.five())).run
        await five.ledger.until_begun("step:c1")
        receipt = await asyncio.wait_for(run.cancel("from outside"), PATIENCE_SECONDS)
        assert (receipt.outcome, receipt.reason) == ("unknown", "from outside")
        assert lefts(receipt) == {"step:a1": "performed", "step:b1": "performed", "step:c1": "unknown"}
        with pytest.raises(RunCancelled):
            await run.result(timeout=PATIENCE_SECONDS)


async def test_a_cancellation_is_asked_for_in_one_commit(sqlite_home: SqliteHome) -> None:
    shop, counting = Shop(), list[CountingStore]()

    @shop.pack.workflow
    async def order() -> None:
        await hook("never")

    def through(store: Any) -> CountingStore:
        counting.append(CountingStore(store))
        return counting[0]

    async with (
        sqlite_home.holdfast(shop.pack) as worker,
        sqlite_home.holdfast(worker=False, through=through) as client,
    ):
        run = (await worker.start(order())).run
        await until_status(run, "waiting")
        assert (await (await client.get(run.id)).cancel()).outcome == "no_effects"
        assert len(counting[0].changes) == 1


async def test_clients_that_cancel_at_the_same_time_have_the_same_receipt(sqlite_home: SqliteHome) -> None:
    five = Five()
    five.ledger.hold("step:b1")
    async with (
        sqlite_home.holdfast(five.pack) as worker,
        sqlite_home.holdfast(worker=False) as one,
        sqlite_home.holdfast(worker=False) as other,
    ):
        run = (await worker.start(five.five())).run
        await five.ledger.until_begun("step:b1")
        runs = [await client.get(run.id) for client in (worker, one, other)]
        receipts = await asyncio.wait_for(asyncio.gather(*(each.cancel("now") for each in runs)), PATIENCE_SECONDS)
        assert receipts == [await run.receipt()] * 3
        assert sum(isinstance(entry, CancelAsked) for entry in await run.journal()) == 1


async def test_a_client_without_the_code_may_cancel_too(sqlite_home: SqliteHome) -> None:
    five = Five()
    five.ledger.hold("step:a1")
    async with sqlite_home.holdfast(five.pack) as worker, sqlite_home.holdfast(worker=False) as client:
        run = (await worker.start(five.five())).run
        await five.ledger.until_begun("step:a1")
        receipt = await asyncio.wait_for((await client.get(run.id)).cancel(), PATIENCE_SECONDS)
        assert lefts(receipt) == {"step:a1": "unknown"}


async def test_a_run_whose_holder_has_fallen_silent_is_stopped_at_the_deadline(sqlite_home: SqliteHome) -> None:
    """C7"""
    five, stores = Five(), list[SeverableStore]()
    five.ledger.hold("step:b1")

    def through(store: Any) -> SeverableStore:
        stores.append(SeverableStore(store))
        return stores[0]

    async with sqlite_home.holdfast(five.pack, worker=False) as client:
        async with sqlite_home.holdfast(five.pack, through=through, lease="60s") as worker:
            run = (await worker.start(five.five())).run
            await five.ledger.until_begun("step:b1")
            stores[0].sever()
            receipt = await (await client.get(run.id)).cancel(deadline="100ms")
            assert (receipt.outcome, receipt.stopped) == ("unknown", True)
            assert lefts(receipt)["step:a1"] == "performed"
            five.ledger.let_go()
            stores[0].severed = False  # it comes back, and what it has to say is void
            await heard(worker).until(RunOvertaken, run_id=run.id)
            await eventually(lambda: "step:b1" in five.ledger.done)  # or its worker might leave before it gets there
        assert await (await client.get(run.id)).receipt() == receipt
    assert five.ledger.done == ["step:a1", "step:b1"]


async def test_a_request_whose_reply_is_lost_may_be_repeated(home: Home) -> None:
    five, lossy = Five(), list[LossyStore]()
    five.ledger.hold("step:b1")

    def loses(name: str, args: tuple[Any, ...]) -> bool:
        return name == "commit" and not lossy[0].lost and any("/cancel/" in change.id for change in args[0])

    def through(store: Any) -> LossyStore:
        lossy.append(LossyStore(store, loses))
        return lossy[0]

    async with home.holdfast(five.pack, through=through) as hf:
        run = (await hf.start(five.five())).run
        await five.ledger.until_begun("step:b1")
        with pytest.raises(StoreUnavailable):
            await run.cancel("once")
        receipt = await asyncio.wait_for(run.cancel("twice"), PATIENCE_SECONDS)
        assert (receipt.outcome, receipt.reason) == ("unknown", "once")
        assert sum(isinstance(entry, CancelAsked) for entry in await run.journal()) == 1


# -- at every place


class Varied:
    """Five kinds of waiting in one workflow."""

    def __init__(self, *, resumable: bool) -> None:
        self.pack = Pack("varied")
        self.done: list[str] = []
        self.moments = Moments()

        @self.pack.effect(key="{name}", retry=ONCE)
        async def act(name: str) -> str:
            await self.moments()
            self.done.append(name)  # nothing is awaited after this: it is done and returns
            return name

        @self.pack.effect(key="{name}", retry=ONCE)
        def act_in_thread(name: str) -> str:
            self.done.append(name)
            return name

        @self.pack.workflow(key="k", outcomes=("resumable", "no_effects", "completed_first") if resumable else None)
        async def work() -> list[str]:
            await sleep("10ms")
            first = await act("a")
            await sleep("10ms")
            both = await asyncio.gather(act("b"), act_in_thread("c"))
            told = await hook("told")
            return [first, *both, told, await act("d")]

        self.work = work


MOMENTS = 24  # at the last of them the run has ended


@pytest.mark.parametrize("resumable", [True, False], ids=["pauses", "unwinds"])
async def test_cancelled_anywhere_and_resumed_it_ends_as_if_nothing_had_been(home: Home, resumable: bool) -> None:
    """C2, C10"""
    outcomes = list[str]()
    for moment in range(1, MOMENTS + 1):
        varied = Varied(resumable=resumable)
        async with home.holdfast(varied.pack, through=varied.moments.through) as hf:
            run, receipt = await _cancelled_at(varied, hf, moment)
            outcomes.append(receipt.outcome)
            assert not receipt.stopped, moment
            left = lefts(receipt)
            assert {key for key in left if left[key] == "performed"} == set(varied.done), (moment, receipt)
            assert (receipt.outcome == "no_effects") == (not left), (moment, receipt)
            if receipt.outcome != "completed_first":
                assert not resumable or receipt.outcome in {"no_effects", "resumable"}, moment
                await run.resume()
            if moment % 2:
                assert await run.result(timeout=PATIENCE_SECONDS) == ["a", "b", "c", "now", "d"], moment
        async with home.holdfast(varied.pack) as hf:  # it may be another one that goes on
            run = await hf.get(run.id)
            assert await run.result(timeout=PATIENCE_SECONDS) == ["a", "b", "c", "now", "d"], moment
        assert sorted(varied.done) == ["a", "b", "c", "d"], (moment, varied.done)
    assert {"completed_first"} < set(outcomes)


async def _cancelled_at(varied: Varied, hf: Holdfast, moment: int) -> tuple[Run[Any], Receipt]:
    started: asyncio.Future[Run[Any]] = asyncio.get_running_loop().create_future()

    async def cancel() -> Receipt:
        return await (await started).cancel(deadline="20s")

    varied.moments.at(moment, cancel)
    run = (await hf.start(varied.work(), signal=("told", "now"))).run
    started.set_result(run)
    ending = asyncio.ensure_future(run.result(timeout=PATIENCE_SECONDS))
    await asyncio.wait([ending, varied.moments.happened], return_when=asyncio.FIRST_COMPLETED)
    receipt = await (varied.moments.happened.result() if varied.moments.happened.done() else run.cancel())
    await asyncio.wait([ending])
    assert isinstance(ending.exception(), RunCancelled | None)
    return run, receipt


async def test_a_cancellation_that_races_the_end_is_never_lost_and_never_both(home: Home) -> None:
    """C3"""
    pack, done, near = Pack("shop"), list[int](), asyncio.Event()

    @pack.effect(key="{n}", retry=ONCE)
    async def act(n: int, ms: float) -> int:
        near.set()
        await asyncio.sleep(max(0.0, ms) / 1000)
        done.append(n)
        return n

    @pack.workflow
    async def order(n: int, ms: float) -> int:
        return await act(n, ms)

    outcomes = list[str]()
    async with home.holdfast(pack) as hf:
        # The cancellation comes this long before the effect ends; at either end of the list there is no race.
        for n, ms in enumerate([*(n / 8 for n in range(-40, 40)), 2_000.0]):
            near.clear()
            run = (await hf.start(order(n, ms))).run
            await asyncio.wait_for(near.wait(), PATIENCE_SECONDS)
            await (asyncio.sleep(max(0.0, -ms) / 1000) if n else run.result(timeout=PATIENCE_SECONDS))
            receipt = await run.cancel()
            found = await status_of(run), receipt.outcome, list(receipt.effects), n in done
            assert found in [
                ("completed", "completed_first", [str(n)], True),
                ("cancelled", "partial", [str(n)], True),
                ("cancelled", "unknown", [str(n)], False),
            ]
            assert (found[0] == "completed") != await _has(run, Cancelled)
            if found[0] == "completed":
                assert await run.result(timeout=PATIENCE_SECONDS) == n
            assert await run.receipt() == receipt
            assert len(heard(hf).all(RunEnded, run_id=run.id)) == 1
            outcomes.append(receipt.outcome)
    assert (outcomes[0], outcomes[-1]) == ("completed_first", "unknown")
    assert len(set(done)) == len(done)


# -- what a workflow declares


async def test_an_undeclared_outcome_is_an_error_where_that_is_wanted_and_an_event_elsewhere(home: Home) -> None:
    """C4"""
    pack = Five(outcomes=("no_effects", "completed_first"))
    for strict in (True, False):
        async with home.holdfast(pack.pack, strict=strict) as hf:
            run = (await hf.start(pack.five(2 if strict else 3))).run
            pack.ledger.hold(f"step:c{2 if strict else 3}")
            await pack.ledger.until_begun(f"step:c{2 if strict else 3}")
            if strict:
                with pytest.raises(UndeclaredOutcome, match="unknown") as raised:
                    await run.cancel()
                receipt = raised.value.receipt
                assert isinstance(receipt, Receipt)
            else:
                receipt = await run.cancel()
            assert receipt.outcome == "unknown"
            assert await run.receipt() == receipt
            assert await status_of(run) == "cancelled"
            [event] = heard(hf).all(OutcomeUndeclared)
            assert (event.run_id, event.workflow, event.outcome) == (run.id, "shop.five", "unknown")


async def test_a_declared_outcome_is_no_error_and_strict_may_come_from_the_environment(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4"""
    monkeypatch.setenv("HOLDFAST_STRICT", "1")
    pack = Five(outcomes=("no_effects",))
    pack.ledger.hold("step:a5")
    async with home.holdfast(pack.pack) as hf:
        run = (await hf.start(pack.five(4), delay="1h")).run
        assert (await run.cancel()).outcome == "no_effects"
        assert heard(hf).all(OutcomeUndeclared) == []
        other = (await hf.start(pack.five(5))).run
        await pack.ledger.until_begun("step:a5")
        with pytest.raises(UndeclaredOutcome):
            await other.cancel()


async def test_the_outcomes_of_workflows_are_listed(home: Home) -> None:
    """C4"""
    five = Five(outcomes=("partial", "resumable"))

    @five.pack.workflow
    async def other() -> None: ...

    async with home.holdfast(five.pack) as hf:
        assert {each.name: each.outcomes for each in await hf.workflows()} == {
            "shop.five": ("partial", "resumable"),
            "shop.other": None,
        }


def test_an_outcome_that_does_not_exist_is_refused_at_import() -> None:
    """C4"""
    with pytest.raises(UsageError, match="finished"):
        Pack("shop").workflow(outcomes=("finished",))  # pyright: ignore[reportArgumentType]


# -- three types


class Rejected(Exception):
    """A domain error."""


async def test_timeout_cancellation_and_rejection_are_three_types(home: Home) -> None:
    """C8"""
    pack, ledger = Pack("shop"), Ledger()
    ledger.hold("slow")

    @pack.effect(retry=ONCE, timeout="50ms")
    async def too_slow() -> None:
        await ledger.act("slow")

    @pack.effect(retry=ONCE)
    async def reject() -> None:
        raise Rejected("no")

    @pack.workflow
    async def within(what: str) -> str:
        match what:
            case "effect timeout":
                await too_slow()
            case "block timeout":
                async with asyncio.timeout(0.02):
                    await hook("never")
            case "rejection":
                await reject()
            case _:
                await hook("never")
        return what

    @pack.workflow
    async def outer(what: str) -> str:
        try:
            return await within(what)
        except Rejected as error:
            return f"rejected: {error}"
        except TimeoutError as error:
            return f"timeout: {type(error).__name__}"
        except RunCancelled:
            return "cancelled"

    async with home.holdfast(pack) as hf:
        for what, cause in (("effect timeout", TimedOut), ("block timeout", TimeoutError), ("rejection", Rejected)):
            with pytest.raises(RunFailed) as failed:
                await (await hf.start(within(what))).run.result(timeout=PATIENCE_SECONDS)
            assert type(failed.value.__cause__) is cause
        run = (await hf.start(within("wait"))).run
        with pytest.raises(TimedOut):  # only the waiting has ended
            await run.result(timeout="10ms")
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=PATIENCE_SECONDS)
        assert not issubclass(RunCancelled, RunFailed | TimeoutError)

        async def in_parent(what: str) -> str:
            return await (await hf.start(outer(what))).run.result(timeout=PATIENCE_SECONDS)

        assert await in_parent("rejection") == "rejected: no"
        assert await in_parent("effect timeout") == "timeout: TimedOut"
        assert await in_parent("block timeout") == "timeout: TimeoutError"
        parent = (await hf.start(outer("wait"))).run
        await until_recorded(parent, "within#1")
        [child] = [each async for each in hf.runs(within, attributes={"holdfast.parent": parent.id})]
        await child.cancel()
        assert await parent.result(timeout=PATIENCE_SECONDS) == "cancelled"


class NotesMail(GatedStore):
    """Holds back commits, and says when messages were read."""

    def __init__(self, inner: Any, held: Callable[[Sequence[Change]], bool]) -> None:
        super().__init__(inner, held)
        self.delivered = asyncio.Event()

    async def called(self, name: str, verb: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Any:
        result = await super().called(name, verb, args)
        if name == "messages" and result:
            self.delivered.set()
        return result


async def test_a_cancellation_that_comes_with_a_commit_does_not_wait_for_the_next_effect(home: Home) -> None:
    """The next effect is the only thing that the run would wait for, and takes for ever."""
    shop, made = Shop(), list[NotesMail]()
    shop.ledger.hold("step:long")

    @shop.pack.workflow
    async def two() -> None:
        await shop.take("first")
        await shop.act("long")

    def through(store: Any) -> NotesMail:
        made.append(NotesMail(store, lambda changes: any(map(_is_taken, changes))))
        return made[0]

    async with home.holdfast(shop.pack, worker=False) as client, home.holdfast(shop.pack, through=through) as hf:
        run = (await hf.start(two())).run
        await asyncio.wait_for(made[0].reached.wait(), PATIENCE_SECONDS)
        cancelling = await (await client.get(run.id)).ask_cancel("enough", deadline="20s")
        await asyncio.wait_for(made[0].delivered.wait(), PATIENCE_SECONDS)
        made[0].gate.set()
        receipt = await cancelling.receipt()
        assert not receipt.stopped  # by its deadline
        assert lefts(receipt)["step:first"] == "undone"
    assert "undo:step:first" in shop.ledger.done


def _is_taken(change: Change) -> bool:
    return any(getattr(entry, "step", "") == "take#1" for entry in change.entries)


async def test_a_run_that_is_taken_away_while_its_effect_is_being_cancelled_does_nothing_more(home: Home) -> None:
    """The cancellation has interrupted the effect, which takes its time; then the lease is lost, and held again."""
    shop, cleaned = Shop(), asyncio.Event()

    @shop.pack.effect(retry=ONCE)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await cleaned.wait()

    @shop.pack.workflow
    async def two() -> None:
        await shop.take("first")
        await slow()

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(two())).run
        await heard(hf).until(EffectBegan, step="slow#1")
        worker = worker_of(hf)
        [task] = worker.held.tasks
        cancelling = await run.ask_cancel(deadline="20s")
        await eventually(task.cancelling)
        worker.drop_all()
        worker.claims.make_sure()
        cleaned.set()
        receipt = await cancelling.receipt()
        await asyncio.wait([task])
        assert lefts(receipt)["step:first"] == "undone"
    assert shop.ledger.begun["undo:step:first"] == 1
