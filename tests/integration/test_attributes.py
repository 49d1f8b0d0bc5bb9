"""Attributes, and finding runs by them and by what else is known (K16)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from holdfast import Holdfast, Pack, Range, Run, RunFailed, UsageError, hook, set_attributes, spawn
from holdfast.events import EffectBegan, RunEnded, RunLetGo
from holdfast.kernel.journal import Tagged
from tests.builders import FakeClock
from tests.integration.conftest import Home, heard, worker_of

DUE = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


class Orders:
    """Orders that show where they are."""

    def __init__(self) -> None:
        self.pack = Pack("shop")
        self.gate = asyncio.Event()
        self.gate.set()

        @self.pack.effect
        async def pay() -> None:
            await self.gate.wait()

        @self.pack.workflow(key="order:{n}")
        async def order(n: int, customer: str = "") -> int:
            await set_attributes({"stage": "paying", "n": n}, customer=customer or None)
            await pay()
            await set_attributes(stage="paid", draft=None)
            return n

        @self.pack.workflow(key="plain:{n}")
        async def plain(n: int) -> int:
            return n

        self.order, self.plain = order, plain


@pytest.fixture
def orders() -> Orders:
    return Orders()


async def _found(hf: Holdfast, **search: Any) -> list[str]:
    return [str(run.key) async for run in hf.runs(**search, newest_first=False)]


# -- setting


async def test_attributes_are_seeded_set_and_removed(home: Home, orders: Orders) -> None:
    orders.gate.clear()
    async with home.holdfast(orders.pack) as hf:
        run = (await hf.start(orders.order(1, "ann"), attributes={"draft": True, "region": "eu"})).run
        assert run.attributes == {"draft": True, "region": "eu"}
        await heard(hf).until(EffectBegan)
        between = await run.refresh()
        assert between.attributes == {"draft": True, "region": "eu", "stage": "paying", "n": 1, "customer": "ann"}
        orders.gate.set()
        await run.result(timeout=30)
        assert (await run.refresh()).attributes == {"region": "eu", "stage": "paid", "n": 1, "customer": "ann"}
        assert run.attributes == {"draft": True, "region": "eu"}  # a snapshot does not change


async def test_values_come_back_as_what_they_were(home: Home, orders: Orders) -> None:
    values = {
        "text": "grün ✓",
        "empty": "",
        "long": "x" * 255,
        "int": -(1 << 63),
        "most": (1 << 63) - 1,
        "float": 0.1,
        "whole": 2.0,
        "yes": True,
        "no": False,
        "due": DUE,
        "a.dotted-name_1": 1,
    }
    async with home.holdfast(orders.pack) as hf, home.holdfast(worker=False) as viewer:
        run = (await hf.start(orders.plain(1), attributes=values)).run
        for seen in (run, await run.refresh(), await viewer.get(run.id)):
            assert seen.attributes == values
            assert {name: type(value) for name, value in seen.attributes.items()} == {
                name: type(value) for name, value in values.items()
            }
        for name, value in values.items():
            assert await _found(viewer, attributes={name: value}) == ["plain:1"]


async def test_a_duplicate_start_changes_nothing_about_them(home: Home, orders: Orders) -> None:
    async with home.holdfast(orders.pack) as hf:
        await hf.start(orders.plain(1), attributes={"a": 1})
        again = await hf.start(orders.plain(1), attributes={"a": 2, "b": 3})
        assert not again.created
        assert again.run.attributes == {"a": 1}
        assert await _found(hf, attributes={"b": 3}) == []


async def test_a_replay_sets_nothing_again(home: Home, orders: Orders) -> None:
    orders.gate.clear()
    async with home.holdfast(orders.pack) as hf:
        run = (await hf.start(orders.order(1), attributes={"draft": "d"})).run
        await heard(hf).until(EffectBegan)
        worker_of(hf).drop_all()  # as if the lease were lost
    orders.gate.set()
    async with home.holdfast(orders.pack) as hf:
        run = await hf.get(run.id)
        await run.result(timeout=30)
        assert (await run.refresh()).attributes == {"stage": "paid", "n": 1}
        assert sum(isinstance(entry, Tagged) for entry in await run.journal()) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"": 1},
        {"1st": 1},
        {"a b": 1},
        {"x" * 65: 1},
        {"holdfast.parent": "me"},
        {"a": float("nan")},
        {"a": float("inf")},
        {"a": 1 << 63},
        {"a": "x" * 256},
        {"a": "line\nbreak"},
        {"a": datetime(2030, 1, 1)},
        {"a": b"bytes"},
        {"a": [1]},
        {f"n{n}": n for n in range(33)},
        "a",
    ],
    ids=str,
)
async def test_what_cannot_be_an_attribute_is_said_at_once_and_admits_nothing(
    home: Home, orders: Orders, wrong: Any
) -> None:
    @orders.pack.workflow
    async def sets() -> str:
        with pytest.raises(UsageError):
            await set_attributes(wrong)
        await set_attributes(fine=1)
        return "went on"

    async with home.holdfast(orders.pack) as hf:
        with pytest.raises(UsageError):
            await hf.start(orders.plain(1), attributes=wrong)
        assert await _found(hf) == []
        run = (await hf.start(sets())).run
        assert await run.result(timeout=30) == "went on"
        assert (await run.refresh()).attributes == {"fine": 1}


async def test_a_run_has_at_most_32_of_them_whoever_sets_them(home: Home, orders: Orders) -> None:
    @orders.pack.workflow
    async def sets() -> None:
        await set_attributes({f"mine{n}": n for n in range(20)})

    async with home.holdfast(orders.pack) as hf:
        seeds = {f"yours{n}": n for n in range(12)}
        run = (await hf.start(sets(), attributes=seeds)).run
        await run.result(timeout=30)
        assert len((await run.refresh()).attributes) == 32
        with pytest.raises(RunFailed) as caught:
            await (await hf.start(sets(), attributes=seeds | {"one": "more"})).run.result(timeout=30)
        assert isinstance(caught.value.__cause__, UsageError)


async def test_children_can_be_found_by_their_parent_and_by_their_root(home: Home, orders: Orders) -> None:
    pack = Pack("p")

    @pack.workflow
    async def grandchild() -> str:
        return "leaf"

    @pack.workflow
    async def child() -> str:
        return await grandchild()

    @pack.workflow
    async def parent() -> list[str]:
        spawned = await spawn(child())
        return [await child(), await spawned.result()]

    async with home.holdfast(pack) as hf:
        root = (await hf.start(parent())).run
        await root.result(timeout=30)
        children = [run async for run in hf.runs(attributes={"holdfast.parent": root.id})]
        assert [run.workflow for run in children] == ["p.child", "p.child"]
        below = [run async for run in hf.runs(attributes={"holdfast.root": root.id})]
        assert sorted(run.workflow for run in below) == ["p.child", "p.child", "p.grandchild", "p.grandchild"]
        leaves = [run for run in below if run.workflow == "p.grandchild"]
        assert {run.attributes["holdfast.parent"] for run in leaves} == {run.id for run in children}
        assert root.attributes == {}


# -- finding


async def test_a_search_sees_what_its_caller_has_just_written(home: Home, orders: Orders) -> None:
    """K16: whichever process asks."""
    async with home.holdfast(orders.pack) as hf, home.holdfast(worker=False) as viewer:
        for n in range(25):
            run = (await hf.start(orders.order(n, "ann"), attributes={"draft": n})).run
            assert await _found(hf, attributes={"draft": n}) in ([run.key], [])  # it may have gone on already
            await run.result(timeout=30)
            for client in (hf, viewer):
                assert await _found(client, attributes={"stage": "paid", "n": n}) == [run.key]
                assert await _found(client, attributes={"draft": n}) == []
        assert len(await _found(viewer, attributes={"customer": "ann"})) == 25


async def test_a_start_is_found_before_anybody_has_executed_it(home: Home, orders: Orders) -> None:
    """K16."""
    async with home.holdfast(orders.pack, worker=False) as client, home.holdfast(worker=False) as viewer:
        for n in range(10):
            await client.start(orders.plain(n), attributes={"n": n, "group": n % 2 == 0})
            for each in (client, viewer):
                assert await _found(each, attributes={"n": n}) == [f"plain:{n}"]
        assert sorted(await _found(viewer, attributes={"group": True})) == [f"plain:{n}" for n in range(0, 10, 2)]


async def test_conditions_are_strict_about_types_and_all_must_hold(home: Home, orders: Orders) -> None:
    rows: list[dict[str, Any]] = [
        {"v": 1, "w": "a"},
        {"v": 1.0, "w": "b"},
        {"v": True},
        {"v": "1"},
        {"v": DUE},
        {"v": 1.5},
        {"w": "a"},
        {},
    ]
    later = DUE + timedelta(microseconds=1)
    elsewhere = DUE.astimezone(timezone(timedelta(hours=5)))
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({"v": 1}, [0, 1]),
        ({"v": 1.0}, [0, 1]),
        ({"v": True}, [2]),
        ({"v": False}, []),
        ({"v": "1"}, [3]),
        ({"v": DUE}, [4]),
        ({"v": elsewhere}, [4]),
        ({"v": later}, []),
        ({"v": Range(ge=1)}, [0, 1, 5]),
        ({"v": Range(gt=1)}, [5]),
        ({"v": Range(ge=1, le=1)}, [0, 1]),
        ({"v": Range(lt=1.5)}, [0, 1]),
        ({"v": Range(le=1.5, gt=1.0)}, [5]),
        ({"v": Range(ge=DUE, lt=later)}, [4]),
        ({"v": Range(gt=DUE)}, []),
        ({"v": 1, "w": "a"}, [0]),
        ({"w": "a"}, [0, 6]),
        ({"w": "A"}, []),
        ({"nobody": 1}, []),
        ({}, list(range(8))),
    ]
    async with home.holdfast(orders.pack, worker=False) as hf:
        for n, attributes in enumerate(rows):
            await hf.start(orders.plain(n), attributes=attributes)
        for search, expected in cases:
            assert sorted(await _found(hf, attributes=search)) == [f"plain:{n}" for n in expected], search
        text: Any = "a"
        for wrong in (Range(ge=text), Range(ge=1, lt=DUE), Range(ge=True), None, [1]):
            with pytest.raises(UsageError):
                await _found(hf, attributes={"v": wrong})
    with pytest.raises(UsageError):
        Range()


async def test_runs_are_found_by_workflow_status_key_and_time(home: Home, orders: Orders) -> None:
    clock = home.clock = FakeClock()

    def instant() -> datetime:
        return datetime.fromtimestamp(clock.wall / 1000, UTC)

    @orders.pack.workflow(key="wait:{n}")
    async def waits(n: int) -> None:
        await hook("go")

    @orders.pack.workflow(key="order:bad")
    async def fails() -> None:
        raise ValueError("no")

    async with home.holdfast(orders.pack) as hf:
        begin = instant()
        for n in range(3):
            await (await hf.start(orders.plain(n))).run.result(timeout=30)
            clock.advance(1)
        clock.advance(10_000)
        middle = instant()
        waiting = (await hf.start(waits(0))).run
        clock.advance(1)
        with pytest.raises(RunFailed):
            await (await hf.start(fails())).run.result(timeout=30)
        clock.advance(10_000)
        end = instant()
        plain, bad = [f"plain:{n}" for n in range(3)], "order:bad"
        assert await _found(hf) == [*plain, "wait:0", bad]
        assert [run.key async for run in hf.runs()] == [bad, "wait:0", *reversed(plain)]
        for workflow in (orders.plain, "shop.plain", "plain"):
            assert await _found(hf, workflow=workflow) == plain
        assert await _found(hf, status="completed") == plain
        assert await _found(hf, status={"completed", "failed"}) == [*plain, bad]
        assert await _found(hf, status=["failed"]) == [bad]
        assert await _found(hf, status=set()) == []
        assert await _found(hf, key_prefix="plain:") == plain
        assert await _found(hf, key_prefix="plain:1") == ["plain:1"]
        assert await _found(hf, key_prefix="%") == []
        assert await _found(hf, created_before=begin) == []
        assert await _found(hf, created_after=begin, created_before=middle) == plain
        assert await _found(hf, created_after=middle) == ["wait:0", bad]
        assert await _found(hf, finished_after=begin, finished_before=middle) == plain
        assert await _found(hf, finished_after=middle, finished_before=end) == [bad]
        assert await _found(hf, finished_after=end) == []
        assert await _found(hf, workflow=orders.plain, status="completed", key_prefix="plain:2") == ["plain:2"]
        assert await _found(hf, limit=2) == plain[:2]
        assert await _found(hf, limit=0) == []
        await waiting.signal("go")
        await waiting.result(timeout=30)
        assert await _found(hf, finished_after=end) == ["wait:0"]
        wrong: list[dict[str, Any]] = [
            {"status": "asleep"},
            {"workflow": "nobody"},
            {"created_after": datetime(2030, 1, 1)},
            {"attributes": "a"},
        ]
        for search in wrong:
            with pytest.raises(UsageError):
                await _found(hf, **search)


async def test_runs_of_another_namespace_are_not_found(home: Home, orders: Orders) -> None:
    async with home.holdfast(orders.pack) as one, home.holdfast(orders.pack, namespace="two") as two:
        await one.start(orders.plain(1), attributes={"a": 1})
        await two.start(orders.plain(2), attributes={"a": 1})
        assert await _found(one, attributes={"a": 1}) == ["plain:1"]
        assert await _found(two, attributes={"a": 1}) == ["plain:2"]


# -- pages


@pytest.mark.parametrize("newest_first", [True, False], ids=["newest first", "oldest first"])
async def test_pages_show_nothing_twice_and_leave_out_nothing_while_runs_are_added(
    home: Home, orders: Orders, *, newest_first: bool
) -> None:
    """Many are of the same millisecond; some end meanwhile; each page is asked of another process."""
    home.clock = FakeClock()
    async with home.holdfast(orders.pack) as hf, home.holdfast(orders.pack, worker=False) as client:
        before = [(await client.start(orders.plain(n), attributes={"mine": True})).run for n in range(23)]
        await client.start(orders.plain(99))
        seen: list[str] = []
        after, pages, added = None, 0, 0
        while True:
            search = [hf, client][pages % 2].runs(attributes={"mine": True}, newest_first=newest_first)
            page = await search.page(after=after, limit=5)
            assert len(page.runs) <= 5
            seen += [str(run.key) for run in page.runs]
            pages += 1
            if page.next is None:
                break
            after = page.next
            if added < 8:
                await hf.start(orders.plain(100 + added), attributes={"mine": True})
                added += 1
    assert pages > 4
    assert len(seen) == len(set(seen))
    assert {str(run.key) for run in before} <= set(seen)
    assert "plain:99" not in seen


async def test_a_cursor_stays_good_when_the_run_it_names_has_changed_or_gone(home: Home, orders: Orders) -> None:
    clock = home.clock = FakeClock()
    async with home.holdfast(orders.pack, worker=False) as client:
        for n in range(6):
            await client.start(orders.plain(n), retention="1ms" if n == 2 else "1d")
            clock.advance(5)
        page = await client.runs(status="pending", newest_first=False).page(limit=3)
        assert [run.key for run in page.runs] == ["plain:0", "plain:1", "plain:2"]
        async with home.holdfast(orders.pack) as hf:
            await heard(hf).until(RunEnded, count=6)
        clock.advance(60_000)
        async with home.holdfast(orders.pack) as hf:
            rest = await client.runs(newest_first=False).page(after=page.next)
            assert [run.key for run in rest.runs] == ["plain:3", "plain:4", "plain:5"]
            assert rest.next is None
            assert await _found(hf, limit=3)


async def test_an_iteration_goes_over_many_pages(home: Home, orders: Orders) -> None:
    async with home.holdfast(orders.pack, worker=False) as client:
        await asyncio.gather(*(client.start(orders.plain(n)) for n in range(120)))
        runs: list[Run[Any]] = [run async for run in client.runs()]
        assert len({run.id for run in runs}) == 120
        assert [run.created_at for run in runs] == sorted((run.created_at for run in runs), reverse=True)
        assert len([run async for run in client.runs(limit=70)]) == 70
        assert len((await client.runs().page(limit=120)).runs) == 120


async def test_a_page_that_is_not_possible_is_refused(home: Home, orders: Orders) -> None:
    async with home.holdfast(orders.pack, worker=False) as client:
        for limit in (0, -1, 1_001):
            with pytest.raises(UsageError):
                await client.runs().page(limit=limit)
        for cursor in ("", "x", "12", "-1.a", "²5.a"):
            with pytest.raises(UsageError, match="cursor"):
                await client.runs().page(after=cursor)
        assert (await client.runs().page()) == ((), None)


async def test_a_snapshot_that_was_found_is_as_good_as_any(home: Home, orders: Orders) -> None:
    @orders.pack.workflow
    async def waits() -> str:
        return await hook("go")

    async with home.holdfast(orders.pack) as hf:
        started = (await hf.start(waits(), attributes={"a": 1})).run
        await heard(hf).until(RunLetGo)
        [run] = [run async for run in hf.runs(attributes={"a": 1})]
        assert run == await started.refresh()
        assert [wait.kind for wait in run.waiting_on] == ["hook"]
        await run.signal("go", "gone")
        assert await run.result(timeout=30) == "gone"
