"""Flow rules as authors declare them and callers meet them: throttle, fair, debounce, batch."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast import Batch, Debounce, Pack, Rate, RunFailed, UsageError, hook
from holdfast.events import RunAdmitted, RunDebounced, RunLetGo, RunThrottled
from tests.integration.conftest import Home, heard


class Chunk(msgspec.Struct):
    tenant: str
    text: str


# -- throttle


async def test_a_throttled_run_is_late_and_says_so(home: Home) -> None:
    pack = Pack("shop")

    @pack.workflow(throttle=Rate(1, per="1h", by="{tenant}"))
    async def sync(tenant: str) -> str:
        return tenant

    async with home.holdfast(pack) as hf:
        first = (await hf.start(sync("a"))).run
        assert await first.result(timeout=5) == "a"
        second = (await hf.start(sync("a"))).run
        [wait] = second.waiting_on
        assert wait.kind == "throttle"
        assert wait.until is not None
        assert (wait.until - second.created_at).total_seconds() == pytest.approx(3600, abs=60)
        assert "its throttle, which lets it go at" in str(await second.explain())
        assert await (await hf.start(sync("b"))).run.result(timeout=5) == "b"
        await heard(hf).until(RunThrottled)
        await second.cancel()


async def test_a_throttled_child_is_late_too(home: Home) -> None:
    pack = Pack("shop")

    @pack.workflow(throttle=Rate(20, per="1s"))
    async def part(n: int) -> int:
        return n

    @pack.workflow
    async def whole() -> list[int]:
        return await asyncio.gather(*(part(n) for n in range(4)))

    async with home.holdfast(pack) as hf:
        run = (await hf.start(whole())).run
        assert await run.result(timeout=5) == [0, 1, 2, 3]
        starts = sorted([each.created_at for each in (await hf.runs(part).page()).runs])
        assert len(starts) == 4
        assert len(heard(hf).all(RunThrottled)) == 3


async def test_a_run_counts_for_as_many_as_its_argument_says(home: Home) -> None:
    pack = Pack("shop")

    @pack.workflow(throttle=Rate(10, per="1h", cost="pages"))
    async def sync(pages: int) -> int:
        return pages

    async with home.holdfast(pack) as hf:
        await (await hf.start(sync(5))).run.result(timeout=5)
        second = (await hf.start(sync(1))).run
        [wait] = second.waiting_on
        assert wait.until is not None
        assert (wait.until - second.created_at).total_seconds() == pytest.approx(1800, abs=60)
        for cost in (0, -1, 10**7):
            with pytest.raises(UsageError, match="takes of its rate"):
                await hf.start(sync(cost))


# -- fair


async def test_tenants_take_turns(home: Home) -> None:
    pack = Pack("shop")
    order: list[str] = []
    gate = asyncio.Event()

    @pack.effect
    async def note(name: str) -> None:
        order.append(name)

    @pack.effect
    async def wait() -> None:
        await gate.wait()

    @pack.workflow
    async def blocker() -> None:
        await wait()

    @pack.workflow(fair="{tenant}")
    async def sync(tenant: str, n: int) -> None:
        await note(f"{tenant}{n}")

    async with home.holdfast(pack, concurrency=1) as hf:
        await hf.start(blocker())
        runs = [(await hf.start(sync("l", n))).run for n in range(4)]
        runs += [(await hf.start(sync("s", n))).run for n in range(2)]
        waits = [str(wait) for wait in (await runs[3].explain()).waiting_on]
        gate.set()
        for run in runs:
            await run.result(timeout=5)
    assert order == ["l0", "s0", "l1", "s1", "l2", "l3"]
    assert any("5 go before it" in each for each in waits)


# -- debounce


async def test_the_newest_arguments_win_while_the_run_has_not_begun(home: Home) -> None:
    pack = Pack("shop")

    @pack.workflow(key="reindex:{doc}", debounce=Debounce("300ms", at_most="10s"))
    async def reindex(doc: str, version: int) -> int:
        return version

    async with home.holdfast(pack) as hf:
        started = [await hf.start(reindex("d", n)) for n in range(3)]
        assert [each.created for each in started] == [True, False, False]
        assert len({each.run.id for each in started}) == 1
        last = started[-1].run
        assert [wait.kind for wait in last.waiting_on] == ["debounce"]
        assert await last.input() == {"doc": "d", "version": 2}
        assert await last.result(timeout=5) == 2
        assert len(heard(hf).all(RunDebounced)) == 2
        assert len(await last.journal()) == 2  # it was admitted, and completed
        again = await hf.start(reindex("d", 7))
        assert again.created
        assert again.run.id != last.id
        assert await again.run.result(timeout=5) == 7


async def test_a_start_while_it_runs_is_the_next_one_and_waits_for_it(home: Home) -> None:
    pack = Pack("shop")

    @pack.workflow(key="reindex:{doc}", debounce=Debounce("50ms"))
    async def reindex(doc: str, version: int) -> int:
        await hook("go")
        return version

    async with home.holdfast(pack) as hf:
        first = (await hf.start(reindex("d", 1))).run
        await heard(hf).until(RunLetGo)
        second = await hf.start(reindex("d", 2))
        assert second.created
        third = await hf.start(reindex("d", 3))
        assert (third.created, third.run.id) == (False, second.run.id)
        assert (await second.run.refresh()).status == "pending"
        await first.signal("go")
        assert await first.result(timeout=5) == 1
        await second.run.signal("go")
        assert await second.run.result(timeout=5) == 3


# -- batch


async def test_items_go_together_and_each_has_its_own_result(home: Home) -> None:
    pack = Pack("shop")
    batches: list[list[str]] = []

    @pack.workflow(batch=Batch(3, wait="30s", by="{tenant}"))
    async def embed(items: list[Chunk]) -> list[str]:
        batches.append([item.text for item in items])
        return [item.text.upper() for item in items]

    async with home.holdfast(pack) as hf:
        texts = ["a", "b", "c", "d", "e", "f"]
        started = [await hf.start(embed.item(Chunk("t", text))) for text in texts]
        other = await hf.start(embed.item(Chunk("u", "x")))
        results = [await each.run.result(timeout=5) for each in started]
        [wait] = (await other.run.refresh()).waiting_on
        assert wait.kind == "batch"
        assert str(wait).startswith("its batch, which has 1 items")
        assert len({each.run.id for each in started}) == 2
        assert all(each.created for each in started)
    assert results == ["A", "B", "C", "D", "E", "F"]
    assert sorted(batches) == [["a", "b", "c"], ["d", "e", "f"]]  # they may go at the same time


async def test_a_batch_goes_with_what_has_come_when_it_has_waited(home: Home) -> None:
    pack = Pack("shop")

    @pack.workflow(batch=Batch(100, wait="100ms"))
    async def double(items: list[int]) -> list[int]:
        return [2 * item for item in items]

    async with home.holdfast(pack) as hf:
        started = await asyncio.gather(*(hf.start(double.item(n)) for n in range(20)))
        assert await asyncio.gather(*(each.run.result(timeout=5) for each in started)) == [2 * n for n in range(20)]


async def test_an_item_with_a_key_is_in_a_batch_once(home: Home) -> None:
    pack = Pack("shop")
    seen: list[int] = []

    @pack.workflow(batch=Batch(2, wait="100ms"))
    async def double(items: list[int]) -> list[int]:
        seen.extend(items)
        return [2 * item for item in items]

    async with home.holdfast(pack) as hf:
        first = await hf.start(double.item(1), key="one")
        again = await hf.start(double.item(1), key="one")
        assert (first.created, again.created) == (True, False)
        assert await first.run.result(timeout=5) == 2
        late = await hf.start(double.item(1), key="one")
        assert (late.created, late.run.id) == (False, first.run.id)
        assert await late.run.result(timeout=5) == 2
    assert seen == [1]


async def test_a_failed_batch_fails_its_items_and_can_be_retried(home: Home) -> None:
    pack = Pack("shop")
    tries = 0

    @pack.workflow(batch=Batch(2, wait="100ms"))
    async def double(items: list[int]) -> list[int]:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ValueError("not today")
        return [2 * item for item in items]

    async with home.holdfast(pack) as hf:
        first, second = [await hf.start(double.item(n)) for n in (1, 2)]
        for each in (first, second):
            with pytest.raises(RunFailed, match="not today"):
                await each.run.result(timeout=5)
        await hf.start(double.item(3))  # the next batch has the key
        await first.run.retry()
        assert await (await first.run.refresh()).result(timeout=5) == 2
        assert await (await first.run.wait(timeout=5)).result() == 2
        assert await second.run.result(timeout=5) == 4


async def test_a_batch_that_returns_too_few_fails(home: Home) -> None:
    pack = Pack("shop")

    @pack.workflow(batch=Batch(2, wait="50ms"))
    async def double(items: list[int]) -> list[int]:
        return items[:1]

    async with home.holdfast(pack) as hf:
        first, _ = [await hf.start(double.item(n)) for n in (1, 2)]
        with pytest.raises(RunFailed, match="returned 1 results for 2 items"):
            await first.run.result(timeout=5)


async def test_a_list_of_items_can_be_started_as_it_is(home: Home) -> None:
    pack = Pack("shop")

    @pack.workflow(batch=Batch(2, wait="50ms"))
    async def double(items: list[int]) -> list[int]:
        return [2 * item for item in items]

    async with home.holdfast(pack) as hf:
        assert await (await hf.start(double([1, 2, 3]))).run.result(timeout=5) == [2, 4, 6]


async def test_an_item_that_is_too_large_or_unfit_is_refused(home: Home) -> None:
    pack = Pack("shop")

    @pack.workflow(batch=Batch(2, wait="50ms"))
    async def measure(items: list[str]) -> list[int]:
        return [len(item) for item in items]

    async with home.holdfast(pack) as hf:
        with pytest.raises(UsageError, match="a batch has room for"):
            await hf.start(measure.item("x" * (1 << 20)))
        with pytest.raises(UsageError, match="does not fit its type"):
            await hf.start(measure.item(7))
        with pytest.raises(UsageError, match="options that belong to runs"):
            await hf.start(measure.item("x"), delay="1s")
        large = [await hf.start(measure.item("x" * (1 << 19))) for _ in range(3)]
        assert len({each.run.id for each in large}) == 3
        assert [await each.run.result(timeout=5) for each in large] == [1 << 19] * 3
        assert len(heard(hf).all(RunAdmitted)) == 3
