"""Limits at effects: never more calls under way than slots, over all replicas, and none of them waits for ever."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from holdfast import Holdfast, Limit, Pack, Rate, Retry, UsageError
from holdfast.events import EffectHeld, RunLetGo, SlotsMoved
from tests.integration.conftest import Home, eventually, heard, worker_of


class Calls:
    """Effects under a limit, which say when they begin and when they end."""

    def __init__(self, limit: Limit, seconds: float = 0.01) -> None:
        self.pack = Pack("p")
        self.under_way = 0
        self.most = 0
        self.begun: list[float] = []
        self.gate = asyncio.Event()
        self.gate.set()

        @self.pack.effect(limit=limit, retry=Retry(attempts=3, base=0.01))
        async def call(n: int) -> int:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            self.begun.append(asyncio.get_running_loop().time())
            try:
                await self.gate.wait()
                await asyncio.sleep(seconds)
                return n
            finally:
                self.under_way -= 1

        @self.pack.effect
        async def free(n: int) -> int:
            return n

        @self.pack.workflow
        async def work(n: int) -> int:
            return await call(n)

        @self.pack.workflow
        async def fan(n: int) -> int:
            return sum(await asyncio.gather(*(call(each) for each in range(n))))

        @self.pack.workflow
        async def beside(n: int) -> int:
            return await free(n)

        self.work, self.fan, self.beside = work, fan, beside


async def test_no_more_calls_are_under_way_than_the_width(home: Home) -> None:
    calls = Calls(Limit("stripe", width=3), seconds=0.05)
    async with home.holdfast(calls.pack) as first, home.holdfast(calls.pack) as second:
        runs = [(await hf.start(calls.work(n))).run for n in range(30) for hf in (first, second)]
        assert [await run.result("60s") for run in runs] == [n for n in range(30) for _ in range(2)]
        assert calls.most == 3
        assert all(heard(hf).all(SlotsMoved) for hf in (first, second)), "one of them had no slot"


async def test_a_fan_out_is_held_back_too(home: Home) -> None:
    calls = Calls(Limit("stripe", width=2))
    async with home.holdfast(calls.pack) as hf:
        assert await (await hf.start(calls.fan(12))).run.result("30s") == sum(range(12))
    assert calls.most == 2


async def test_runs_that_wait_hold_no_slot_of_their_worker_and_leave_the_memory(home: Home) -> None:
    calls = Calls(Limit("stripe", width=1))
    calls.gate.clear()
    async with home.holdfast(calls.pack, concurrency=2) as hf:
        runs = [(await hf.start(calls.work(n))).run for n in range(4)]
        await heard(hf).until(RunLetGo, count=3)
        assert await (await hf.start(calls.beside(7))).run.result() == 7
        await eventually(lambda: worker_of(hf).slots.taken == 1, what="only the call to have a slot")
        waiting = [seen for run in runs if (seen := await hf.get(run.id)).status == "waiting"]
        assert {str(wait) for seen in waiting for wait in seen.waiting_on} <= {"limit 'stripe': 1 of 1 in use"}
        [limit] = await hf.effect_limits()
        assert (limit.name, limit.width, limit.taken) == ("stripe", 1, 1)
        assert limit.shares[0].instance == hf.runtime.instance
        calls.gate.set()
        assert sorted([await run.result("30s") for run in runs]) == [0, 1, 2, 3]
    assert calls.most == 1


async def test_slots_that_are_not_used_are_given_back(home: Home) -> None:
    calls = Calls(Limit("stripe", width=3))
    async with home.holdfast(calls.pack) as hf:
        await (await hf.start(calls.work(1))).run.result()
        await heard(hf).until(SlotsMoved, slots=0)
        [limit] = await hf.effect_limits()
        assert (limit.taken, limit.shares) == (0, ())


async def test_two_replicas_take_turns_at_a_single_slot(home: Home) -> None:
    calls, order = Calls(Limit("stripe", width=1), seconds=0.02), list[Holdfast]()
    async with home.holdfast(calls.pack) as first, home.holdfast(calls.pack) as second:
        runs = [(await hf.start(calls.work(n))).run for n in range(20) for hf in (first, second)]
        await asyncio.gather(*(run.result("60s") for run in runs))
        for hf in (first, second):
            order += [hf] * len(heard(hf).all(SlotsMoved, slots=1))
    assert calls.most == 1
    assert min(Counter(map(id, order)).values()) >= 2, "one of them had to wait until the other had ended"


async def test_the_rate_is_kept_over_all_replicas(home: Home) -> None:
    calls = Calls(Limit("stripe", rate=Rate(50, per="1s")), seconds=0)
    async with home.holdfast(calls.pack) as first, home.holdfast(calls.pack) as second:
        runs = [(await hf.start(calls.work(n))).run for n in range(30) for hf in (first, second)]
        await asyncio.gather(*(run.result("60s") for run in runs))
    begun = sorted(calls.begun)
    portion = 5
    for n, start in enumerate(begun):
        within = [at for at in begun[n:] if at - start <= 0.5]
        assert len(within) <= 25 + 2 * portion, within
    assert begun[-1] - begun[0] >= (60 - 2 * portion) / 50 - 0.1


async def test_a_call_that_fails_gives_its_slot_back(home: Home) -> None:
    pack, failures = Pack("p"), Counter[int]()

    @pack.effect(limit=Limit("stripe", width=1), retry=Retry(attempts=3, base=0.01))
    async def call(n: int) -> int:
        failures[n] += 1
        if failures[n] < 3:
            raise OSError("again")
        return n

    @pack.workflow
    async def work(n: int) -> int:
        return await call(n)

    async with home.holdfast(pack) as hf:
        runs = [(await hf.start(work(n))).run for n in range(5)]
        assert [await run.result("30s") for run in runs] == [0, 1, 2, 3, 4]


async def test_a_cancelled_call_gives_its_slot_back(home: Home) -> None:
    calls = Calls(Limit("stripe", width=1))
    calls.gate.clear()
    async with home.holdfast(calls.pack) as hf:
        run = (await hf.start(calls.work(1))).run
        await eventually(lambda: calls.under_way == 1, what="the call")
        other = (await hf.start(calls.work(2))).run
        await heard(hf).until(EffectHeld, run_id=other.id, rule="limit")
        await run.cancel()
        calls.gate.set()
        assert await other.result("30s") == 2


def test_a_limit_is_declared_alike_everywhere() -> None:
    pack = Pack("p")

    @pack.effect(limit=Limit("stripe", width=10))
    async def charge() -> None: ...

    with pytest.raises(UsageError, match="declare limit 'stripe' with different numbers"):

        @pack.effect(limit=Limit("stripe", width=11))
        async def refund() -> None: ...


async def test_a_remote_effect_has_its_slot_until_it_is_heard_of(home: Home) -> None:
    pack = Pack("p")

    @pack.effect(remote=True, limit=Limit("stripe", width=1))
    async def far(n: int) -> int:
        raise AssertionError(n)

    @pack.workflow
    async def work(n: int) -> int:
        return await far(n)

    async with home.holdfast(pack) as hf:
        runs = [(await hf.start(work(n))).run for n in range(3)]
        tasks = hf.runtime.tasks_in(hf.namespace)
        for _ in runs:
            [handed] = await tasks.claim(["p.far"], worker="w", limit=5, wait="30s")  # no more than there are slots
            await tasks.complete(handed.place.name, fence=handed.claim.fence, result=b"7")
        assert [await run.result("30s") for run in runs] == [7, 7, 7]
