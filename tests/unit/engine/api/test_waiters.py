"""Whoever waits for a run is told of its end: at once by a notice, and at the latest by a safety poll."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast.engine.api.waiters import Waiters
from holdfast.engine.pace import Pace
from holdfast.errors import TimedOut
from holdfast.kernel import transitions
from holdfast.kernel.changes import Committed
from holdfast.kernel.runs import Run
from holdfast.kernel.starts import admission
from holdfast.kernel.times import Millis
from holdfast.stores.memory import MemoryStore
from tests.builders import FakeClock, a_hand, a_value, wanted


class World:
    """Runs in a store, and somebody who looks after those that are waited for."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(clock=self.clock)
        self.looks: list[tuple[str, ...]] = []
        self.waiters = Waiters(self, clock=self.clock, emit=lambda _: None, pace=Pace(), held_here=lambda _: False)  # pyright: ignore[reportArgumentType]

    async def runs(self, run_ids: list[str]) -> list[Run]:
        self.looks.append(tuple(run_ids))
        return await self.store.runs(run_ids)

    async def admitted(self, run_id: str) -> Run:
        change = admission(wanted(run_id, key=None), now_ms=self.store.now_ms(), hand=a_hand("w-1"))
        [answer] = await self.store.commit([change])
        assert isinstance(answer, Committed)
        assert answer.run is not None
        return answer.run

    async def ended(self, run: Run) -> None:
        """It ends, and nobody is told."""
        await self.store.commit(
            [transitions.decide(run, transitions.RunReturned(a_value("done")), now_ms=self.store.now_ms())]
        )

    async def settles(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    watching = asyncio.create_task(world.waiters.watch())
    yield world
    watching.cancel()
    await asyncio.wait([watching])


async def test_a_notice_makes_it_look_at_the_runs_that_it_names_and_at_no_others(world: World) -> None:
    one, other = await world.admitted("one"), await world.admitted("other")
    waiting = [asyncio.create_task(world.waiters.wait(run.id)) for run in (one, other)]
    await world.settles()
    world.looks.clear()
    await world.ended(one)
    world.waiters.look_at(["one", "a stranger"])
    await world.settles()
    assert waiting[0].done()
    assert world.looks == [("one",)]
    waiting[1].cancel()


async def test_an_end_that_nobody_told_is_found_by_the_safety_poll_however_many_notices_come(world: World) -> None:
    silent, busy = await world.admitted("silent"), await world.admitted("busy")
    waiting = asyncio.create_task(world.waiters.wait(silent.id))
    others = asyncio.create_task(world.waiters.wait(busy.id))
    await world.settles()
    await world.ended(silent)
    for _ in range(int(Pace().waiters_poll_seconds)):
        assert not waiting.done()
        world.clock.advance(1_000)
        world.waiters.look_at(["busy"])
        await world.settles()
    assert waiting.done()
    others.cancel()


async def test_the_end_of_a_time_limit_is_that_of_one_waiter_and_not_of_the_others(world: World) -> None:
    run = await world.admitted("one")
    patient = asyncio.create_task(world.waiters.wait(run.id))
    with pytest.raises(TimedOut, match=r"run one has not ended within 0\.001 s"):
        await world.waiters.wait(run.id, Millis(1))
    assert not patient.done()
    await world.ended(run)
    world.waiters.look_at(["one"])
    assert (await patient).id == "one"


async def test_a_waiter_whose_run_ends_leaves_no_timer_behind(world: World) -> None:
    run = await world.admitted("one")
    await world.ended(run)
    timers: list[asyncio.TimerHandle] = []
    loop = asyncio.get_running_loop()
    call_later = loop.call_later
    loop.call_later = lambda *given: timers.append(call_later(*given)) or timers[-1]  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
    try:
        assert (await world.waiters.wait(run.id, Millis(3_600_000))).id == "one"
    finally:
        loop.call_later = call_later  # pyright: ignore[reportAttributeAccessIssue]
    assert [timer.cancelled() for timer in timers] == [True]
