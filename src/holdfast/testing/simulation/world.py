"""A simulated world: hosts that execute the real engine, in virtual time, in an order that a seed decides.

    world = World(seed=4711)
    worker = world.host("worker-1")
    task = worker.spawn(serve(...))
    world.run(until=task.done)

Nothing in a world takes real time but computing. Equal seeds give equal worlds: all chance comes from `world.chance`
and from the hosts' own, all time from `world.now`.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random  # noqa: TID251 - seeded
from typing import Any

from holdfast.testing.simulation.hosts import Host

FOREVER = float("inf")


class NothingHappens(Exception):
    """Nothing will ever happen in this world, and what was waited for has not."""


class World:
    """Time, hosts, and what travels between them."""

    def __init__(self, seed: int | str = 0) -> None:
        self.seed = seed
        self.chance = Random(f"{seed}/world")
        self.hosts: list[Host] = []
        self._seconds = 0.0
        self._coming: list[tuple[float, int, Callable[[], Any]]] = []
        self._count = 0

    def now(self) -> float:
        """Seconds since the world began."""
        return self._seconds

    def host(self, name: str) -> Host:
        """A new process. A name may be used again once its process is dead."""
        host = Host(self, name, len(self.hosts) + 1)
        self.hosts.append(host)
        return host

    def after(self, seconds: float, callback: Callable[[], Any]) -> None:
        """Call back then, outside of every host: for what travels, and for faults."""
        self._count += 1
        heappush(self._coming, (self._seconds + seconds, self._count, callback))

    def run(self, until: Callable[[], object], *, seconds: float = FOREVER) -> bool:
        """Let the world go on until this is true, for this long at most; whether it is true.

        Raises `NothingHappens` if nothing is left that could make it true.
        """
        end = self._seconds + seconds
        while not until():
            if not self._step(end):
                self._seconds = max(self._seconds, end)
                return bool(until())
        return True

    def next_at(self) -> float:
        """When something next happens, in seconds of this world; infinity if nothing ever does by itself."""
        next_at = min((at for at, _, _ in self._coming[:1]), default=FOREVER)
        for host in self.hosts:
            at = host.loop.next_at() if host.is_running else None
            if at is not None and at < next_at:
                next_at = at
        return next_at

    def _step(self, end: float) -> bool:
        """Let the next thing happen; False if that is later than `end`."""
        if self._coming and self._coming[0][0] <= self._seconds:
            heappop(self._coming)[2]()
            return True
        next_at = min((at for at, _, _ in self._coming[:1]), default=FOREVER)
        ready: list[Host] = []
        for host in self.hosts:
            at = host.loop.next_at() if host.is_running else None
            if at is None:
                continue
            if at <= self._seconds:
                ready.append(host)
            next_at = min(next_at, at)
        if ready:
            (ready[0] if len(ready) == 1 else self.chance.choice(ready)).loop.turn()
            return True
        if next_at == FOREVER and end == FOREVER:
            raise NothingHappens
        if next_at > end:
            return False
        self._seconds = next_at
        return True

    def close(self) -> None:
        """End every host, and let go of what they held."""
        for host in self.hosts:
            host.bury()
        self._coming.clear()
