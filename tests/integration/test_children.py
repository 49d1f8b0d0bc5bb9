"""Children: awaited or spawned, by key or not; their outcome is the parent's to see."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from holdfast import ChildRun, InputMismatch, Pack, Retry, RunCancelled, RunFailed, UnknownRun, current, sleep, spawn
from holdfast.events import EffectBegan, RunEnded, RunLetGo
from holdfast.kernel.journal import Joined, Spawned
from tests.integration.conftest import Home, eventually, heard

LARGE = "x" * 400_000


class OutOfStock(Exception):
    """A domain error."""


class Store:
    """A parent and a child that may succeed, fail or be slow."""

    def __init__(self) -> None:
        self.pack = Pack("shop")
        self.ledger: Counter[str] = Counter()
        self.gate = asyncio.Event()
        self.gate.set()

        @self.pack.effect(retry=Retry(attempts=1))
        async def act(name: str) -> str:
            self.ledger[name] += 1
            await self.gate.wait()
            if name.startswith("missing"):
                raise OutOfStock(name)
            return name

        @self.pack.workflow(key="pick:{item}")
        async def pick(item: str, size: int = 1) -> str:
            return await act(item) * size

        @self.pack.workflow
        async def pack_up(item: str) -> str:
            return "packed " + await act(item)

        self.act, self.pick, self.pack_up = act, pick, pack_up


async def test_an_awaited_child_is_a_run_of_its_own(home: Home) -> None:
    shop = Store()

    @shop.pack.workflow
    async def order(item: str) -> list[str]:
        return [await shop.pick(item), await shop.pack_up(item)]

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order("book"), priority=3)).run
        assert await run.result(timeout=30) == ["book", "packed book"]
        spawned = [entry for entry in await run.journal() if isinstance(entry, Spawned)]
        joined = [entry for entry in await run.journal() if isinstance(entry, Joined)]
        assert [entry.step for entry in spawned] == [entry.step for entry in joined] == ["pick#1", "pack_up#1"]
        child = await hf.find(shop.pick, "pick:book")
        assert (child.id, child.status, child.priority) == (spawned[0].run_id, "completed", 3)
        assert await child.result(timeout=0) == "book"


async def test_children_run_beside_each_other(home: Home) -> None:
    shop = Store()
    shop.gate.clear()

    @shop.pack.workflow
    async def order() -> list[str]:
        return await asyncio.gather(*(shop.pick(f"item {n}") for n in range(5)))

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        await eventually(lambda: len(shop.ledger) == 5)
        shop.gate.set()
        assert await run.result(timeout=30) == [f"item {n}" for n in range(5)]


async def test_a_spawned_child_goes_on_without_its_parent(home: Home) -> None:
    shop = Store()
    shop.gate.clear()

    @shop.pack.workflow
    async def order(item: str) -> tuple[str, str, str]:
        child = await spawn(shop.pick(item))
        assert isinstance(child, ChildRun)
        return child.id, child.workflow, child.key or ""

    async with home.holdfast(shop.pack) as hf:
        child_id, workflow, key = await (await hf.start(order("book"))).run.result(timeout=30)
        assert (workflow, key) == ("shop.pick", "pick:book")
        child = await hf.get(child_id)
        assert child.status in {"pending", "running"}
        shop.gate.set()
        assert await child.result(timeout=30) == "book"


async def test_a_spawned_child_may_be_waited_for_later(home: Home) -> None:
    shop = Store()

    @shop.pack.workflow
    async def order() -> list[str]:
        children = [await spawn(shop.pick(f"item-{n}"), key=f"mine {n}" if n else None) for n in range(3)]
        await shop.act("between")
        results = [await child.result() for child in reversed(children)]
        return [*results, await children[0].result(), *(child.key or "" for child in children)]

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order())).run
        assert await run.result(timeout=30) == [
            "item-2",
            "item-1",
            "item-0",
            "item-0",
            "pick:item-0",
            "mine 1",
            "mine 2",
        ]


async def test_a_child_whose_key_is_taken_is_the_run_that_holds_it(home: Home) -> None:
    """Whoever started it, it is done once; both get its result."""
    shop = Store()
    shop.gate.clear()

    @shop.pack.workflow
    async def order(item: str) -> list[str]:
        child = await spawn(shop.pick(item))
        return [await shop.pick(item), child.id]

    async with home.holdfast(shop.pack) as hf:
        seen = heard(hf)
        first = (await hf.start(shop.pick("book"))).run
        await seen.until(EffectBegan)
        orders = [(await hf.start(order("book"))).run for _ in range(3)]
        shop.gate.set()
        for run in orders:
            assert await run.result(timeout=30) == ["book", first.id]
        late = (await hf.start(order("book"))).run  # the key's run has ended long ago
        assert await late.result(timeout=30) == ["book", first.id]
    assert shop.ledger == {"book": 1}


async def test_the_exception_of_a_child_is_raised_as_its_own_class(home: Home) -> None:
    shop = Store()

    @shop.pack.workflow
    async def order(item: str) -> str:
        child = await spawn(shop.pack_up(item))
        try:
            await shop.pick(item)
        except OutOfStock as error:
            try:
                await child.result()
            except OutOfStock as other:
                return f"{error} / {other}"
        return "unreachable"

    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(order("missing book"))).run
        assert await run.result(timeout=30) == "missing book / missing book"
        uncaught = (await hf.start(shop.pick("missing pen"))).run
        with pytest.raises(RunFailed) as caught:
            await uncaught.result(timeout=30)
        assert isinstance(caught.value.__cause__, OutOfStock)


async def test_an_uncaught_failure_of_a_child_fails_the_parent_with_it(home: Home) -> None:
    shop = Store()

    @shop.pack.workflow
    async def order(item: str) -> str:
        return await shop.pick(item)

    async with home.holdfast(shop.pack) as hf:
        with pytest.raises(RunFailed) as caught:
            await (await hf.start(order("missing"))).run.result(timeout=30)
        assert isinstance(caught.value.__cause__, OutOfStock)
        assert (await hf.find(shop.pick, "pick:missing")).status == "failed"


async def test_a_child_that_cancels_itself_is_a_cancellation_for_its_parent(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow
    async def child() -> None:
        raise asyncio.CancelledError

    @pack.workflow
    async def parent() -> str:
        try:
            await child()
        except RunCancelled:
            return "it was cancelled"
        return "unreachable"

    async with home.holdfast(pack) as hf:
        assert await (await hf.start(parent())).run.result(timeout=30) == "it was cancelled"


async def test_a_child_whose_key_holds_another_input_is_refused_where_it_is_asked_for(home: Home) -> None:
    """K11, inside."""
    shop = Store()

    @shop.pack.workflow
    async def order(item: str) -> list[str]:
        told = []
        try:
            await shop.pick(item, size=2)
        except InputMismatch as error:
            told.append(error.code)
        try:
            await spawn(shop.pick(item, size=3))
        except InputMismatch as error:
            told.append(error.code)
        return told

    async with home.holdfast(shop.pack) as hf:
        await (await hf.start(shop.pick("book"))).run.result(timeout=30)
        assert await (await hf.start(order("book"))).run.result(timeout=30) == ["input_mismatch"] * 2
    assert shop.ledger == {"book": 1}


async def test_a_child_that_is_not_there_any_more_is_unknown(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow(retention=0)
    async def child() -> None: ...

    @pack.effect
    async def pause() -> None:
        await gate.wait()

    gate = asyncio.Event()

    @pack.workflow
    async def parent() -> str:
        spawned = await spawn(child())
        await pause()
        try:
            await spawned.result()
        except UnknownRun:
            return "gone"
        return "unreachable"

    async with home.holdfast(pack) as hf:
        seen = heard(hf)
        run = (await hf.start(parent())).run
        ended = await seen.until(RunEnded, workflow="p.child")
        store = hf._replica._ports.store
        await eventually(lambda: _pruned(store, ended.run_id))
        gate.set()
        assert await run.result(timeout=30) == "gone"


async def _pruned(store: Any, run_id: str) -> bool:
    await store.prune(10)
    return not await store.runs([run_id])


async def test_a_large_result_of_a_child_reaches_its_parent(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow(retention=0)
    async def child() -> str:
        return LARGE

    @pack.workflow
    async def parent() -> int:
        results = await asyncio.gather(child(), child())
        await sleep(0.05)
        return sum(len(result) for result in results)

    async with home.holdfast(pack) as hf:
        run = (await hf.start(parent())).run
        await eventually(lambda: _length_is(run, 5))
    async with home.holdfast(pack) as hf:  # the replay needs them again
        assert await (await hf.get(run.id)).result(timeout=30) == 2 * len(LARGE)


async def _length_is(run: Any, length: int) -> bool:
    return len(await run.journal()) >= length


async def test_a_parent_that_was_let_go_is_woken_by_the_end_of_its_child(home: Home) -> None:
    shop = Store()
    shop.gate.clear()

    @shop.pack.workflow
    async def order(item: str) -> str:
        return await shop.pick(item)

    async with home.holdfast(shop.pack) as hf:
        seen = heard(hf)
        run = (await hf.start(order("book"))).run
        gone = await seen.until(RunLetGo, run_id=run.id)
        assert gone.wake_at_ms is None
        assert (await run.refresh()).status == "waiting"
        shop.gate.set()
        assert await run.result(timeout=30) == "book"


async def test_a_child_that_ends_while_nobody_works_wakes_its_parent_in_the_next_process(home: Home) -> None:
    shop = Store()
    shop.gate.clear()

    @shop.pack.workflow
    async def order(item: str) -> str:
        return await shop.pick(item)

    async with home.holdfast(shop.pack) as hf:
        seen = heard(hf)
        run = (await hf.start(order("book"))).run
        await seen.until(RunLetGo, run_id=run.id)
        asyncio.get_running_loop().call_soon(shop.gate.set)
    async with home.holdfast(shop.pack) as hf:
        assert await (await hf.get(run.id)).result(timeout=30) == "book"
    assert shop.ledger["book"] == 1


async def test_children_of_children_pass_their_results_up(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow
    async def nest(depth: int) -> list[str]:
        return [current().run_id, *(await nest(depth - 1) if depth else [])]

    async with home.holdfast(pack, concurrency=1) as hf:
        run = (await hf.start(nest(5))).run
        ids = await run.result(timeout=30)
        assert ids[0] == run.id
        assert len(set(ids)) == 6


async def test_a_hundred_children_are_started_and_joined_once_each(home: Home) -> None:
    shop = Store()

    @shop.pack.workflow
    async def order() -> int:
        return len(await asyncio.gather(*(shop.pick(f"item {n}") for n in range(100))))

    async with home.holdfast(shop.pack, concurrency=10) as hf:
        run = (await hf.start(order())).run
        assert await run.result(timeout=60) == 100
        joined = Counter(entry.run_id for entry in await run.journal() if isinstance(entry, Joined))
        assert len(joined) == 100
    assert set(shop.ledger.values()) == {1}


async def test_a_parent_interrupted_between_children_starts_none_of_them_twice(home: Home) -> None:
    shop = Store()

    @shop.pack.workflow
    async def order() -> list[str]:
        return [await shop.pack_up(f"item {n}") for n in range(12)]

    run_id = ""
    for _ in range(50):
        async with home.holdfast(shop.pack) as hf:
            seen = heard(hf)
            run = await hf.get(run_id) if run_id else (await hf.start(order())).run
            run_id = run.id
            if run.status == "completed":
                break
            await seen.until(RunEnded, count=3) if len(shop.ledger) < 9 else await run.result(timeout=30)
    async with home.holdfast(shop.pack) as hf:
        assert await (await hf.get(run_id)).result(timeout=30) == [f"packed item {n}" for n in range(12)]
    assert shop.ledger == {f"item {n}": 1 for n in range(12)}
