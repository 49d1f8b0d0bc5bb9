"""`timeout=` of a whole run: it fails or is cancelled, as declared, wherever it stands; by the store's clock."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Pack, Permanent, Run, RunCancelled, RunFailed, UsageError, continue_as_new, hook, sleep
from holdfast.engine.duties.timeouts import Timeouts
from holdfast.errors import RunTimedOut
from holdfast.events import RunEnded, TimeLimitPassed
from holdfast.kernel import timeouts
from holdfast.kernel.documents import Document
from holdfast.kernel.journal import CancelAsked, Failed, Stopped
from holdfast.stores.memory import MemoryStore
from tests.integration.conftest import PATIENCE_SECONDS, Home, eventually, heard
from tests.integration.ledgers import ONCE, Shop, lefts, until_recorded


@pytest.fixture(autouse=True)
def quick(home: Home) -> None:
    home.paced(timeouts_seconds=0.02)


async def times_out(run: Run[Any]) -> None:
    with pytest.raises(RunTimedOut, match="took longer than") as failed:
        await run.result(timeout=PATIENCE_SECONDS)
    assert isinstance(failed.value, RunFailed)
    assert (failed.value.run_id, (await run.refresh()).status) == (run.id, "failed")


async def documents(home: Home) -> list[Document]:
    """The limits that are kept and not over."""
    store = home.store()
    await store.open()
    try:
        return await store.documents(timeouts.EVERYWHERE, timeouts.KIND)
    finally:
        if not isinstance(store, MemoryStore):
            await store.close()


async def test_a_run_that_waits_too_long_fails_and_what_it_did_stays(home: Home) -> None:
    shop, told = Shop(), list[str]()

    @shop.pack.workflow
    async def order() -> None:
        await shop.take("a")
        try:
            await hook("never")
        except asyncio.CancelledError:
            told.append("told")
            raise

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order(), timeout="300ms")).run
        assert run.times_out_at is not None
        until = run.times_out_at
        assert f"its time limit is {run.times_out_at.isoformat(timespec='milliseconds')}" in str(await run.explain())
        await times_out(run)
        receipt = await run.receipt()
        assert (receipt.outcome, lefts(receipt)) == ("partial", {"step:a": "performed"})
        assert receipt.reason == "it took longer than 0.3 s"
        run = await run.refresh()
        assert run.times_out_at is None
        assert run.finished_at is not None
        assert run.finished_at >= until
        assert [each.run_id for each in heard(hf).all(TimeLimitPassed)] == [run.id]
        assert len(heard(hf).all(RunEnded, run_id=run.id)) == 1
    assert (shop.ledger.done, told) == (["step:a"], ["told"])


@pytest.mark.parametrize("on_timeout", ["fail", "cancel"])
async def test_a_workflow_says_how_long_it_may_take_and_how_it_ends_then(home: Home, on_timeout: Any) -> None:
    shop = Shop()

    @shop.pack.workflow(timeout="200ms", on_timeout=on_timeout, on_failure="undo")
    async def order() -> None:
        await shop.take("a")
        await sleep("1h")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        if on_timeout == "fail":
            await times_out(run)
        else:
            with pytest.raises(RunCancelled):
                await run.result(timeout=PATIENCE_SECONDS)
        receipt = await run.receipt()
        assert (receipt.outcome, lefts(receipt)) == ("compensated", {"step:a": "undone"})
    assert shop.ledger.done == ["step:a", "undo:step:a"]


async def test_an_effect_that_is_under_way_is_interrupted(home: Home) -> None:
    shop = Shop()
    shop.ledger.hold("step:a")

    @shop.pack.workflow(timeout="200ms")
    async def order() -> None:
        await shop.take("a")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await times_out(run)
        assert lefts(await run.receipt()) == {"step:a": "unknown"}


async def test_a_run_that_ends_in_time_is_left_alone_and_its_limit_is_removed(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(timeout="1h")
    async def order() -> str:
        return await shop.act("a")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order(), timeout="300ms")).run
        assert await run.result(timeout=PATIENCE_SECONDS) == "step:a"
        assert (await run.refresh()).times_out_at is None
        await eventually(lambda: _none_left(home))
        assert (await run.refresh()).status == "completed"
        assert not heard(hf).all(TimeLimitPassed)


async def _none_left(home: Home) -> bool:
    return not await documents(home)


async def test_a_run_without_a_timeout_has_no_limit(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow
    async def order() -> str:
        return await shop.act("a")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await run.result(timeout=PATIENCE_SECONDS)
        assert (run.times_out_at, run.attributes, await documents(home)) == (None, {}, [])


async def test_a_run_that_no_worker_serves_times_out_too(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow
    async def order() -> None:
        await shop.take("a")

    async with home.holdfast(shop.pack, worker=False, duties=True) as hf:
        run = (await hf.start(order(), timeout="100ms")).run
        await times_out(run)
        assert (await run.receipt()).outcome == "no_effects"
    assert not shop.ledger.done


async def test_a_blocked_run_times_out_too(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(timeout="400ms")
    async def order() -> None:
        await shop.act("a")
        await asyncio.get_running_loop().create_future()  # nothing can deliver it

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await eventually(lambda: _is(run, "failed"))
        assert [type(each).__name__ for each in await run.journal()][-4:] == [
            "Blocked",
            "CancelAsked",
            "Stopped",
            "Failed",
        ]
        await times_out(run)


async def _is(run: Run[Any], status: str) -> bool:
    return (await run.refresh()).status == status


async def test_the_limit_counts_through_restarts_and_continue_as_new(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(timeout="600ms")
    async def order(number: int = 0) -> None:
        await sleep("20ms")
        continue_as_new(order(number + 1))

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
    async with home.holdfast(shop.pack) as hf:
        await times_out(await hf.get(run.id))
    assert shop.ledger.most() == 0


async def test_at_the_deadline_of_its_cleanup_the_run_is_ended_without_its_owner(home: Home) -> None:
    """Its code does not let go, and neither does its worker: the leader ends it."""
    shop = Shop()
    shop.ledger.hold("undo:step:a")

    @shop.pack.workflow(timeout="100ms", on_failure="undo", undo_deadline="200ms")
    async def order() -> None:
        await shop.take("a")
        await hook("never")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await times_out(run)
        receipt = await run.receipt()
        assert (receipt.outcome, receipt.stopped) == ("unknown", True)


async def test_a_timed_out_run_that_is_retried_goes_on_without_a_limit(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(timeout="200ms")
    async def order() -> str:
        await shop.take("a")
        return str(await hook("go"))

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await times_out(run)
        run = await run.retry()
        await run.signal("go", "done")
        assert await run.result(timeout=PATIENCE_SECONDS) == "done"
    assert shop.ledger.done == ["step:a"]


async def test_a_child_has_the_limit_that_its_workflow_declares(home: Home) -> None:
    shop, caught = Shop(), list[str]()

    @shop.pack.workflow(timeout="200ms")
    async def child() -> None:
        await hook("never")

    @shop.pack.workflow
    async def parent() -> str:
        try:
            await child()
        except RunTimedOut as error:
            caught.append(error.message)
        return "went on"

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(parent())).run
        assert await run.result(timeout=PATIENCE_SECONDS) == "went on"
    assert "took longer than 0.2 s" in caught[0]


async def test_a_start_that_joins_another_run_leaves_no_limit_to_it(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(key="k")
    async def order() -> str:
        return str(await hook("go"))

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        joined, created = await hf.start(order(), timeout="50ms")
        assert (joined.id, created, joined.times_out_at) == (run.id, False, None)
        await eventually(lambda: _looked_for_the_run_in_vain(home))
        await run.signal("go", "done")
        assert await run.result(timeout=PATIENCE_SECONDS) == "done"


async def _looked_for_the_run_in_vain(home: Home) -> bool:
    [document] = await documents(home)
    return (document.due_at_ms or 0) > timeouts.of(document).at_ms


async def test_a_fork_has_no_limit(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(timeout="200ms")
    async def order() -> str:
        await shop.act("a")
        return str(await hook("go"))

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await until_recorded(run, "act#1")
        await times_out(run)
        fork = await run.fork(at="act#1")
        assert fork.times_out_at is None
        await fork.signal("go", "done")
        assert await fork.result(timeout=PATIENCE_SECONDS) == "done"


async def test_code_that_returns_after_it_was_told_has_completed(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(timeout="100ms")
    async def order() -> str:
        try:
            await hook("never")
        except asyncio.CancelledError:
            return "in time after all"
        return ""

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        assert await run.result(timeout=PATIENCE_SECONDS) == "in time after all"


async def test_a_leader_that_dies_between_asking_and_its_note_is_followed_by_one_that_asks_again(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow
    async def order() -> None:
        await hook("never")

    async with home.holdfast(shop.pack, duties=False) as hf:
        run = (await hf.start(order(), timeout="1ms")).run
        store, operations = hf.runtime.store, hf._replica.service.operations

        async def due() -> list[Any]:
            return await store.due(timeouts.EVERYWHERE, (timeouts.KIND,), 10)

        [document] = await eventually(due)
        for _ in range(2):
            await operations.time_out(timeouts.of(document))
        duty = Timeouts(store, emit=lambda _: None, pace=home.pace, end=operations.time_out)
        await duty.tick()
        await times_out(run)
        journal = await run.journal()
        assert sum(isinstance(entry, CancelAsked) for entry in journal) == 1
        assert sum(isinstance(entry, Failed) for entry in journal) == 1
        assert sum(isinstance(entry, Stopped) for entry in journal) == 1


async def test_a_start_whose_limit_cannot_be_kept_starts_nothing(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow
    async def order() -> None: ...

    async with home.holdfast(shop.pack) as hf:
        with pytest.raises(UsageError):
            await hf.start(order(), timeout="soon")
        assert [each async for each in hf.runs()] == []


def test_how_a_run_ends_that_takes_too_long_is_one_of_two_words() -> None:
    pack = Pack("shop")
    with pytest.raises(UsageError, match="on_timeout='retry' is not known"):
        pack.workflow(timeout="1h", on_timeout="retry")  # pyright: ignore[reportArgumentType]


async def test_an_effect_that_fails_first_is_the_failure(home: Home) -> None:
    shop = Shop()

    @shop.pack.effect(retry=ONCE)
    async def broken() -> None:
        raise Permanent("no stock")

    @shop.pack.workflow(timeout="1h")
    async def order() -> None:
        await broken()

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        with pytest.raises(RunFailed, match="no stock") as failed:
            await run.result(timeout=PATIENCE_SECONDS)
        assert not isinstance(failed.value, RunTimedOut)
