"""Children are cancelled with the run that created them; others are not (C7)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from holdfast import Holdfast, Pack, Receipt, Run, RunCancelled, Workflow, continue_as_new, hook, shield, spawn
from holdfast.events import EffectBegan, RunAdmitted, RunEnded
from holdfast.kernel.journal import CancelAsked
from tests.integration.conftest import PATIENCE_SECONDS, Home, eventually, heard, worker_of
from tests.integration.ledgers import MOMENTS_MIN, Moments, Shop, lefts, until_recorded


class Family(Shop):
    """A child that does one thing, which can be undone, and then waits for a word."""

    def __init__(self) -> None:
        super().__init__()

        @self.pack.workflow(key="child:{name}")
        async def child(name: str) -> str:
            await self.take(name)
            await hook("word")
            return await self.act(f"{name}.end")

        self.child = child


async def until_status(run: Run[Any], *statuses: str) -> Run[Any]:
    async def has_it() -> Run[Any] | None:
        newer = await run.refresh()
        return newer if newer.status in statuses else None

    return await eventually(has_it)


@pytest.mark.parametrize("how", ["awaited", "spawned", "gathered"])
async def test_children_are_cancelled_with_their_parent_and_waited_for(home: Home, how: str) -> None:
    """C7"""
    family = Family()

    @family.pack.workflow
    async def parent() -> None:
        await family.take("p")
        match how:
            case "awaited":
                await family.child("a")
            case "spawned":
                await spawn(family.child("a"))
                await hook("never")
            case _:
                await asyncio.gather(family.child("a"), family.child("b"))

    async with home.holdfast(family.pack) as hf:
        run = (await hf.start(parent())).run
        names = ["a", "b"] if how == "gathered" else ["a"]
        children = [await eventually(lambda name=name: _found(hf, family, name)) for name in names]
        for child in children:
            await until_recorded(child, "take#1")
        receipt = await run.cancel("enough")
        assert (receipt.outcome, receipt.stopped) == ("compensated", False)
        assert lefts(receipt) == {"step:p": "undone"}
        assert {(each.run_id, each.workflow, each.outcome) for each in receipt.children} == {
            (child.id, "shop.child", "compensated") for child in children
        }
        for child in children:
            assert (await child.refresh()).status == "cancelled"
            assert run.id in (await child.receipt()).reason
        order = [event.run_id for event in heard(hf).all(RunEnded)]
        assert order[-1] == run.id  # the parent ends last
        assert await run.receipt() == receipt
    undone = [key for key in family.ledger.done if key.startswith("undo:")]
    assert undone[-1] == "undo:step:p"  # children are stopped before the parent's own effects are undone
    assert set(undone) == {"undo:step:p", *(f"undo:step:{name}" for name in names)}
    assert not any(key.endswith(".end") for key in family.ledger.done)


async def _found(hf: Any, family: Family, name: str) -> Run[Any] | None:
    found = [run async for run in hf.runs(family.child, key_prefix=f"child:{name}")]
    return found[0] if found else None


async def test_grandchildren_are_cancelled_too(home: Home) -> None:
    family = Family()

    @family.pack.workflow
    async def middle() -> None:
        await family.child("a")

    @family.pack.workflow
    async def parent() -> None:
        await middle()

    async with home.holdfast(family.pack) as hf:
        run = (await hf.start(parent())).run
        child = await eventually(lambda: _found(hf, family, "a"))
        await until_recorded(child, "take#1")
        receipt = await run.cancel()
        assert receipt.outcome == "compensated"
        [left] = receipt.children
        assert (left.workflow, left.outcome) == ("shop.middle", "compensated")
        assert (await child.refresh()).status == "cancelled"


async def test_what_a_grandchild_performed_is_left_behind_though_its_parent_had_completed(home: Home) -> None:
    """A run that was never asked to stop has a receipt without children: they count all the same."""
    family = Family()

    @family.pack.workflow
    async def leaf() -> str:
        return await family.act("leaf")

    @family.pack.workflow
    async def middle() -> None:
        await leaf()

    @family.pack.workflow
    async def parent() -> None:
        await middle()
        await family.take("p")
        await hook("never")

    receipt = await _cancelled_after("take#1", home, family, parent)
    [left] = receipt.children
    assert (left.outcome, left.is_empty) == ("completed_first", False)
    assert receipt.outcome == "partial"


async def _cancelled_after(step: str, home: Home, family: Family, parent: Workflow[[], None]) -> Receipt:
    """The receipt of a parent that was cancelled when this step of it had its record."""
    async with home.holdfast(family.pack) as hf:
        run = (await hf.start(parent())).run
        await until_recorded(run, step)
        return await run.cancel()


async def test_what_a_grandchild_performed_is_left_behind_though_its_parent_had_cancelled_itself(home: Home) -> None:
    family = Family()

    @family.pack.workflow
    async def leaf() -> str:
        return await family.act("leaf")

    @family.pack.workflow
    async def middle() -> None:
        await leaf()
        raise asyncio.CancelledError

    @family.pack.workflow
    async def parent() -> None:
        with suppress(RunCancelled):
            await middle()
        await family.take("p")
        await hook("never")

    receipt = await _cancelled_after("take#1", home, family, parent)
    assert [each.outcome for each in receipt.children] == ["partial"]
    assert receipt.outcome == "partial"


async def test_what_an_earlier_generation_of_a_child_performed_is_left_behind(home: Home) -> None:
    family = Family()

    @family.pack.workflow
    async def middle(n: int = 0) -> None:
        if n == 0:
            await family.act("first")
            continue_as_new(middle(1))

    @family.pack.workflow
    async def parent() -> None:
        await middle()
        await family.take("p")
        await hook("never")

    receipt = await _cancelled_after("take#1", home, family, parent)
    [left] = receipt.children
    assert (left.outcome, left.is_empty) == ("completed_first", False)
    assert receipt.outcome == "partial"


async def test_detached_children_go_on(home: Home) -> None:
    """C7"""
    family = Family()

    @family.pack.workflow
    async def parent() -> None:
        await spawn(family.child("a"), detached=True)
        await hook("never")

    async with home.holdfast(family.pack) as hf:
        run = (await hf.start(parent())).run
        await until_recorded(run, "child#1")
        receipt = await run.cancel()
        assert (receipt.outcome, receipt.children) == ("no_effects", ())
        child = await eventually(lambda: _found(hf, family, "a"))
        await child.signal("word")
        assert await child.result(timeout=PATIENCE_SECONDS) == "step:a.end"
        assert await run.receipt() == receipt


async def test_a_child_that_was_found_by_its_key_goes_on(home: Home) -> None:
    """C7"""
    family = Family()

    @family.pack.workflow
    async def parent(wait: bool) -> None:
        if wait:
            await family.child("a")
        else:
            await spawn(family.child("a"))
            await hook("never")

    async with home.holdfast(family.pack) as hf:
        child = (await hf.start(family.child("a"))).run
        await until_recorded(child, "take#1")
        for wait in (True, False):
            run = (await hf.start(parent(wait))).run
            await until_recorded(run, "child#1")
            receipt = await run.cancel()
            assert (receipt.outcome, receipt.children) == ("no_effects", ())
        await child.signal("word")
        assert await child.result(timeout=PATIENCE_SECONDS) == "step:a.end"
    assert family.ledger.done == ["step:a", "step:a.end"]


@pytest.mark.parametrize("joins", [True, False])
async def test_children_that_have_ended_are_left_alone(home: Home, joins: bool) -> None:
    family = Family()

    @family.pack.workflow
    async def parent() -> None:
        child = await spawn(family.child("a"))
        if joins:
            await child.result()
        await hook("never")

    async with home.holdfast(family.pack) as hf:
        run = (await hf.start(parent())).run
        child = await eventually(lambda: _found(hf, family, "a"))
        await child.signal("word")
        await child.result(timeout=PATIENCE_SECONDS)
        if joins:
            await until_recorded(run, "child.result#1")
        receipt = await run.cancel()
        assert (receipt.outcome, receipt.stopped) == ("partial", False)
        assert [(each.run_id, each.outcome) for each in receipt.children] == [(child.id, "completed_first")]
        assert (await child.refresh()).status == "completed"
    assert not any(key.startswith("undo:") for key in family.ledger.done)


async def test_a_child_that_did_nothing_leaves_nothing_behind(home: Home) -> None:
    family = Family()

    @family.pack.workflow
    async def idle(wait: bool) -> None:
        if wait:
            await hook("never")

    @family.pack.workflow
    async def parent() -> None:
        await idle(False)
        await idle(True)

    async with home.holdfast(family.pack) as hf:
        run = (await hf.start(parent())).run
        await until_recorded(run, "idle#2")
        receipt = await run.cancel()
        assert receipt.outcome == "no_effects"
        assert len(receipt.children) == 2


async def test_a_child_whose_outcome_is_unknown_makes_that_of_the_parent_unknown(home: Home) -> None:
    family = Family()
    family.ledger.hold("step:a.end")

    @family.pack.workflow
    async def parent() -> None:
        await family.child("a")

    async with home.holdfast(family.pack) as hf:
        run = (await hf.start(parent())).run
        child = await eventually(lambda: _found(hf, family, "a"))
        await child.signal("word")
        await family.ledger.until_begun("step:a.end")
        receipt = await run.cancel()
        assert (receipt.outcome, receipt.effects) == ("unknown", ())
        assert [each.outcome for each in receipt.children] == ["unknown"]


async def test_a_child_that_nobody_serves_is_cancelled_at_once(home: Home) -> None:
    family = Family()

    @family.pack.workflow(queue="nobody")
    async def unserved() -> None:
        await family.act("never")

    @family.pack.workflow
    async def parent() -> None:
        await unserved()

    async with home.holdfast(family.pack, queues=["default"]) as hf:
        run = (await hf.start(parent())).run
        await until_recorded(run, "unserved#1")
        receipt = await asyncio.wait_for(run.cancel(deadline="1h"), PATIENCE_SECONDS)
        assert (receipt.outcome, receipt.stopped) == ("no_effects", False)
        assert [each.outcome for each in receipt.children] == ["no_effects"]


async def test_a_blocked_child_is_cancelled_at_once(home: Home) -> None:
    family = Family()

    @family.pack.workflow
    async def stuck() -> None:
        await family.act("a")
        await asyncio.Event().wait()

    @family.pack.workflow
    async def parent() -> None:
        await stuck()

    async with home.holdfast(family.pack) as hf:
        run = (await hf.start(parent())).run
        await until_recorded(run, "stuck#1")
        [child] = [each async for each in hf.runs(stuck)]
        await until_status(child, "blocked")
        receipt = await asyncio.wait_for(run.cancel(deadline="1h"), PATIENCE_SECONDS)
        assert (receipt.outcome, receipt.stopped) == ("partial", False)
        assert (await child.refresh()).status == "cancelled"


def _of_a_slow_child(family: Family) -> Workflow[[], None]:
    """A workflow whose child cleans up, and is held there."""
    family.ledger.hold("step:cleanup")

    @family.pack.workflow
    async def slow() -> None:
        await family.act("begin")
        try:
            await hook("never")
        finally:
            async with shield("1h"):
                await family.act("cleanup")

    @family.pack.workflow
    async def parent() -> None:
        await slow()

    return parent


async def _with_its_child(hf: Holdfast, parent: Workflow[[], None]) -> tuple[Run[None], Run[Any]]:
    run = (await hf.start(parent())).run
    await until_recorded(run, "slow#1")
    [child] = [each async for each in hf.runs("slow")]
    await until_recorded(child, "act#1")  # its code is where the cancellation is to meet it
    return run, child


async def test_a_parent_that_is_stopped_by_its_deadline_does_not_wait_for_its_children(home: Home) -> None:
    """C7. And what its children do later does not change its receipt."""
    family = Family()
    parent = _of_a_slow_child(family)
    async with home.holdfast(family.pack) as hf:
        run, child = await _with_its_child(hf, parent)
        receipt = await run.cancel(deadline="300ms")
        assert (receipt.outcome, receipt.stopped) == ("unknown", True)
        assert (await run.refresh()).status == "cancelled"
        family.ledger.let_go()
        await until_status(child, "cancelled", "completed", "failed")
        assert await run.receipt() == receipt


async def test_children_have_the_deadline_of_their_parent(home: Home) -> None:
    """C7"""
    family = Family()
    parent = _of_a_slow_child(family)
    async with home.holdfast(family.pack) as hf:
        run, child = await _with_its_child(hf, parent)
        await run.cancel(deadline="300ms")
        await until_status(child, "cancelled")
        asked = [each.deadline_at_ms for each in await run.journal() if isinstance(each, CancelAsked)]
        assert asked == [each.deadline_at_ms for each in await child.journal() if isinstance(each, CancelAsked)]
        assert (await child.receipt()).stopped


async def test_a_child_sees_the_cancellation_as_its_parent_does(home: Home) -> None:
    """C8"""
    family = Family()

    @family.pack.workflow
    async def parent() -> str:
        try:
            return await family.child("a")
        except RunCancelled as error:
            return f"child was cancelled: {error.run_id}"

    async with home.holdfast(family.pack) as hf:
        run = (await hf.start(parent())).run
        child = await eventually(lambda: _found(hf, family, "a"))
        await until_recorded(child, "take#1")
        await child.cancel()  # only the child: that is an outcome for the parent
        assert await run.result(timeout=PATIENCE_SECONDS) == f"child was cancelled: {child.id}"


class BigFamily(Family):
    """A parent with one child that it spawned and two that it waits for."""

    def __init__(self) -> None:
        super().__init__()

        @self.pack.workflow
        async def parent() -> None:
            await spawn(self.child("a"))
            await asyncio.gather(self.child("b"), self.child("c"))

        self.parent = parent

    def check(self, at: int) -> None:
        """What was done was undone, and once."""
        done = [key for key in self.ledger.done if not key.startswith("undo:")]
        assert {f"undo:{key}" for key in done} <= set(self.ledger.done), (at, self.ledger.done)
        assert self.ledger.most() <= 1, (at, self.ledger.done)


async def test_wherever_the_cancellation_comes_no_child_outlives_it(home: Home) -> None:
    """C2, C7"""
    moment, came = 0, True
    while came:
        moment += 1
        family, moments = BigFamily(), Moments()
        async with home.holdfast(family.pack, through=moments.through) as hf:
            started: asyncio.Future[Run[None]] = asyncio.get_running_loop().create_future()

            async def cancel(started: asyncio.Future[Run[None]] = started) -> Receipt:
                return await (await started).cancel()

            moments.at(moment, cancel)
            started.set_result((await hf.start(family.parent())).run)
            # The moments after the last one never come: by then all of them wait for a word.
            came = await moments.has_come()
            receipt = await asyncio.wait_for(moments.happened.result() if came else cancel(), PATIENCE_SECONDS)
            assert receipt.outcome in {"no_effects", "compensated"}, (moment, receipt)
            assert not receipt.stopped, (moment, receipt)
            children = {run.id: run async for run in hf.runs(family.child, attributes=_of(started.result()))}
            assert {run.status for run in children.values()} <= {"cancelled"}, (moment, children)
            assert {each.run_id for each in receipt.children} == set(children), (moment, receipt)
            family.check(moment)
            for run in children.values():
                await run.release_key()  # the next parent wants children of its own
    assert moment > MOMENTS_MIN


def _of(parent: Run[Any]) -> dict[str, str]:
    return {"holdfast.parent": parent.id}


async def test_cleanup_may_wait_for_a_child_under_a_shield(home: Home) -> None:
    family = Family()

    @family.pack.workflow
    async def parent() -> None:
        child = await spawn(family.child("a"))
        try:
            await hook("never")
        finally:
            async with shield("25s"):
                await child.result()
                await family.act("after")

    async with home.holdfast(family.pack) as hf:
        run = (await hf.start(parent())).run
        await until_recorded(run, "child#1")
        cancelling = asyncio.ensure_future(run.cancel())

        async def is_asked() -> bool:
            return any(each.what == "cancel_asked" for each in await run.journal())

        await eventually(is_asked)
        child = await eventually(lambda: _found(hf, family, "a"))
        await child.signal("word")
        receipt = await asyncio.wait_for(cancelling, PATIENCE_SECONDS)
        assert (lefts(receipt), receipt.stopped) == ({"step:after": "performed"}, False)
        assert (await child.refresh()).status == "completed"


async def test_a_parent_is_cancelled_by_another_replica_than_the_one_of_its_child(home: Home) -> None:
    family = Family()

    @family.pack.workflow
    async def parent() -> None:
        await family.child("a")

    async with home.holdfast(family.pack, worker=False) as client:
        async with home.holdfast(family.pack) as first:
            run = (await first.start(parent())).run
            child = await eventually(lambda: _found(first, family, "a"))
            await until_recorded(child, "take#1")
        async with home.holdfast(family.pack), home.holdfast(family.pack):
            receipt = await asyncio.wait_for((await client.get(run.id)).cancel(), PATIENCE_SECONDS)
            assert receipt.outcome == "compensated"
            assert (await client.get(child.id)).status == "cancelled"
    assert family.ledger.done == ["step:a", "undo:step:a"]


async def test_who_waits_here_for_a_child_that_is_ended_before_it_has_begun_is_told_at_once(home: Home) -> None:
    """It never had an owner who could tell of its end: its parent ends it. There is no safety poll."""
    home.paced(idle_ms=60_000)  # the parent stays in memory: there will be no slot to claim it again
    pack, gate = Pack("p"), asyncio.Event()

    @pack.effect
    async def hold() -> None:
        await gate.wait()

    @pack.workflow
    async def blocker() -> None:
        await hold()

    @pack.workflow(key="child")
    async def child() -> str:
        return "begun"

    @pack.workflow
    async def parent() -> str:
        await hook("go")
        return await child()

    async with home.holdfast(pack, concurrency=1) as hf:
        seen = heard(hf)
        run = (await hf.start(parent())).run
        await eventually(lambda: worker_of(hf).slots.has_room)
        await hf.start(blocker())  # it has the only slot: the child stays pending
        await seen.until(EffectBegan)
        await run.signal("go")
        await seen.until(RunAdmitted, workflow="p.child")
        waiting = asyncio.create_task((await hf.find(child, "child")).result(timeout=20))
        await run.cancel()
        with pytest.raises(RunCancelled):
            await waiting
        gate.set()
