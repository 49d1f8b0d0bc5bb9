"""Turning the calendar: what moves with it, and what does not notice."""

from __future__ import annotations

import asyncio

from holdfast.kernel.times import Millis
from holdfast.testing.simulation.calendar import UPKEEP, Calendar, CalendarHost
from holdfast.testing.simulation.world import World

DAY_MS = Millis(86_400_000)


def host_in(calendar: Calendar, world: World, *, is_client: bool = False) -> CalendarHost:
    return CalendarHost(world, "a", calendar, is_client=is_client, on_fault=lambda error: None)


def test_a_worker_keeps_its_steady_clock_and_a_client_does_not():
    world = World()
    calendar = Calendar(world)
    worker, client = host_in(calendar, world), host_in(calendar, world, is_client=True)
    before_ms = calendar.now_ms(), worker.clock.wall_ms()
    calendar.turn(DAY_MS)
    assert (calendar.now_ms(), worker.clock.wall_ms()) == tuple(each + DAY_MS for each in before_ms)
    assert worker.clock.steady_ms() == 0
    assert client.clock.steady_ms() == DAY_MS
    world.close()


def test_a_process_that_is_paused_finds_that_time_has_passed():
    world = World()
    calendar = Calendar(world)
    worker = host_in(calendar, world)
    calendar.turn(DAY_MS)
    worker.stop()
    calendar.turn(DAY_MS)
    worker.go_on()
    assert worker.clock.steady_ms() == worker.loop.time() * 1000 == DAY_MS
    world.close()


def test_timers_of_work_ring_earlier_and_those_of_upkeep_do_not():
    world = World()
    calendar = Calendar(world)
    worker = host_in(calendar, world)
    rung: list[str] = []

    async def ring(name: str, seconds: float, *, upkeep: bool) -> None:
        UPKEEP.set(upkeep)
        await asyncio.sleep(seconds)
        rung.append(name)

    worker.spawn(ring("upkeep", 10, upkeep=True))
    worker.spawn(ring("work", 3600, upkeep=False))
    world.run(lambda: False, seconds=0)
    assert worker.loop.next_timer_in() == 3600
    assert max(calendar.comes_next()) == calendar.now_ms() + 3_600_000
    calendar.turn(Millis(3_599_000))
    world.run(lambda: False, seconds=2)
    assert rung == ["work"]
    world.run(lambda: False, seconds=8)
    assert rung == ["work", "upkeep"]
    world.close()
