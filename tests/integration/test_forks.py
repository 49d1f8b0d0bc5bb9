"""`run.fork(at=step)`: a new run that begins with what another one has done (C10)."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from holdfast import (
    NotAllowedNow,
    Pack,
    Permanent,
    Run,
    RunFailed,
    UsageError,
    continue_as_new,
    hook,
    mark,
    now,
    random,
    set_attributes,
    spawn,
    uuid4,
)
from holdfast.events import RunForked
from holdfast.kernel.journal import Forked, Joined, Performed, Started
from tests.integration.conftest import PATIENCE_SECONDS, Home, eventually, heard
from tests.integration.ledgers import ONCE, Shop, lefts, until_recorded

STEPS = ["act#1", "act#2", "act#3"]
LARGE = "x" * 400_000


class Order:
    """Three steps in a row, known by their order; with effects that have keys of their own, or the run's."""

    def __init__(self) -> None:
        self.shop = Shop()
        self.pack = self.shop.pack
        self.ledger = self.shop.ledger
        self.broken = False
        act = self.shop.act

        @self.pack.effect(retry=ONCE)
        async def note(text: str) -> str:
            if self.broken:
                raise Permanent("broken")
            return await self.ledger.act()

        @self.pack.workflow(key="order:{n}")
        async def order(n: int) -> list[str]:
            return [await act("a"), await act("b"), await act("c")]

        @self.pack.workflow(key="notes:{n}")
        async def notes(n: int) -> list[str]:
            return [await note("a"), await note("b"), await note("c")]

        self.order, self.notes, self.note = order, notes, note


async def finished(run: Run[Any]) -> Any:
    return await run.result(timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize("at", range(3))
async def test_a_fork_reuses_what_came_before_its_step_and_does_the_rest(home: Home, at: int) -> None:
    order = Order()
    async with home.holdfast(order.pack) as hf:
        source = (await hf.start(order.order(1))).run
        result = await finished(source)
        fork = await source.fork(at=STEPS[at])
        assert await finished(fork) == result
        assert fork.id != source.id
        assert heard(hf).all(RunForked, run_id=fork.id, from_run=source.id)
        journal = await fork.journal()
        assert journal[1 : at + 1] == (await source.journal())[1 : at + 1]
        [lineage] = [entry for entry in journal if isinstance(entry, Forked)]
        assert (lineage.from_run, lineage.before) == (source.id, STEPS[at])
        assert fork.attributes == {"holdfast.forked_from": source.id}
        assert [run.id async for run in hf.runs(attributes={"holdfast.forked_from": source.id})] == [fork.id]
        assert (await fork.input()) == {"n": 1}
    again = ["step:a", "step:b", "step:c"][at:]
    assert order.ledger.done == ["step:a", "step:b", "step:c", *again]


async def test_a_fork_takes_over_the_key_of_an_ended_run(home: Home) -> None:
    order = Order()
    async with home.holdfast(order.pack) as hf:
        source = (await hf.start(order.order(1))).run
        await finished(source)
        fork = await source.fork(at="act#2")
        assert (fork.key, fork.holds_key) == ("order:1", True)
        assert (await hf.find(order.order, "order:1")).id == fork.id
        source = await source.refresh()
        assert (source.key, source.holds_key, source.status) == ("order:1", False, "completed")
        assert await finished(source) == await finished(fork)
        run, created = await hf.start(order.order(1))
        assert (run.id, created) == (fork.id, False)


async def test_a_fork_may_have_a_key_of_its_own(home: Home) -> None:
    order = Order()
    async with home.holdfast(order.pack) as hf:
        source = (await hf.start(order.order(1))).run
        await finished(source)
        fork = await source.fork(at="act#2", key="order:1 again")
        await finished(fork)
        assert (fork.key, fork.holds_key) == ("order:1 again", True)
        assert (await hf.find(order.order, "order:1")).id == source.id
        with pytest.raises(NotAllowedNow, match="belongs to run"):
            await source.fork(at="act#3", key="order:1 again")
        with pytest.raises(UsageError):
            await source.fork(at="act#3", key="")


async def test_a_fork_may_be_asked_for_under_the_key_of_its_source(home: Home) -> None:
    order = Order()
    async with home.holdfast(order.pack) as hf, asyncio.timeout(PATIENCE_SECONDS):
        source = (await hf.start(order.order(1))).run
        await finished(source)
        fork = await source.fork(at="act#2", key="order:1")
        assert (await hf.find(order.order, "order:1")).id == fork.id
        await finished(fork)


async def test_effects_without_a_key_keep_that_of_the_copied_part_and_have_new_ones_after_it(home: Home) -> None:
    order = Order()
    async with home.holdfast(order.pack) as hf:
        source = (await hf.start(order.notes(1))).run
        await finished(source)
        fork = await source.fork(at="note#2")
        assert await finished(fork) == [f"{source.id}/note#1", f"{fork.id}/note#2", f"{fork.id}/note#3"]
        second = await fork.fork(at="note#3")
        assert await finished(second) == [f"{source.id}/note#1", f"{fork.id}/note#2", f"{second.id}/note#3"]
        assert second.attributes["holdfast.forked_from"] == fork.id
        lineage = [(each.from_run, each.before) for each in await second.journal() if isinstance(each, Forked)]
        assert lineage == [(source.id, "note#2"), (fork.id, "note#3")]
    assert order.ledger.most() == 1


async def test_a_live_run_is_forked_only_under_another_key(home: Home) -> None:
    order = Order()
    order.ledger.hold("step:c")
    async with home.holdfast(order.pack) as hf:
        source = (await hf.start(order.order(1))).run
        await order.ledger.until_begun("step:c")
        with pytest.raises(NotAllowedNow, match="order:1"):
            await source.fork(at="act#2")
        fork = await source.fork(at="act#2", key="another")
        order.ledger.let_go()
        assert await finished(fork) == await finished(source)
    assert sorted(order.ledger.done) == ["step:a", "step:b", "step:b", "step:c", "step:c"]


async def test_a_step_that_is_not_recorded_is_refused_and_the_recorded_ones_are_named(home: Home) -> None:
    order = Order()
    async with home.holdfast(order.pack) as hf:
        source = (await hf.start(order.order(1))).run
        await finished(source)
        with pytest.raises(UsageError, match="act#1, act#2, act#3") as refused:
            await source.fork(at="act#4")
        assert "act#4" in str(refused.value)
        with pytest.raises(UsageError):
            await source.fork(at="")
        assert (await source.refresh()).holds_key


async def test_the_fork_of_a_failed_run_goes_another_way(home: Home) -> None:
    order = Order()
    order.broken = True
    async with home.holdfast(order.pack) as hf:
        source = (await hf.start(order.notes(1))).run
        with pytest.raises(RunFailed):
            await finished(source)
        order.broken = False
        fork = await source.fork(at="note#1")
        assert len(await finished(fork)) == 3
        with pytest.raises(NotAllowedNow):  # the key has moved on
            await (await source.refresh()).retry()


async def test_a_retried_run_is_forked_without_what_the_retry_took_back(home: Home) -> None:
    order = Order()
    order.broken = True
    async with home.holdfast(order.pack) as hf:
        source = (await hf.start(order.notes(1))).run
        with pytest.raises(RunFailed):
            await finished(source)
        order.broken = False
        await (await source.refresh()).retry()
        await finished(source)
        fork = await source.fork(at="note#2")
        assert (await finished(fork))[0] == f"{source.id}/note#1"
        assert order.ledger.begun[f"{source.id}/note#1"] == 1
        assert lefts(await fork.receipt())[f"{source.id}/note#1"] == "performed"


async def test_the_fork_of_a_cancelled_run_knows_nothing_of_the_cancellation(home: Home) -> None:
    order = Order()
    order.ledger.hold("step:c")
    async with home.holdfast(order.pack) as hf:
        source = (await hf.start(order.order(1))).run
        await order.ledger.until_begun("step:c")
        assert (await source.cancel()).outcome == "unknown"
        order.ledger.let_go()
        fork = await source.fork(at="act#2")
        assert len(await finished(fork)) == 3
        assert not any("cancel" in entry.what for entry in await fork.journal())
        assert lefts(await fork.receipt()) == dict.fromkeys(["step:a", "step:b", "step:c"], "performed")
    assert order.ledger.done == ["step:a", "step:b", "step:b", "step:c"]


async def test_a_fork_that_no_worker_has_begun_is_cancelled_at_once(home: Home) -> None:
    order = Order()
    async with home.holdfast(order.pack) as hf:
        source = (await hf.start(order.order(1))).run
        await finished(source)
    async with home.holdfast(order.pack, worker=False) as client:
        fork = await (await client.get(source.id)).fork(at="act#3")
        receipt = await asyncio.wait_for(fork.cancel(deadline="1h"), PATIENCE_SECONDS)
        assert (receipt.outcome, receipt.stopped) == ("partial", False)
        assert lefts(receipt) == {"step:a": "performed", "step:b": "performed"}
    assert order.ledger.done == ["step:a", "step:b", "step:c"]


async def test_a_step_of_a_cancellation_is_no_place_for_a_fork(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(key="k")
    async def order() -> None:
        await shop.take("a")
        await hook("never")

    async with home.holdfast(shop.pack) as hf:
        source = (await hf.start(order())).run
        await until_recorded(source, "take#1")
        assert (await source.cancel()).outcome == "compensated"
        with pytest.raises(NotAllowedNow, match="cancellation"):
            await source.fork(at="undo:take#1")
        fork = await source.fork(at="take#1")
        await shop.ledger.until_begun("step:a", times=2)
        assert (await fork.cancel()).outcome == "compensated"


async def test_a_fork_does_not_build_on_what_was_undone(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(key="k")
    async def order() -> None:
        await shop.act("first")
        await shop.take("a")
        await shop.act("b")
        await hook("never")

    async with home.holdfast(shop.pack) as hf:
        source = (await hf.start(order())).run
        await until_recorded(source, "act#2")
        assert lefts(await source.cancel())["step:a"] == "undone"
        with pytest.raises(NotAllowedNow, match="take#1"):
            await source.fork(at="act#2")
        fork = await source.fork(at="take#1")
        await until_recorded(fork, "act#2")
    assert shop.ledger.done == ["step:first", "step:a", "step:b", "undo:step:a", "step:a", "step:b"]


async def test_a_blocked_run_is_forked_under_another_key_or_after_its_cancellation(home: Home) -> None:
    order = Order()

    @order.pack.workflow(key="blocked")
    async def stuck(wait: bool = True) -> str:
        done = await order.shop.act("a")
        if waits[0]:
            await asyncio.Event().wait()
        return done

    waits = [True]
    async with home.holdfast(order.pack) as hf:
        source = (await hf.start(stuck())).run
        await eventually(lambda: _status(source, "blocked"))
        with pytest.raises(NotAllowedNow):
            await source.fork(at="act#1")
        waits[0] = False
        assert await finished(await source.fork(at="act#1", key="beside")) == "step:a"
        assert (await source.cancel()).outcome == "partial"
        fork = await source.fork(at="act#1")
        assert (await finished(fork), fork.key) == ("step:a", "blocked")


async def _status(run: Run[Any], status: str) -> bool:
    return (await run.refresh()).status == status


async def test_time_and_chance_in_the_copied_part_are_those_of_the_source(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(key="k")
    async def order() -> tuple[str, float, datetime]:
        drawn = uuid4(), random(), now()
        await shop.act(str(drawn[0]))
        await shop.act(str(drawn[1]))
        await shop.act("last")
        return str(drawn[0]), drawn[1], drawn[2]

    async with home.holdfast(shop.pack) as hf:
        source = (await hf.start(order())).run
        drawn = await finished(source)
        first = await source.fork(at="act#3")
        assert await finished(first) == drawn
        later = await first.fork(at="act#3")
        assert await finished(later) == drawn
        # A fork of a fork that begins before the first one did: what is copied is still that of the first run.
        earlier = await later.fork(at="act#2")
        assert await finished(earlier) == drawn
    assert shop.ledger.done.count("step:last") == 4


async def test_large_values_are_the_fork_s_own(home: Home) -> None:
    """They outlive the run they came from."""
    pack, calls = Pack("shop"), list[str]()

    @pack.effect
    async def fetch(text: str) -> str:
        calls.append("fetch")
        return text

    @pack.effect
    async def measure(text: str) -> int:
        calls.append("measure")
        return len(text)

    @pack.workflow(key="k", retention="100ms")
    async def order(text: str) -> int:
        return await measure(await fetch(text))

    async with home.holdfast(pack) as hf:
        source = (await hf.start(order(LARGE))).run
        await finished(source)
        fork = await source.fork(at="measure#1", key="another")
        assert await finished(fork) == len(LARGE)
        assert await fork.input() == {"text": LARGE}
    assert calls == ["fetch", "measure", "measure"]


async def test_children_in_the_copied_part_are_joined_and_not_started_again(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow
    async def child(name: str) -> str:
        return await shop.act(name)

    @shop.pack.workflow(key="k")
    async def order() -> list[str]:
        spawned = await spawn(child("spawned"))
        results = await asyncio.gather(child("beside"), shop.act("a"))
        await shop.act("b")
        return [*results, await spawned.result()]

    async with home.holdfast(shop.pack) as hf:
        source = (await hf.start(order())).run
        result = await finished(source)
        fork = await source.fork(at="act#1")
        assert await finished(fork) == result
        joined = {entry.run_id for entry in await source.journal() if isinstance(entry, Joined)}
        assert {entry.run_id for entry in await fork.journal() if isinstance(entry, Joined)} == joined
        assert len([run async for run in hf.runs(child)]) == 2
    assert shop.ledger.done.count("step:beside") == 1
    assert shop.ledger.done.count("step:spawned") == 1
    assert shop.ledger.done.count("step:b") == 2


async def test_cancelling_a_fork_leaves_the_children_of_its_source_alone(home: Home) -> None:
    shop = Shop()
    shop.ledger.hold("step:child")

    @shop.pack.workflow
    async def child() -> str:
        return await shop.act("child")

    @shop.pack.workflow(key="k")
    async def order() -> str:
        spawned = await spawn(child())
        await shop.act("a")
        return await spawned.result()

    async with home.holdfast(shop.pack) as hf:
        source = (await hf.start(order())).run
        await shop.ledger.until_begun("step:child")
        await until_recorded(source, "act#1")
        fork = await source.fork(at="act#1", key="another")
        await shop.ledger.until_begun("step:a", times=2)
        receipt = await fork.cancel()
        assert receipt.children == ()
        shop.ledger.let_go()
        assert await finished(source) == "step:child"


@pytest.mark.parametrize("key", [None, "another"], ids=["in its place", "beside it"])
async def test_a_fork_undoes_what_it_has_taken_over_and_not_what_is_its_source_s(home: Home, key: str | None) -> None:
    shop = Shop()

    @shop.pack.workflow(key="k")
    async def order() -> None:
        await shop.take("a")
        await shop.take("b")
        await hook("told")

    async with home.holdfast(shop.pack) as hf:
        source = (await hf.start(order())).run
        await until_recorded(source, "take#2")
        await source.signal("told")
        await finished(source)
        fork = await source.fork(at="take#2", key=key)
        await until_recorded(fork, "take#2")
        receipt = await fork.cancel()
        assert receipt.outcome == "compensated"
        assert lefts(receipt) == {f"step:{name}": "undone" for name in ("b" if key else "ab")}
        assert (await source.receipt()).outcome == "completed_first"
    undone = ["undo:step:b"] if key else ["undo:step:b", "undo:step:a"]
    assert shop.ledger.done == ["step:a", "step:b", "step:b", *undone]


async def test_attributes_and_markers_of_the_copied_part_are_the_fork_s_too(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(key="k", markers=("new", "paid", "shipped"), version="7")
    async def order() -> None:
        await shop.act("a")
        await mark("paid")
        await set_attributes(stage="paid")
        await shop.act("b")
        await mark("shipped")
        await set_attributes(stage="shipped", parts=2)

    async with home.holdfast(shop.pack) as hf:
        source = (await hf.start(order(), attributes={"customer": "c1"})).run
        await finished(source)
        shop.ledger.hold("step:b")
        fork = await source.fork(at="act#2")
        assert (fork.version, fork.queue, fork.workflow) == ("7", "default", "shop.order")
        assert fork.attributes == {"customer": "c1", "stage": "paid", "holdfast.forked_from": source.id}
        assert [marker.name for marker in fork.markers] == ["paid"]
        assert fork.markers == (await fork.refresh()).markers == (await source.refresh()).markers[:1]
        shop.ledger.let_go()
        await finished(fork)
        fork = await fork.refresh()
        assert fork.attributes == {
            "customer": "c1",
            "stage": "shipped",
            "parts": 2,
            "holdfast.forked_from": source.id,
        }
        assert [marker.name for marker in fork.markers] == ["paid", "shipped"]


async def test_signals_in_the_copied_part_are_there_and_later_ones_are_not(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(key="k")
    async def order() -> list[Any]:
        inbox = hook("items")
        first = await inbox
        await shop.act("a")
        return [first, await inbox]

    async with home.holdfast(shop.pack) as hf:
        source = (await hf.start(order())).run
        await source.signal("items", 1)
        await until_recorded(source, "act#1")
        await source.signal("items", 2)
        assert await finished(source) == [1, 2]
        fork = await source.fork(at="act#1")
        await fork.signal("items", 3)
        assert await finished(fork) == [1, 3]


async def test_a_fork_holds_the_token_of_a_hook_that_was_opened_before(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(key="k")
    async def order() -> Any:
        approval = hook("approval", token="t-1")
        await approval.conflict()
        await shop.act("a")
        return await approval

    async with home.holdfast(shop.pack) as hf:
        source = (await hf.start(order())).run
        await until_recorded(source, "act#1")
        await source.cancel()
        fork = await source.fork(at="act#1")
        await shop.ledger.until_begun("step:a", times=2)
        assert (await hf.resume_hook("t-1", "yes")).id == fork.id
        assert await finished(fork) == "yes"


async def test_a_run_that_has_continued_as_new_cannot_be_forked(home: Home) -> None:
    shop = Shop()

    @shop.pack.workflow(key="k")
    async def order(n: int = 0) -> str:
        done = await shop.act(f"{n}")
        if n == 0:
            continue_as_new(order(1))
        return done

    async with home.holdfast(shop.pack) as hf:
        source = (await hf.start(order())).run
        await finished(source)
        with pytest.raises(NotAllowedNow, match="continued as new"):
            await source.fork(at="g1/act#1")


async def test_forks_of_one_run_at_the_same_time_leave_one_owner_of_the_key(home: Home) -> None:
    order = Order()
    async with home.holdfast(order.pack) as hf, asyncio.timeout(PATIENCE_SECONDS):
        source = (await hf.start(order.order(1))).run
        await finished(source)
        answers = await asyncio.gather(*(source.fork(at="act#3") for _ in range(4)), return_exceptions=True)
        forks = [each for each in answers if isinstance(each, Run)]
        assert all(isinstance(each, NotAllowedNow) for each in answers if not isinstance(each, Run)), answers
        for fork in forks:
            await finished(fork)
        owners = [fork.id for fork in forks if (await fork.refresh()).holds_key]
        assert owners == [(await hf.find(order.order, "order:1")).id]


async def test_a_fork_begins_with_the_input_of_its_source(home: Home) -> None:
    order = Order()
    async with home.holdfast(order.pack) as hf:
        source = (await hf.start(order.order(5), priority=3)).run
        await finished(source)
        fork = await source.fork(at="act#1")
        first = (await fork.journal())[0]
        assert isinstance(first, Started)
        assert (await fork.input(), fork.priority) == ({"n": 5}, 3)
        await finished(fork)
        assert sum(isinstance(entry, Performed) for entry in await fork.journal()) == 3
