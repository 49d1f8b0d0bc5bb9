"""Tells those who wait for a run that it has ended, or that it is blocked.

Runs that end in this process say so themselves. The others are looked up, all in one query: those that a notice names,
or all of them when another process has committed and it is not known what; and now and then, in case a notice was lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from holdfast.engine.pace import Pace
from holdfast.errors import TimedOut, TransientError, UnknownRun
from holdfast.events import Emit, StoreTroubled
from holdfast.kernel.runs import SETTLED, Run
from holdfast.kernel.times import Millis
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store


class Waiters:
    """Who waits for which run."""

    def __init__(self, store: Store, *, clock: Clock, emit: Emit, pace: Pace, held_here: Callable[[str], bool]) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        self._pace = pace
        self._held_here = held_here
        self._waiting: dict[str, list[asyncio.Future[Run]]] = {}
        self._changed = asyncio.Event()
        self._named: set[str] = set()  # those that notices have named since the last look
        self._look_at_all = False

    def settled(self, run: Run) -> None:
        """`run` has ended or is blocked, in this process."""
        for waiting in self._waiting.pop(run.id, ()):
            if not waiting.done():
                waiting.set_result(run)

    def look(self) -> None:
        """Another process has committed something. One who begins to wait looks by itself."""
        if self._waiting:
            self._look_at_all = True
            self._changed.set()

    def look_at(self, run_ids: Collection[str]) -> None:
        """Another process has settled these runs."""
        if waited_for := self._waiting.keys() & run_ids:
            self._named |= waited_for
            self._changed.set()

    async def wait(self, run_id: str, limit_ms: Millis | None = None) -> Run:
        """The run, once it has ended or is blocked; or `TimedOut`, if that takes longer than `limit_ms`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Run] = loop.create_future()
        timer = None if limit_ms is None else loop.call_later(limit_ms / 1000, _time_out, future, run_id, limit_ms)
        self._waiting.setdefault(run_id, []).append(future)
        if not self._held_here(run_id):
            self._named.add(run_id)  # it may have ended already
            self._changed.set()
        try:
            return await future
        finally:
            if timer is not None:
                timer.cancel()
            if (waiting := self._waiting.get(run_id)) is not None and future in waiting:
                waiting.remove(future)
                if not waiting:
                    del self._waiting[run_id]

    async def watch(self) -> None:
        """Look up what other processes have settled, forever."""
        pace = self._pace
        looked_steady_ms = self._clock.steady_ms()  # at all of them
        while True:
            left = pace.waiters_poll_seconds - (self._clock.steady_ms() - looked_steady_ms) / 1000
            try:
                async with asyncio.timeout(max(0.0, left)):
                    await self._changed.wait()
            except TimeoutError:  # not asked of the clock: of a moment that is left it may say that none is
                self._look_at_all = True
            self._changed.clear()
            began_steady_ms, look_at_all, named = self._clock.steady_ms(), self._look_at_all, self._named
            self._look_at_all, self._named = False, set()
            try:
                await self._look_up(self._waiting if look_at_all else sorted(named & self._waiting.keys()))
            except TransientError as error:
                self._emit(StoreTroubled(str(error)))
                await self._clock.pause(pace.trouble_pause_seconds)
                self.look()
                continue
            if look_at_all:
                looked_steady_ms = self._clock.steady_ms()
                rest = pace.rest_factor * (looked_steady_ms - began_steady_ms) / 1000
                await self._clock.pause(min(rest, pace.waiters_poll_seconds))

    async def _look_up(self, waited_for: Iterable[str]) -> None:
        at_once = self._pace.look_up_max
        run_ids = [run_id for run_id in waited_for if not self._held_here(run_id)]
        for start in range(0, len(run_ids), at_once):
            asked = run_ids[start : start + at_once]
            found = {run.id: run for run in await self._store.runs(asked)}
            for run_id in asked:
                run = found.get(run_id)
                if run is None:
                    self._gone(run_id)
                elif run.status in SETTLED:
                    self.settled(run)

    def _gone(self, run_id: str) -> None:
        for waiting in self._waiting.pop(run_id, ()):
            if not waiting.done():
                waiting.set_exception(UnknownRun(f"run {run_id} has been removed"))


def _time_out(waiting: asyncio.Future[Run], run_id: str, limit_ms: Millis) -> None:
    if not waiting.done():
        waiting.set_exception(
            TimedOut(
                f"run {run_id} has not ended within {limit_ms / 1000:g} s",
                hint="It goes on; ask for its result again later.",
            )
        )
