"""A simulated world: hosts that execute the real engine, in virtual time, in an order that a seed decides.

    world = World(seed=4711)
    worker = world.host("worker-1")
    task = worker.spawn(serve(...))
    world.run(until=task.done)

Nothing in a world takes real time but computing. Equal seeds give equal worlds: all chance comes from `world.chance`
and from the hosts' own, all time from `world.now`.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import events
from collections.abc import Callable
from heapq import heappop, heappush
from operator import attrgetter
from random import Random  # noqa: TID251 - seeded
from typing import Any

from holdfast.testing.simulation.hosts import Host
from holdfast.testing.simulation.loop import FOREVER, VirtualLoop

_first_at = attrgetter("first_at")
TURNS_MAX = 200_000  # at one instant


class NothingHappens(Exception):
    """Nothing will ever happen in this world, and what was waited for has not."""


class TimeStandsStill(Exception):
    """Something happens over and over at the same instant: code that never waits."""


class World:
    """Time, hosts, and what travels between them."""

    def __init__(self, seed: int | str = 0, *, rounds_max: int = 1) -> None:
        """With more than one round, a host that has its turn does all that it can do at this instant.

        Hosts meet in the store alone, so which of them goes on first is seen nowhere. Code that looks from
        outside, through `until`, sees what was done later.
        """
        self.seed = seed
        self.rounds_max = rounds_max
        self.chance = Random(f"{seed}/world")
        self.hosts: list[Host] = []
        self.executing: Host | None = None  # whose turn it is
        self._ready: list[VirtualLoop] = []  # the loops that have something to execute at this instant
        self._living: list[Host] = []  # and perhaps some that have died since
        self._running: list[VirtualLoop] = []  # those of hosts that execute anything at present
        self._no_timer_before = [0.0]  # so that most of the time no timer has to be looked at
        self._seconds = 0.0
        self._coming: list[tuple[float, int, Callable[[], Any]]] = []
        self._count = 0
        self._turns = 0  # since time has last gone on

    def now(self) -> float:
        """Seconds since the world began."""
        return self._seconds

    def host(self, name: str) -> Host:
        """A new process. A name may be used again once its process is dead."""
        host = Host(self, name, len(self.hosts) + 1)
        self.add(host)
        return host

    def add(self, host: Host) -> None:
        """Let this process have its turns from now on."""
        self.hosts.append(host)
        self._living = [each for each in self.hosts if each.is_alive]
        host.loop.host, host.loop.among, host.loop.no_timer_before = host, self._ready, self._no_timer_before
        self._find_running()

    def _find_running(self) -> None:
        self._running = [each.loop for each in self._living if each.is_running]
        self._no_timer_before[0] = 0.0

    def halt(self, loop: VirtualLoop) -> None:
        """Give this loop no turn, until it goes on."""
        if loop in self._ready:
            self._ready.remove(loop)
        loop.is_ready = True  # so it does not become so
        self._find_running()

    def go_on(self, loop: VirtualLoop) -> None:
        """Give this loop its turns again: what it has missed comes first."""
        if loop not in self._ready:
            self._ready.append(loop)
        self._find_running()

    def after(self, seconds: float, callback: Callable[[], Any]) -> None:
        """Call back then, outside of every host: for what travels, and for faults."""
        self._count += 1
        heappush(self._coming, (self._seconds + seconds, self._count, callback))

    def run(self, until: Callable[[], object], *, seconds: float = FOREVER) -> bool:
        """Let the world go on until this is true, for this long at most; whether it is true.

        Raises `NothingHappens` if nothing is left that could make it true, `TimeStandsStill` if it never gets there.
        """
        hooks, outer = sys.get_asyncgen_hooks(), events._get_running_loop()  # noqa: SLF001 - documented for loop authors
        try:
            return self._run(until, self._seconds + seconds, outer)
        finally:
            events._set_running_loop(outer)  # noqa: SLF001
            sys.set_asyncgen_hooks(*hooks)

    def _run(self, until: Callable[[], object], end: float, outer: asyncio.AbstractEventLoop | None) -> bool:
        coming, ready, running = self._coming, self._ready, None  # the loop that is set as the running one
        while not until():
            self._turns += 1
            if self._turns > TURNS_MAX:
                raise TimeStandsStill(f"at {self._seconds:.3f} s")
            if coming and coming[0][0] <= self._seconds:
                heappop(coming)[2]()
            elif ready:
                loop = ready[0] if len(ready) == 1 else ready[int(self.chance.random() * len(ready))]
                if running is not loop:
                    running = loop
                    events._set_running_loop(loop)  # noqa: SLF001
                    sys.set_asyncgen_hooks(*loop.generator_hooks)
                self.executing = loop.host
                self._turns += loop.turn(self.rounds_max) - 1
                self.executing = None
                if outer is not None:  # what looks from outside is executed there
                    events._set_running_loop(outer)  # noqa: SLF001
                    running = None
                if not loop.soon and not loop.is_stopped and loop.first_at > self._seconds:
                    loop.is_ready = False
                    ready.remove(loop)
            elif not self._let_time_pass(end):
                return bool(until())
        return True

    def next_at(self) -> float:
        """When something next happens, in seconds of this world; infinity if nothing ever does by itself."""
        next_at = self._coming[0][0] if self._coming else FOREVER
        return min((host.loop.next_at() for host in self._living if host.is_running), default=next_at)

    def _let_time_pass(self, end: float) -> bool:
        """Go on to the next instant at which something happens; False if that is later than `end`."""
        next_at, due = self._coming[0][0] if self._coming else FOREVER, []
        running = self._running
        # Timers that are cancelled are taken away only where they would be the next thing to happen.
        while not due and self._no_timer_before[0] <= next_at:
            first_at = self._no_timer_before[0] = min(map(_first_at, running), default=FOREVER)
            if first_at > next_at or first_at == FOREVER:
                break
            due = [loop for loop in running if loop.first_at == first_at and loop.next_timer_at() == first_at]
            if due:
                next_at = first_at
        if next_at == FOREVER and end == FOREVER:
            raise NothingHappens
        if next_at > end:
            self._seconds = max(self._seconds, end)
            return False
        for loop in due:
            loop.is_ready = True
            self._ready.append(loop)
        self._seconds = max(self._seconds, next_at)
        self._turns = 0
        return True

    def close(self) -> None:
        """End every host, and let go of what they held."""
        for host in self.hosts:
            host.bury()
        self._coming.clear()
