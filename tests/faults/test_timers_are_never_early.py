"""Timers, delayed starts and retries, measured by a clock that is not the engine's, while the store stalls.

Redis is stopped for longer than a lease lasts, with looks at its clock under way; a file is locked for as long. Timers
are set before the stall, during it (by effects that end then) and after it, and the runs are taken over by the process
that is first to come back.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast import Holdfast, Pack, RetryAfter, current, sleep
from holdfast.lab.cluster.redis import RedisServer
from holdfast.stores.redis.pace import RedisPace
from tests.faults.conftest import NewCase, NewRedisCase
from tests.faults.processes import patiently
from tests.paces import redis_store

pytestmark = pytest.mark.faults

STALL_SECONDS = 2.5
BEFORE_SECONDS = 0.7
RESOLUTION_MS = 1.0  # instants are stored in whole milliseconds
WORK_MS = (0, 400, 1_500)  # how long the effect takes from whose end the timer counts
WAITS_MS = (150, 1_200, 2_600)


def now_ms() -> float:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) / 1e6


class World:
    """When effects began and ended, by run; and the pack that tells it."""

    def __init__(self) -> None:
        self.ended: dict[str, list[float]] = defaultdict(list)
        self.began: dict[str, list[float]] = defaultdict(list)
        self.early: list[str] = []
        self.pack = Pack("timers")

        @self.pack.effect
        async def work(run: str, ms: int) -> None:
            await asyncio.sleep(ms / 1000)
            self.ended[run].append(now_ms())

        @self.pack.effect
        async def follow(run: str, wait_ms: int) -> None:
            self.has_come(run, wait_ms, "timer")

        @self.pack.effect
        async def try_twice(run: str, wait_ms: int) -> None:
            if not self.ended[run]:
                self.ended[run].append(now_ms())
                raise RetryAfter(wait_ms / 1000)
            self.has_come(run, wait_ms, "retry")

        @self.pack.effect
        async def begin(run: str, wait_ms: int) -> None:
            self.has_come(run, wait_ms, "delayed start")

        @self.pack.workflow(key="nap:{work_ms}:{wait_ms}")
        async def nap(work_ms: int, wait_ms: int) -> None:
            await work(current().key or "", work_ms)
            await sleep(wait_ms / 1000)
            await follow(current().key or "", wait_ms)

        @self.pack.workflow(key="again:{wait_ms}")
        async def again(wait_ms: int) -> None:
            await try_twice(current().key or "", wait_ms)

        @self.pack.workflow(key="later:{wait_ms}:{number}")
        async def later(wait_ms: int, number: int) -> None:
            await begin(current().key or "", wait_ms)

        self.nap, self.again, self.later = nap, again, later

    def has_come(self, run: str, wait_ms: int, what: str) -> None:
        """What the wait was for begins. An effect that was repeated has set its timer when it ended first, or last."""
        waited_ms = now_ms() - min(self.ended[run])
        if waited_ms < wait_ms - RESOLUTION_MS:
            self.early.append(f"{what} of {run} by {wait_ms - waited_ms:.1f} ms")


@contextmanager
def stopped(server: RedisServer) -> Iterator[None]:
    server.stop_signal()
    try:
        yield
    finally:
        server.cont()


@pytest.mark.parametrize("kind", ["redis", "sqlite"])
async def test_no_wait_is_shorter_than_it_was_to_be(
    new_case: NewCase, case_on: NewRedisCase, redis_server: RedisServer, kind: str
) -> None:
    world = World()
    case = new_case("case") if kind == "sqlite" else case_on(redis_server)
    stalled = case.locked() if kind == "sqlite" else stopped(redis_server)

    def holdfast() -> Holdfast:
        often = RedisPace(clock_seconds=0.02)  # so that a look at its clock is under way when Redis stalls
        return Holdfast(case.url if kind == "sqlite" else redis_store(case.url, often), packs=[world.pack], lease="1s")

    async with holdfast() as hf, holdfast():

        async def delayed(wait_ms: int, number: int) -> None:
            call = world.later(wait_ms, number)
            world.ended[f"later:{wait_ms}:{number}"].append(now_ms())
            run, _ = await patiently(lambda: hf.start(call, delay=wait_ms / 1000))
            await patiently(lambda: run.result("45s"))

        async def waiting(call: object) -> None:
            run, _ = await patiently(lambda: hf.start(call))  # type: ignore[call-overload]
            await patiently(lambda: run.result("45s"))

        async with asyncio.TaskGroup() as group:

            def set_off(number: int) -> None:
                for wait_ms in WAITS_MS:
                    group.create_task(delayed(wait_ms, number))

            for wait_ms in WAITS_MS:
                group.create_task(waiting(world.again(wait_ms)))
                for work_ms in WORK_MS:
                    group.create_task(waiting(world.nap(work_ms, wait_ms)))
            set_off(1)
            await asyncio.sleep(BEFORE_SECONDS)
            with stalled:
                await asyncio.sleep(STALL_SECONDS / 2)
                set_off(2)
                await asyncio.sleep(STALL_SECONDS / 2)
            set_off(3)
    assert not world.early
