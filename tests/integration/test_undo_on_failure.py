"""`on_failure="undo"`: what a failed run has done is taken back before it fails; and what its receipt says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import NotAllowedNow, Pack, Permanent, Retry, Run, RunFailed, UsageError, hook, sleep, spawn
from holdfast.errors import UndeclaredOutcome
from holdfast.events import OutcomeUndeclared, RunEnded, UndoBegan
from holdfast.kernel.journal import Failed, Late, Performed, Received, Stopped
from tests.integration.conftest import PATIENCE_SECONDS, Home, eventually, heard
from tests.integration.ledgers import ONCE, Shop, lefts, until_recorded


async def fails(run: Run[Any], match: str = "no stock") -> None:
    with pytest.raises(RunFailed, match=match):
        await run.result(timeout=PATIENCE_SECONDS)


async def test_what_a_failed_run_did_is_undone_in_reverse_order_and_then_it_fails_with_its_error(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(key="order", on_failure="undo")
    async def order() -> None:
        for name in "abc":
            await shop.take(name)
        raise ValueError("no stock")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await fails(run)
        journal = await run.journal()
        [stopped] = [entry for entry in journal if isinstance(entry, Stopped)]
        assert stopped.error is not None
        assert (stopped.error.message, stopped.by_deadline) == ("no stock", False)
        assert [entry.error for entry in journal[-1:] if isinstance(entry, Failed)] == [stopped.error]
        receipt = await run.receipt()
        assert (receipt.outcome, receipt.stopped, receipt.reason) == ("compensated", False, "")
        assert lefts(receipt) == {"step:a": "undone", "step:b": "undone", "step:c": "undone"}
        assert await run.cancel("too late") == receipt
        [began] = heard(hf).all(UndoBegan, run_id=run.id)
        assert "no stock" in began.error
        assert len(heard(hf).all(RunEnded, run_id=run.id)) == 1
        assert "what it left behind is being undone" in str(await run.explain())
    assert shop.ledger.done == [f"step:{name}" for name in "abc"] + [f"undo:step:{name}" for name in "cba"]


async def test_an_effect_that_fails_for_good_undoes_the_others(home: Home) -> None:
    shop = Shop()

    @shop.pack.effect(retry=ONCE)
    async def broken() -> None:
        raise Permanent("no stock")

    @shop.pack.workflow(on_failure="undo")
    async def order() -> None:
        await shop.take("a")
        await shop.act("kept")  # has no undo
        await broken()

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await fails(run)
        receipt = await run.receipt()
        assert (receipt.outcome, lefts(receipt)) == ("partial", {"step:a": "undone", "step:kept": "performed"})
    assert shop.ledger.done == ["step:a", "step:kept", "undo:step:a"]


async def test_what_the_code_handles_is_no_failure(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(on_failure="undo")
    async def order() -> str:
        await shop.take("a")
        try:
            raise ValueError("no stock")
        except ValueError:
            return "another time"

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        assert await run.result(timeout=PATIENCE_SECONDS) == "another time"
        assert (await run.receipt()).outcome == "completed_first"
    assert shop.ledger.done == ["step:a"]


async def test_effects_under_way_come_to_their_end_and_are_undone_too(home: Home) -> None:
    """They are not interrupted: so it is known what they did. Nothing that the other tasks wait for is begun."""
    shop = Shop()
    shop.ledger.hold("step:slow")

    @shop.pack.workflow(on_failure="undo")
    async def order() -> None:
        async def fail() -> None:
            await shop.take("a")
            raise ValueError("no stock")

        async def then_more() -> None:
            await shop.take("slow")
            await shop.take("never")

        later = asyncio.create_task(sleep("1ms"))
        await asyncio.gather(then_more(), fail(), hook("never"), later)

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await shop.ledger.until_done("step:a")
        await shop.ledger.until_begun("step:slow")
        await until_recorded(run, "2/take#1")
        await run.signal("never")
        shop.ledger.let_go()
        await fails(run)
        receipt = await run.receipt()
        assert (receipt.outcome, lefts(receipt)) == ("compensated", {"step:a": "undone", "step:slow": "undone"})
        assert [entry.step for entry in await run.journal() if isinstance(entry, Late)]
    assert sorted(shop.ledger.done) == ["step:a", "step:slow", "undo:step:a", "undo:step:slow"]


async def test_a_result_that_cannot_be_kept_is_a_failure_like_any_other(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(on_failure="undo")
    async def order() -> int:
        await shop.take("a")
        return object()  # pyright: ignore[reportReturnType]

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await fails(run, "the result of shop.order")
        assert (await run.receipt()).outcome == "compensated"
    assert shop.ledger.done == ["step:a", "undo:step:a"]


async def test_an_undo_that_fails_does_not_stop_the_others_and_is_named(home: Home) -> None:
    pack, done = Pack("shop"), list[str]()

    @pack.effect(retry=Retry(attempts=2, base=0))
    async def undo(name: str) -> None:
        if name == "b":
            raise ConnectionError("the site does not answer")
        done.append(name)

    @pack.effect(key="step:{name}", undo=undo)
    async def do(name: str) -> None: ...

    @pack.workflow(on_failure="undo")
    async def order() -> None:
        for name in "abc":
            await do(name)
        raise ValueError("no stock")

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await fails(run)
        receipt = await run.receipt()
        assert (receipt.outcome, lefts(receipt)) == (
            "partial",
            {"step:a": "undone", "step:b": "performed", "step:c": "undone"},
        )
        assert "the site does not answer" in receipt.effects[1].problem
    assert done == ["c", "a"]


async def test_children_are_cancelled_and_undo_their_own(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(key="child:{name}")
    async def child(name: str) -> None:
        await shop.take(name)
        await hook("never")

    @shop.pack.workflow(on_failure="undo")
    async def order() -> None:
        await spawn(child("ours"))
        await spawn(child("detached"), detached=True)
        await shop.take("a")
        await hook("go")
        raise ValueError("no stock")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        ours, detached = [await _found(hf, child, f"child:{name}") for name in ("ours", "detached")]
        await until_recorded(ours, "take#1")
        await until_recorded(detached, "take#1")
        await run.signal("go")
        await fails(run)
        receipt = await run.receipt()
        assert [(left.run_id, left.outcome) for left in receipt.children] == [(ours.id, "compensated")]
        assert receipt.outcome == "compensated"
        ours = await ours.refresh()
        assert (ours.status, (await ours.receipt()).reason) == ("cancelled", f"its parent {run.id} failed")
        assert (await detached.refresh()).finished_at is None
        await detached.cancel()


async def _found(hf: Any, workflow: Any, key: str) -> Run[Any]:
    async def found() -> list[Run[Any]]:
        return [each async for each in hf.runs(workflow, key_prefix=key)]

    return (await eventually(found))[0]


async def test_at_its_deadline_the_undoing_is_cut_short_and_the_run_fails_with_its_error(home: Home) -> None:
    shop = Shop()
    shop.ledger.hold("undo:step:b")

    @shop.pack.workflow(on_failure="undo", undo_deadline="200ms")
    async def order() -> None:
        await shop.take("a")
        await shop.take("b")
        raise ValueError("no stock")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await fails(run)
        receipt = await run.receipt()
        assert (receipt.outcome, receipt.stopped) == ("unknown", True)
        assert lefts(receipt) == {"step:a": "performed", "step:b": "unknown"}
    assert shop.ledger.done == ["step:a", "step:b"]


async def test_a_cancellation_that_comes_while_it_is_undone_shortens_the_time_for_it(home: Home) -> None:
    shop = Shop()
    shop.ledger.hold("undo:step:a")

    @shop.pack.workflow(on_failure="undo")
    async def order() -> None:
        await shop.take("a")
        raise ValueError("no stock")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await shop.ledger.until_begun("undo:step:a")
        receipt = await run.cancel(deadline="50ms")
        assert (receipt.outcome, receipt.stopped) == ("unknown", True)
        await fails(run)


async def test_signals_that_come_while_it_is_undone_are_recorded_and_change_nothing(home: Home) -> None:
    shop = Shop()
    shop.ledger.hold("undo:step:a")

    @shop.pack.workflow(on_failure="undo")
    async def order() -> None:
        listening = asyncio.create_task(_listen(shop))
        await shop.take("a")
        del listening
        raise ValueError("no stock")

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await shop.ledger.until_begun("undo:step:a")
        await run.signal("more")
        shop.ledger.let_go()
        await fails(run)
        assert sum(isinstance(entry, Received) for entry in await run.journal()) == 1
        assert (await run.receipt()).outcome == "compensated"
    assert shop.ledger.done == ["step:a", "undo:step:a"]


async def _listen(shop: Shop) -> None:
    await hook("more")
    await shop.take("more")


async def test_the_undoing_waits_for_its_retries_without_a_slot_and_goes_on_elsewhere(home: Home) -> None:
    """It is let go while the next attempt is not due, and replayed to where it was."""
    pack, done, calls = Pack("shop"), list[str](), list[str]()
    is_up = False

    @pack.effect(retry=Retry(attempts=50, base="100ms", factor=1))
    async def undo(name: str) -> None:
        calls.append(name)
        if name == "b" and not is_up:
            raise ConnectionError("down")
        done.append(name)

    @pack.effect(key="step:{name}", undo=undo)
    async def do(name: str) -> None: ...

    @pack.workflow(on_failure="undo")
    async def order() -> None:
        await asyncio.gather(*(do(name) for name in "abc"))
        raise ValueError("no stock")

    home.paced(idle_ms=1)
    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await eventually(lambda: _is(run, "waiting"))
    is_up = True
    async with home.holdfast(pack) as hf:
        run = await hf.get(run.id)
        await fails(run)
        receipt = await run.receipt()
        assert receipt.outcome == "compensated"
        undone = [e.step for e in await run.journal() if isinstance(e, Performed) and e.step.startswith("undo:")]
        assert len(undone) == 3
    assert sorted(done) == ["a", "b", "c"]


async def _is(run: Run[Any], status: str) -> bool:
    return (await run.refresh()).status == status


async def test_a_run_that_was_undone_cannot_be_retried_but_started_again_or_forked(home: Home) -> None:
    shop = Shop()
    broken = True

    @shop.pack.workflow(key="order", on_failure="undo")
    async def order() -> str:
        await shop.act("kept")
        await shop.take("a")
        if broken:
            raise ValueError("no stock")
        return "done"

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await fails(run)
        with pytest.raises(NotAllowedNow, match="has been undone since it failed") as refused:
            await run.retry()
        assert "replace=run" in refused.value.hint
        assert "retry" not in (await run.explain()).next_actions
        with pytest.raises(NotAllowedNow, match="belongs to the undoing"):
            await run.fork(at="undo:take#1")
        broken = False
        fork = await run.fork(at="take#1")
        assert await fork.result(timeout=PATIENCE_SECONDS) == "done"
        again = (await hf.start(order(), replace=fork)).run
        assert await again.result(timeout=PATIENCE_SECONDS) == "done"
    assert shop.ledger.done == ["step:kept", "step:a", "undo:step:a", "step:a", "step:kept", "step:a"]


async def test_a_run_whose_undos_have_all_failed_may_have_been_undone_and_is_not_retried(home: Home) -> None:
    pack = Pack("shop")

    @pack.effect(retry=ONCE)
    async def untake() -> None:
        raise Permanent("the reply was lost")  # and it may have happened

    @pack.effect(undo=untake)
    async def take() -> None: ...

    @pack.workflow(on_failure="undo")
    async def order() -> None:
        await take()
        raise ValueError("no stock")

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        await fails(run)
        with pytest.raises(NotAllowedNow, match=r"may have been undone since it failed: .* gave up undo:take#1"):
            await run.retry()
        assert "retry" not in (await run.explain()).next_actions


async def test_a_failed_run_of_which_nothing_was_undone_is_retried_as_ever(home: Home) -> None:
    shop = Shop()
    broken = True

    @shop.pack.effect(retry=ONCE)
    async def ship() -> str:
        if broken:
            raise Permanent("no stock")
        return "done"

    @shop.pack.workflow(on_failure="undo")
    async def order() -> str:
        await shop.act("kept")
        waiting = asyncio.create_task(sleep("1h"))
        done = await ship()
        waiting.cancel()
        return done

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await fails(run)
        assert (await run.receipt()).outcome == "partial"
        broken = False
        assert await (await run.retry()).result(timeout=PATIENCE_SECONDS) == "done"
    assert shop.ledger.done == ["step:kept"]


@pytest.mark.parametrize("did", ["nothing", "something"])
async def test_the_receipt_of_a_failed_run_that_undoes_nothing_says_what_is_there(home: Home, did: str) -> None:
    shop = Shop()

    @shop.pack.workflow(outcomes=("no_effects", "compensated"))
    async def order() -> None:
        if did == "something":
            await shop.take("a")
        raise ValueError("no stock")

    async with home.holdfast(shop.pack, strict=True) as hf:
        run = (await hf.start(order())).run
        await fails(run)
        receipt = await run.cancel("too late")  # what a failure left behind is no outcome of a cancellation
        assert receipt == await run.receipt()
        assert receipt.outcome == ("partial" if did == "something" else "no_effects")
        assert not heard(hf).all(OutcomeUndeclared)
    assert "undo:step:a" not in shop.ledger.done


async def test_a_run_that_was_told_to_cancel_and_raises_is_held_to_its_outcomes(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(outcomes=("no_effects", "compensated"))
    async def order() -> None:
        await shop.act("a")
        try:
            await hook("never")
        finally:
            raise ValueError("no stock")

    async with home.holdfast(shop.pack, strict=True) as hf:
        run = (await hf.start(order())).run
        await until_recorded(run, "act#1")
        with pytest.raises(UndeclaredOutcome):
            await run.cancel()
        await fails(run)


def test_what_is_to_be_done_on_failure_is_one_of_two_words() -> None:
    pack = Pack("shop")
    with pytest.raises(UsageError, match="on_failure='retry' is not known"):
        pack.workflow(on_failure="retry")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError):
        pack.workflow(on_failure="undo", undo_deadline="soon")
