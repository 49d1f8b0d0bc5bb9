"""`run.resume()`: a cancelled run goes on as if nothing had been, where that is true (C2, C10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from holdfast import (
    NotAllowedNow,
    NotPerformed,
    Pack,
    Retry,
    RetryAfter,
    Run,
    RunFailed,
    hook,
    mark,
    now,
    set_attributes,
    shield,
    sleep,
    spawn,
    uuid4,
)
from holdfast.errors import UnknownOutcome
from holdfast.events import RunLetGo, RunResumed
from holdfast.kernel.journal import Dropped, Late, Resumed
from tests.integration.conftest import PATIENCE_SECONDS, Home, eventually, heard
from tests.integration.ledgers import ONCE, Ledger, Shop, ThreadLedger, lefts, until_recorded
from tests.integration.wrappers import GatedStore

PAUSES = ("resumable", "no_effects", "completed_first")


async def finished(run: Run[Any]) -> Any:
    return await run.result(timeout=PATIENCE_SECONDS)


async def until_status(run: Run[Any], status: str) -> None:
    async def has_it() -> bool:
        return (await run.refresh()).status == status

    await eventually(has_it)


async def _has(run: Run[Any], kind: type[object]) -> bool:
    return any(isinstance(entry, kind) for entry in await run.journal())


async def test_a_resumable_run_stands_still_and_goes_on_where_it_was(home: Home) -> None:
    shop, saw = Shop(), list[str]()

    @shop.pack.workflow(key="k", outcomes=PAUSES)
    async def order() -> list[str]:
        drawn = str(uuid4())
        first = await shop.take("a")
        try:
            word = await hook("word")
        except asyncio.CancelledError:
            saw.append("cancelled")
            raise
        return [drawn, first, word, await shop.act("b")]

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await until_recorded(run, "take#1")
        receipt = await run.cancel("a pause")
        assert (receipt.outcome, receipt.reason, receipt.stopped) == ("resumable", "a pause", False)
        assert lefts(receipt) == {"step:a": "performed"}
        assert (await run.refresh()).status == "cancelled"
        assert await run.receipt() == receipt
        with pytest.raises(NotAllowedNow):
            await run.signal("word", "too early")
        again = await run.resume()
        assert (again.id, again.key, again.holds_key, again.fence > run.fence) == (run.id, "k", True, True)
        assert heard(hf).all(RunResumed, run_id=run.id)
        assert await _has(run, Resumed)
        await run.signal("word", "now")
        drawn, *rest = await finished(run)
        assert (len(drawn), rest) == (36, ["step:a", "now", "step:b"])
        assert (await run.receipt()).outcome == "completed_first"
    assert saw == []  # the code has not been told
    assert shop.ledger.done == ["step:a", "step:b"]  # nothing was undone, nothing done twice


async def test_a_resumable_run_may_be_paused_again_and_again(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(outcomes=PAUSES)
    async def order() -> int:
        for n in range(4):
            await shop.act(f"{n}")
            await hook("word")
        return 4

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        for n in range(4):
            await until_recorded(run, f"act#{n + 1}")
            receipt = await run.cancel(f"pause {n}")
            assert (receipt.outcome, receipt.reason) == ("resumable", f"pause {n}")
            assert list(receipt.effects) == [f"step:{each}" for each in range(n + 1)]
            await run.resume()
            await run.signal("word")
        assert await finished(run) == 4
    assert shop.ledger.most() == 1


async def test_a_run_that_does_not_say_resumable_is_resumed_if_its_code_did_nothing(home: Home) -> None:
    shop, saw = Shop(), list[str]()

    @shop.pack.workflow
    async def order() -> str:
        await shop.act("a")
        try:
            await hook("word")
        finally:
            saw.append("end")
        return await shop.act("b")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await until_recorded(run, "act#1")
        assert (await run.cancel()).outcome == "partial"
        await run.resume()
        await run.signal("word")
        assert await finished(run) == "step:b"
    assert shop.ledger.done == ["step:a", "step:b"]


async def test_a_run_that_was_never_begun_is_resumed(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow
    async def order() -> str:
        return await shop.act("a")

    async with home.holdfast(shop.pack, worker=False) as hf:
        run = (await hf.start(order())).run
        assert (await run.cancel()).outcome == "no_effects"
        await run.resume()
    async with home.holdfast(shop.pack) as hf:
        assert await finished(await hf.get(run.id)) == "step:a"
    assert shop.ledger.done == ["step:a"]


@pytest.mark.parametrize("outcomes", [PAUSES, None], ids=["pauses", "unwinds"])
async def test_an_interrupted_effect_is_called_again_under_its_key(home: Home, outcomes: Any) -> None:
    shop = Shop()
    shop.ledger.hold("step:a")

    @shop.pack.workflow(outcomes=outcomes)
    async def order() -> str:
        return await shop.act("a")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await shop.ledger.until_begun("step:a")
        receipt = await run.cancel()
        assert lefts(receipt) == {"step:a": "unknown"}
        assert receipt.outcome == ("unknown" if outcomes is None else "resumable")
        await run.resume()
        await shop.ledger.until_begun("step:a", times=2)
        shop.ledger.let_go()
        assert await finished(run) == "step:a"
    assert shop.ledger.done == ["step:a"]


@pytest.mark.parametrize("outcomes", [PAUSES, None], ids=["pauses", "unwinds"])
async def test_a_late_result_counts_when_the_run_is_resumed_and_when_it_is_cancelled_again(
    home: Home, outcomes: Any
) -> None:
    pack, thread = Pack("shop"), ThreadLedger()

    @pack.effect(key="a", retry=ONCE)
    def act() -> str:
        return thread.act()

    @pack.workflow(outcomes=outcomes)
    async def order() -> str:
        done = await act()
        await hook("word")
        return done

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await eventually(thread.begun.is_set)
        cancelling = asyncio.ensure_future(run.cancel())
        await eventually(lambda: _asked(run))
        thread.gate.set()
        receipt = await asyncio.wait_for(cancelling, PATIENCE_SECONDS)
        assert lefts(receipt) == {"a": "performed"}
        await run.resume()

        async def waits_for_its_word() -> bool:
            newer = await run.refresh()
            return [wait.kind for wait in newer.waiting_on] == ["hook"]

        await eventually(waits_for_its_word)
        again = await run.cancel()
        assert lefts(again) == {"a": "performed"}
        assert again.outcome == receipt.outcome == ("partial" if outcomes is None else "resumable")
        await run.resume()
        await run.signal("word")
        assert await finished(run) == "a"
    assert thread.done == ["a"]


async def _asked(run: Run[Any]) -> bool:
    return any(entry.what == "cancel_asked" for entry in await run.journal())


async def test_what_a_resumed_run_has_done_is_undone_by_a_later_cancellation(home: Home) -> None:
    pack, thread, undone = Pack("shop"), ThreadLedger(), list[str]()

    @pack.effect(retry=ONCE)
    async def refund(result: str) -> None:
        undone.append(result)

    @pack.effect(key="charge", retry=ONCE, undo=refund)
    def charge() -> str:
        return thread.act()

    @pack.workflow
    async def order() -> None:
        await charge()
        await hook("never")

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await eventually(thread.begun.is_set)
        receipt = await run.cancel(deadline="100ms")
        assert (lefts(receipt), receipt.stopped) == ({"charge": "unknown"}, True)  # it was too slow to be undone
        thread.gate.set()
        await run.resume()
        await eventually(lambda: _performed(run))
        again = await run.cancel()
        assert (again.outcome, lefts(again), again.stopped) == ("compensated", {"charge": "undone"}, False)
    assert undone == ["charge"]


async def _performed(run: Run[Any]) -> bool:
    return any(entry.what == "performed" for entry in await run.journal())


@pytest.mark.parametrize("happened", [True, False])
async def test_a_once_effect_that_was_interrupted_is_asked_about_before_it_is_called_again(
    home: Home, happened: bool
) -> None:
    pack, ledger = Pack("shop"), Ledger()
    ledger.hold("charge")

    async def look(key: str) -> str:
        if not happened:
            raise NotPerformed
        return f"found {key}"

    @pack.effect(key="charge", safety="once", reconcile=look)
    async def charge() -> str:
        return await ledger.act()

    @pack.workflow(outcomes=PAUSES)
    async def order() -> str:
        return await charge()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await ledger.until_begun("charge")
        await run.cancel()
        ledger.let_go()
        await run.resume()
        assert await finished(run) == ("found charge" if happened else "charge")
    assert ledger.begun["charge"] == (1 if happened else 2)


async def test_a_once_effect_without_a_way_to_ask_blocks_the_resumed_run(home: Home) -> None:
    pack, ledger = Pack("shop"), Ledger()
    ledger.hold("charge")

    @pack.effect(key="charge", safety="once")
    async def charge() -> str:
        return await ledger.act()

    @pack.workflow(outcomes=PAUSES)
    async def order() -> str:
        return await charge()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await ledger.until_begun("charge")
        await run.cancel()
        ledger.let_go()
        await run.resume()
        with pytest.raises(UnknownOutcome):
            await finished(run)
    assert ledger.begun["charge"] == 1


async def test_timers_of_a_resumed_run_are_those_it_had(home: Home) -> None:
    pack = Pack("shop")

    @pack.workflow(outcomes=PAUSES)
    async def order() -> float:
        began = now()
        async with asyncio.timeout(60):
            await sleep("1500ms")
        return (now() - began).total_seconds()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await until_status(run, "waiting")
        assert (await run.cancel()).outcome == "no_effects"
        await run.resume()
        assert await finished(run) >= 1.5


async def test_an_effect_that_waited_for_its_retry_goes_on_with_its_attempts(home: Home) -> None:
    pack, attempts = Pack("shop"), list[int]()

    @pack.effect(key="a", retry=Retry(attempts=3))
    async def act() -> str:
        attempts.append(len(attempts))
        if len(attempts) < 3:
            raise RetryAfter(3600 if len(attempts) == 1 else 0.2)
        return "done"

    @pack.workflow(outcomes=PAUSES)
    async def order() -> str:
        return await act()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        first = await heard(hf).until(RunLetGo)
        assert (await run.cancel()).outcome == "no_effects"
        await run.resume()
        again = await heard(hf).until(RunLetGo, count=2)
        assert again.wake_at_ms == first.wake_at_ms  # it still waits for the same instant
        await run.retry_now()
        assert await finished(run) == "done"  # the second retry comes by itself
    assert len(attempts) == 3


async def test_children_of_a_paused_run_go_on_and_are_joined_when_it_is_resumed(home: Home) -> None:
    shop = Shop()
    shop.ledger.hold("step:child")

    @shop.pack.workflow
    async def child() -> str:
        return await shop.act("child")

    @shop.pack.workflow(outcomes=PAUSES)
    async def parent() -> str:
        return "joined " + await child()

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(parent())).run
        await shop.ledger.until_begun("step:child")
        await until_recorded(run, "child#1")
        receipt = await run.cancel()
        shop.ledger.let_go()
        [other] = [each async for each in hf.runs(child)]
        assert await finished(other) == "step:child"
        assert await run.receipt() == receipt  # what the child did later is not what the pause left behind
        await run.resume()
        assert await finished(run) == "joined step:child"
    assert shop.ledger.done == ["step:child"]


Cleanup = Callable[[Shop], Any]


async def _acts(shop: Shop) -> None:
    async with shield("10s"):
        await shop.act("cleanup")


async def _fails(shop: Shop) -> None:
    async with shield("10s"):
        await shop.pack.effects["shop.broken"]()


async def _marks(shop: Shop) -> None:
    del shop
    await mark("dropped")


async def _tags(shop: Shop) -> None:
    del shop
    await set_attributes(stage="dropped")


async def _spawns(shop: Shop) -> None:
    async with shield("10s"):
        await spawn(shop.pack.workflows["shop.child"](), detached=True)


CLEANUPS: dict[str, Cleanup] = {
    "performed": _acts,
    "failed": _fails,
    "marked": _marks,
    "tagged": _tags,
    "spawned": _spawns,
}


@pytest.mark.parametrize("cleanup", CLEANUPS.values(), ids=CLEANUPS)
async def test_a_run_whose_code_did_something_about_the_cancellation_cannot_be_resumed(
    home: Home, cleanup: Cleanup
) -> None:
    shop = Shop()

    @shop.pack.effect(retry=ONCE)
    async def broken() -> None:
        raise OSError("broken")

    @shop.pack.workflow
    async def child() -> None: ...

    @shop.pack.workflow(markers={"new": ("dropped",)})
    async def order() -> None:
        await shop.act("a")
        try:
            await hook("never")
        except asyncio.CancelledError:
            with suppress(OSError):
                await cleanup(shop)
            raise

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await until_recorded(run, "act#1")
        await run.cancel()
        with pytest.raises(NotAllowedNow, match=run.id):
            await run.resume()
        assert (await run.refresh()).status == "cancelled"
        fork = await run.fork(at="act#1")  # that is what remains
        assert (await fork.cancel()).run_id == fork.id


async def test_a_run_of_which_something_was_undone_cannot_be_resumed(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow
    async def order() -> None:
        await shop.take("a")
        await hook("never")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await until_recorded(run, "take#1")
        assert (await run.cancel()).outcome == "compensated"
        with pytest.raises(NotAllowedNow, match="undo:take#1"):
            await run.resume()


async def test_a_run_whose_child_was_cancelled_with_it_cannot_be_resumed(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow
    async def child() -> None:
        await hook("never")

    @shop.pack.workflow
    async def order() -> None:
        await child()

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await until_recorded(run, "child#1")
        await run.cancel()
        with pytest.raises(NotAllowedNow):
            await run.resume()


async def test_only_a_cancelled_run_is_resumed(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(key="{what}")
    async def order(what: str) -> None:
        match what:
            case "fails":
                raise ValueError("no")
            case "waits":
                await hook("never")
            case "cancels itself":
                raise asyncio.CancelledError
            case _:
                await shop.act("a")

    async with home.holdfast(shop.pack) as hf:
        for what in ("completes", "fails", "waits", "cancels itself"):
            run = (await hf.start(order(what))).run
            if what != "waits":
                await eventually(lambda run=run: _ended(run))
            with pytest.raises(NotAllowedNow):
                await run.resume()
        with pytest.raises(RunFailed):
            await finished(await hf.find(order, "fails"))


async def _ended(run: Run[Any]) -> bool:
    return (await run.refresh()).finished_at is not None


async def test_a_run_whose_key_has_moved_on_cannot_be_resumed(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(key="k", outcomes=PAUSES)
    async def order() -> str:
        await shop.act("a")
        return await hook("word")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await until_recorded(run, "act#1")
        await run.cancel()
        fork = await run.fork(at="act#1")
        with pytest.raises(NotAllowedNow, match="key"):
            await run.resume()
        await fork.signal("word", "hello")
        assert await finished(fork) == "hello"


async def test_of_resumptions_at_the_same_time_one_counts(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(outcomes=PAUSES)
    async def order() -> str:
        await shop.act("a")
        await hook("word")
        return await shop.act("b")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await until_recorded(run, "act#1")
        await run.cancel()
        answers = await asyncio.gather(*(run.resume() for _ in range(4)), return_exceptions=True)
        assert all(isinstance(each, Run | NotAllowedNow) for each in answers), answers
        await run.signal("word")
        assert await finished(run) == "step:b"
        assert sum(isinstance(entry, Resumed) for entry in await run.journal()) == 1
    assert shop.ledger.done == ["step:a", "step:b"]


async def test_signals_that_a_run_had_not_read_when_it_was_cancelled_are_there_when_it_is_resumed(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(key="k", outcomes=PAUSES)
    async def order() -> list[Any]:
        inbox = hook("items")
        return [await inbox, await inbox]

    async with home.holdfast(shop.pack, worker=False) as hf:
        run = (await hf.start(order(), signal=("items", 1))).run
        await run.signal("items", 2)
        assert (await run.cancel()).outcome == "no_effects"
        await run.resume()
    async with home.holdfast(shop.pack) as hf:
        assert await finished(await hf.get(run.id)) == [1, 2]


async def test_signals_that_come_while_a_run_is_being_paused_are_there_when_it_is_resumed(home: Home) -> None:
    shop, gated = Shop(), list[GatedStore]()

    @shop.pack.workflow(outcomes=PAUSES)
    async def order() -> list[Any]:
        inbox = hook("items")
        await shop.act("a")
        return [await inbox, await inbox]

    def through(store: Any) -> GatedStore:
        gated.append(GatedStore(store, lambda changes: any(_pauses(change) for change in changes)))
        return gated[0]

    async with home.holdfast(shop.pack, worker=False) as client, home.holdfast(shop.pack, through=through) as hf:
        run = (await hf.start(order())).run
        await until_recorded(run, "act#1")
        cancelling = asyncio.ensure_future(run.cancel())
        await asyncio.wait_for(gated[0].reached.wait(), PATIENCE_SECONDS)
        outside = await client.get(run.id)
        await outside.signal("items", 1)  # accepted: the run has not ended yet
        gated[0].gate.set()
        assert (await asyncio.wait_for(cancelling, PATIENCE_SECONDS)).outcome == "resumable"
        await run.resume()
        await run.signal("items", 2)
        assert await finished(run) == [1, 2]


def _pauses(change: Any) -> bool:
    return any(entry.what == "stopped" for entry in change.entries)


async def test_a_fork_and_its_resumption_start_from_what_the_source_was_resumed_with(home: Home) -> None:
    pack, thread, calls = Pack("shop"), ThreadLedger(), list[str]()

    @pack.effect(key="slow", retry=ONCE)
    def slow() -> str:
        return thread.act()

    @pack.effect(key="{name}", retry=ONCE)
    async def act(name: str) -> str:
        calls.append(name)
        return name

    @pack.workflow(key="k")
    async def order() -> list[Any]:
        done = [await slow(), await act("b")]
        return [*done, await hook("word"), await act("c")]

    async with home.holdfast(pack) as hf:
        source = (await hf.start(order())).run
        await eventually(thread.begun.is_set)
        cancelling = asyncio.ensure_future(source.cancel())
        await eventually(lambda: _asked(source))
        thread.gate.set()
        assert (await asyncio.wait_for(cancelling, PATIENCE_SECONDS)).outcome == "partial"
        await source.resume()
        await until_recorded(source, "act#1")
        await source.signal("word", 1)
        assert await finished(source) == ["slow", "b", 1, "c"]
        fork = await source.fork(at="act#1")
        await until_recorded(fork, "act#1")
        assert lefts(await fork.cancel()) == {"slow": "performed", "b": "performed"}
        await fork.resume()
        await fork.signal("word", 2)
        assert await finished(fork) == ["slow", "b", 2, "c"]
    assert (thread.done, calls) == (["slow"], ["b", "c", "b", "c"])


async def test_a_blocked_run_that_was_cancelled_is_resumed_with_better_code(home: Home) -> None:
    """C10"""
    shop, stuck = Shop(), [True]

    @shop.pack.workflow(key="k")
    async def order() -> str:
        await shop.act("a")
        if stuck[0]:
            await asyncio.Event().wait()
        return await shop.act("b")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await until_status(run, "blocked")
        assert (await run.cancel()).outcome == "partial"
        with pytest.raises(NotAllowedNow):
            await run.retry()
        await run.resume()
        await until_status(run, "blocked")
        stuck[0] = False
        assert (await run.retry()).key == "k"
        assert await finished(run) == "step:b"
    assert shop.ledger.done == ["step:a", "step:b"]


async def test_a_failed_run_is_retried_although_somebody_tried_to_cancel_it(home: Home) -> None:
    """C10"""
    shop, broken = Shop(), [True]

    @shop.pack.effect(retry=ONCE)
    async def fragile() -> str:
        if broken[0]:
            raise OSError("broken")
        return "fixed"

    @shop.pack.workflow
    async def order() -> str:
        await shop.act("a")
        return await fragile()

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await until_status(run, "failed")
        assert (await run.cancel()).outcome == "partial"  # it had ended; what it did stays
        broken[0] = False
        await run.retry()
        assert await finished(run) == "fixed"
    assert shop.ledger.done == ["step:a"]


async def test_a_paused_run_is_resumed_by_another_replica(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(outcomes=PAUSES)
    async def order() -> str:
        await shop.act("a")
        await sleep("1h")
        return await shop.act("b")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await until_recorded(run, "act#1")
        assert (await run.cancel()).outcome == "resumable"
    async with home.holdfast(shop.pack, worker=False) as client:
        run = await client.get(run.id)
        assert run.next_actions[0] == "resume"
        await run.resume()
        assert (await run.refresh()).status == "pending"
    async with home.holdfast(shop.pack) as hf:
        run = await hf.get(run.id)
        await until_status(run, "waiting")
        assert not await _has(run, Late)
        assert not await _has(run, Dropped)
        assert [wait.kind for wait in (await run.refresh()).waiting_on] == ["timer"]
    assert shop.ledger.done == ["step:a"]
