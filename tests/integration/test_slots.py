"""Which run goes when: priorities, delays, the limit on what is at work, and who does the work."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast import Pack, Retry, RunFailed, TimedOut, sleep
from holdfast.events import EffectBegan, RunEnded, RunsClaimed
from tests.integration.conftest import Holding, Home, eventually, heard, worker_of
from tests.integration.wrappers import GatedStore


def _recording() -> tuple[Pack, Any, list[int]]:
    """A workflow that notes its number, and the numbers in the order in which they were noted."""
    pack = Pack("p")
    order: list[int] = []

    @pack.effect
    async def act(n: int) -> None:
        order.append(n)

    @pack.workflow
    async def work(n: int) -> None:
        await act(n)

    return pack, work, order


async def test_of_the_runs_that_are_ready_the_higher_priority_goes_first(home: Home) -> None:
    pack, work, order = _recording()
    async with home.holdfast(pack, worker=False) as client:
        runs = [(await client.start(work(n), priority=n)).run for n in (0, 5, -3, 9, 2)]
        async with home.holdfast(pack, concurrency=1):
            for run in runs:
                await run.result(timeout=30)
    assert order == [9, 5, 2, 0, -3]


async def test_a_delayed_run_begins_when_its_time_has_come_and_not_before(home: Home) -> None:
    pack = Pack("p")
    begun_at_ms: list[int] = []

    @pack.effect
    async def act() -> None:
        begun_at_ms.append(store.now_ms())

    @pack.workflow(key="k")
    async def work() -> None:
        await act()

    async with home.holdfast(pack) as hf:
        store = hf._replica._ports.store
        run, created = await hf.start(work(), delay="150ms")
        assert (created, run.status) == (True, "pending")
        again = await hf.start(work())
        assert (again.created, again.run.id) == (False, run.id)
        await run.result(timeout=30)
        created_at_ms = round(run.created_at.timestamp() * 1000)
    assert begun_at_ms[0] >= created_at_ms + 150


async def test_a_delay_outlives_the_process(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow
    async def work() -> str:
        return "done"

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work(), delay=0.1)).run
    async with home.holdfast(pack) as hf:
        assert await (await hf.get(run.id)).result(timeout=30) == "done"


async def test_many_timers_wake_in_the_order_of_their_time(home: Home) -> None:
    pack, work, order = _recording()
    async with home.holdfast(pack) as hf:
        runs = [(await hf.start(work(n), delay=n / 10)).run for n in (5, 2, 4, 1, 3)]
        for run in runs:
            await run.result(timeout=30)
    assert order == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
async def test_no_more_effects_are_in_flight_than_the_concurrency_allows(home: Home, *, sync: bool) -> None:
    pack = Pack("p")
    guard = threading.Lock()
    now, most = 0, 0

    def enter() -> None:
        nonlocal now, most
        with guard:
            now += 1
            most = max(most, now)

    def leave() -> None:
        nonlocal now
        with guard:
            now -= 1

    async def act() -> None:
        enter()
        await asyncio.sleep(0.002)
        leave()

    def act_sync() -> None:
        enter()
        threading.Event().wait(0.002)
        leave()

    effect: Any = pack.effect(act_sync if sync else act)

    @pack.workflow
    async def work() -> None:
        await asyncio.gather(*(effect() for _ in range(6)))

    async with home.holdfast(pack, concurrency=3) as hf:
        runs = [(await hf.start(work())).run for _ in range(10)]
        for run in runs:
            await run.result(timeout=60)
    assert most == 3


async def test_no_more_runs_are_at_work_than_the_concurrency_allows(home: Home) -> None:
    pack = Pack("p")
    gate = asyncio.Event()
    begun: set[int] = set()

    @pack.effect
    async def hold(n: int) -> None:
        begun.add(n)
        await gate.wait()

    @pack.workflow
    async def work(n: int) -> None:
        await hold(n)

    async with home.holdfast(pack, concurrency=3) as hf:
        runs = [(await hf.start(work(n))).run for n in range(8)]
        await eventually(lambda: len(begun) == 3)
        statuses = [(await run.refresh()).status for run in runs]
        assert (statuses.count("running"), statuses.count("pending")) == (3, 5)
        gate.set()
        for run in runs:
            await run.result(timeout=30)
    assert len(begun) == 8


async def test_runs_that_wait_hold_no_slot(home: Home) -> None:
    """With a single slot, a parent that waits for its child, and sleepers, keep nobody from working."""
    pack = Pack("p")

    @pack.effect
    async def act(n: int) -> int:
        return n

    @pack.workflow
    async def child(n: int) -> int:
        await sleep(0.01)
        return await act(n)

    @pack.workflow
    async def parent(n: int) -> int:
        return await child(n) + await child(n + 1)

    async with home.holdfast(pack, concurrency=1) as hf:
        runs = [(await hf.start(parent(n))).run for n in range(5)]
        assert [await run.result(timeout=30) for run in runs] == [1, 3, 5, 7, 9]


async def test_an_effect_that_waits_for_its_turn_does_not_use_up_its_time(home: Home) -> None:
    """The time of an attempt begins when the attempt does."""
    pack = Pack("p")
    first_began = asyncio.Event()
    gate = asyncio.Event()

    @pack.effect(retry=Retry(attempts=1))
    async def hold() -> None:
        first_began.set()
        await gate.wait()

    @pack.effect(retry=Retry(attempts=1), timeout="40ms")
    async def quick() -> str:
        return "quick"

    @pack.workflow
    async def work() -> str:
        _, result = await asyncio.gather(hold(), quick())
        return result

    async with home.holdfast(pack, concurrency=1) as hf:
        run = (await hf.start(work())).run
        await asyncio.wait_for(first_began.wait(), 30)
        await asyncio.sleep(0.1)  # longer than an attempt may take
        gate.set()
        assert await run.result(timeout=30) == "quick"


async def test_a_client_starts_and_waits_and_executes_nothing(home: Home) -> None:
    pack = Pack("p")

    @pack.effect
    async def act() -> str:
        return "done"

    @pack.workflow
    async def work() -> str:
        return await act()

    async with home.holdfast(pack, worker=False) as client:
        seen = heard(client)
        run = (await client.start(work())).run
        assert run.status == "pending"
        with pytest.raises(TimedOut):
            await run.result(timeout=0.1)
        assert seen.all(EffectBegan) == []
        async with home.holdfast(pack) as worker:
            told = heard(worker)
            assert await run.result(timeout=30) == "done"
            assert told.all(RunsClaimed)
        assert (await run.refresh()).status == "completed"
        assert seen.all(EffectBegan) == []


async def test_a_client_without_the_packs_can_look_but_not_start(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow(key="k:{n}")
    async def work(n: int) -> dict[str, int]:
        return {"n": n}

    async with home.holdfast(pack) as hf, home.holdfast(worker=False) as viewer:
        await (await hf.start(work(1))).run.result(timeout=30)
        run = await viewer.find("p.work", "k:1")
        assert await run.result(timeout=30) == {"n": 1}
        assert await run.input() == {"n": 1}
        assert [entry.what for entry in await run.journal()] == ["started", "completed"]


async def test_a_worker_leaves_runs_of_workflows_that_it_does_not_know(home: Home) -> None:
    one, two = Pack("one"), Pack("two")

    @one.workflow
    async def work() -> str:
        return "one"

    @two.workflow
    async def other() -> str:
        return "two"

    async with home.holdfast(one, two, worker=False) as client:
        first, second = (await client.start(work())).run, (await client.start(other())).run
        async with home.holdfast(one):
            assert await first.result(timeout=30) == "one"
            assert (await second.refresh()).status == "pending"
        async with home.holdfast(two):
            assert await second.result(timeout=30) == "two"


async def test_two_workers_share_the_work_and_do_nothing_twice(home: Home) -> None:
    pack = Pack("p")
    ledger: list[int] = []
    gate = asyncio.Event()

    @pack.effect(retry=Retry(attempts=1))
    async def act(n: int) -> int:
        ledger.append(n)
        await gate.wait()
        return n

    @pack.workflow(key="k:{n}")
    async def work(n: int) -> int:
        return await act(n) + await act(n)

    async with (
        home.holdfast(pack, worker=False) as client,
        home.holdfast(pack, concurrency=5) as one,
        home.holdfast(pack, concurrency=5) as two,
    ):
        both = [heard(one), heard(two)]
        runs = [(await client.start(work(n))).run for n in range(60)]
        for seen in both:  # neither has room for all, so a fast one cannot leave the other nothing to do
            await seen.until(EffectBegan)
        gate.set()
        assert [await run.result(timeout=60) for run in runs] == [2 * n for n in range(60)]
        shares = [len(seen.all(RunEnded)) for seen in both]
    assert sum(shares) == 60
    assert min(shares) > 0
    assert sorted(ledger) == sorted([n for n in range(60) for _ in range(2)])


async def test_a_listener_that_raises_disturbs_nobody(home: Home) -> None:
    pack = Pack("p")

    @pack.effect(retry=Retry(attempts=1))
    async def act() -> str:
        raise OSError("no")

    @pack.workflow
    async def work() -> str:
        return await act()

    def bad(event: object) -> None:
        raise RuntimeError("my own fault")

    async with home.holdfast(pack) as hf:
        stop = hf.listen(bad)
        seen = heard(hf)
        with pytest.raises(RunFailed):
            await (await hf.start(work())).run.result(timeout=30)
        assert len(seen.all(RunEnded)) == 1
        stop()
        stop()


async def test_a_timer_set_while_every_slot_was_taken_is_not_forgotten(home: Home) -> None:
    """When it was set there was no room, so nobody planned for it; when there is room again, somebody must."""
    pack = Pack("p")
    gate = asyncio.Event()

    @pack.effect
    async def hold() -> None:
        await gate.wait()

    @pack.workflow
    async def busy() -> None:
        await hold()

    @pack.workflow
    async def later() -> str:
        return "done"

    async with home.holdfast(pack, concurrency=1) as hf:
        first = (await hf.start(busy())).run
        await heard(hf).until(EffectBegan)
        second = (await hf.start(later(), delay="300ms")).run
        for _ in range(20):
            await asyncio.sleep(0.001)
        gate.set()
        await first.result(timeout=30)
        assert await second.result(timeout=30) == "done"


async def test_a_start_in_one_process_wakes_a_worker_in_another_that_had_no_room_then(home: Home) -> None:
    holding = Holding()
    pack, work = holding.pack, holding.work
    async with home.holdfast(pack, worker=False) as client, home.holdfast(pack, concurrency=2) as hf:
        runs = [(await client.start(work(n))).run for n in range(3)]
        await heard(hf).until(EffectBegan, count=2)
        runs += [(await client.start(work(n))).run for n in range(3, 6)]
        delayed = (await client.start(work(6), delay="200ms")).run
        for _ in range(20):
            await asyncio.sleep(0.001)
        holding.gate.set()
        assert [await run.result(timeout=30) for run in [*runs, delayed]] == list(range(7))


async def test_every_slot_is_given_back_whatever_becomes_of_a_run(home: Home) -> None:
    pack = Pack("p")

    @pack.effect(retry=Retry(attempts=2, base=0))
    async def act(how: str) -> str:
        if how == "fail":
            raise OSError(how)
        return how

    @pack.workflow(key="child:{how}")
    async def child(how: str) -> str:
        await sleep(0.001)
        return await act(how)

    @pack.workflow
    async def work(how: str) -> str:
        match how:
            case "cancel":
                raise asyncio.CancelledError
            case "stuck":
                await asyncio.Event().wait()
            case "long":
                await sleep("1d")
            case _:
                pass
        return await child(how)

    async with home.holdfast(pack, concurrency=3) as hf:
        for how in ["ok", "fail", "cancel", "stuck", "long"] * 6:
            await hf.start(work(how))
        # Between a child's end and its parent's return nothing is in memory for a moment: the ends come first.
        await heard(hf).until(RunEnded, count=18, workflow="p.work")
        worker = worker_of(hf)
        await eventually(lambda: not worker.held and worker.slots.taken == 0)
        statuses = [event.status for event in heard(hf).all(RunEnded, workflow="p.work")]
        assert sorted(set(statuses)) == ["cancelled", "completed", "failed"]
        assert len(statuses) == 18


async def test_a_caller_that_goes_away_in_the_middle_of_a_start_leaves_no_slot_taken(home: Home) -> None:
    pack = Pack("p")
    ledger: list[int] = []

    @pack.effect
    async def act(n: int) -> int:
        ledger.append(n)
        return n

    @pack.workflow(key="k:{n}")
    async def work(n: int) -> int:
        return await act(n)

    made: list[GatedStore] = []

    def through(store: Any) -> GatedStore:
        made.append(GatedStore(store, lambda _: True))
        return made[0]

    async with home.holdfast(pack, through=through, concurrency=2) as hf:
        starts = [asyncio.create_task(hf.start(work(n))) for n in range(6)]
        await asyncio.wait_for(made[0].reached.wait(), 30)
        for start in starts[:4]:
            start.cancel()
        made[0].gate.set()
        answers = await asyncio.gather(*starts, return_exceptions=True)
        assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [True] * 4 + [False] * 2
        for n in range(6):  # whoever asks again is told, whether or not the first one got through
            assert await (await hf.start(work(n))).run.result(timeout=30) == n
        worker = worker_of(hf)
        await eventually(lambda: worker.slots.taken == 0)
    assert sorted(ledger) == list(range(6))
