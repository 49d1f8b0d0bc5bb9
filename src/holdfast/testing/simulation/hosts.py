"""Hosts: the processes of a simulated world, each with a loop, clocks and chance of its own.

A host can be killed at any moment, stopped as by SIGSTOP and continued, and its wall clock can be set. What it has sent
before arrives all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import events
from collections.abc import Callable, Coroutine
from random import Random  # noqa: TID251 - seeded
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.assembly import Platform
from holdfast.kernel.times import Instant, Millis, Steady
from holdfast.testing.simulation.loop import VirtualLoop
from holdfast.testing.simulation.threads import InlineThreads

if TYPE_CHECKING:
    from holdfast.testing.simulation.world import World

T = TypeVar("T")
BEGAN_AT_MS = Instant(1_767_225_600_000)  # 2026-01-01, when every world begins


class VirtualClock:
    """The clocks of a host. Its wall clock may be set; its steady clock is the time of the world."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.set_forward_ms = Millis(0)

    def wall_ms(self) -> Instant:
        return Instant(BEGAN_AT_MS + self.set_forward_ms + int(self._now() * 1000))

    def steady_ms(self) -> Steady:
        return self._now() * 1000  # pyright: ignore[reportReturnType] - read often: no call for a name

    def boot_id(self) -> str:
        return "virtual"

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)  # noqa: TID251 - of virtual time


class SeededIds:
    """Ids and chance that a seed decides."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._last = (Instant(0), 0)

    def run_id(self, now_ms: Instant) -> str:
        last_ms, last = self._last
        drawn = (last + 1 if now_ms == last_ms else self._random.getrandbits(79)) + self._random.getrandbits(40)
        self._last = now_ms, drawn
        return f"{now_ms:012x}{drawn:020x}"

    def nonce(self) -> str:
        return f"{self._random.getrandbits(128):032x}"

    def chance(self) -> float:
        return self._random.random()


class Host:
    """One process. Made by `World.host`."""

    def __init__(self, world: World, name: str, number: int) -> None:
        self.world = world
        self.name = name
        self.is_alive = True
        self.is_stopped = False
        self.is_running = True  # whether it executes anything at present: asked at every step of the world
        self.clock = VirtualClock(world.now)
        self.loop = VirtualLoop(world.now)
        ids = SeededIds(Random(f"{world.seed}/{name}/{number}"))
        self.platform = Platform(host=name, pid=number, clock=self.clock, ids=ids, threads=InlineThreads)
        self._executing: set[asyncio.Task[Any]] = set()  # asyncio itself does not keep a task alive

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Have it execute `work`."""
        task = self.loop.create_task(work)
        self._executing.add(task)
        task.add_done_callback(self._executing.discard)
        return task

    def kill(self) -> None:
        """End it as kill -9 does: not one line of it is executed from now on."""
        if self.is_alive:
            self.is_alive = self.is_running = False
            self.world.halt(self.loop)
            self.loop.is_stopped = True
            self._executing |= self.loop.unfinished()  # or the collector would execute their `finally`

    def stop(self) -> None:
        """As SIGSTOP does: it stands still, its clocks do not."""
        self.is_stopped = True
        self.is_running = False
        self.loop.is_stopped = True
        self.world.halt(self.loop)

    def go_on(self) -> None:
        """As SIGCONT does."""
        if self.is_alive:
            self.is_stopped = self.loop.is_stopped = False
            if not self.is_running:
                self.is_running = True
                self.world.go_on(self.loop)

    def deliver(self, callback: Callable[..., Any], *args: Any) -> None:
        """Something arrives from outside. A host that stands still finds it when it goes on, a dead one never."""
        if self.is_alive:
            self.loop.call_soon(callback, *args)

    def note(self, callback: Callable[..., Any], *args: Any) -> None:
        """As `deliver`, for what only wakes others: at once, without a turn, if nothing is before it."""
        if self.is_running and not self.loop.soon:
            self.loop.call_now(callback, *args)
        else:
            self.deliver(callback, *args)

    def bury(self) -> None:
        """Let go of what it was executing, so that nothing of it is collected in the middle of another world."""
        self.kill()
        outer = events._get_running_loop()  # noqa: SLF001 - documented for loop authors
        events._set_running_loop(self.loop)  # noqa: SLF001
        try:
            for task in self._executing:
                task._log_destroy_pending = False  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue] # noqa: SLF001
                coroutine = task.get_coro()
                with contextlib.suppress(BaseException):
                    if coroutine is not None:
                        coroutine.close()  # type: ignore[union-attr]
        finally:
            events._set_running_loop(outer)  # noqa: SLF001
            self.loop.close()
