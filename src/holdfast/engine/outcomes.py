"""Tells those who wait for a run that it has ended, or that it is blocked.

Runs that end in this process say so themselves. The others are looked up, all in one query, when another
process has committed; and now and then besides, in case a notice was lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.engine.events import Emit, StoreTroubled
from holdfast.errors import TimedOut, TransientError, UnknownRun
from holdfast.kernel.changes import ENDED, Run, Status
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store

SETTLED = ENDED | {Status.BLOCKED}
SAFETY_POLL_SECONDS = 5.0
LOOK_UP_MAX = 500
REST_FACTOR = 4  # after a look, rest this many times as long as it took: many waiters must not starve the work


class Outcomes:
    """Who waits for which run."""

    def __init__(self, store: Store, *, clock: Clock, emit: Emit, held_here: Callable[[str], bool]) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        self._held_here = held_here
        self._waiting: dict[str, list[asyncio.Future[Run]]] = {}
        self._changed = asyncio.Event()

    def settled(self, run: Run) -> None:
        """`run` has ended or is blocked, in this process."""
        for waiting in self._waiting.pop(run.id, ()):
            if not waiting.done():
                waiting.set_result(run)

    def look(self) -> None:
        """Another process has committed something."""
        self._changed.set()

    async def wait(self, run_id: str) -> Run:
        """The run, once it has ended or is blocked."""
        future: asyncio.Future[Run] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, []).append(future)
        if not self._held_here(run_id):
            self._changed.set()  # it may have ended already
        try:
            return await future
        finally:
            waiting = self._waiting.get(run_id, [])
            if future in waiting:
                waiting.remove(future)
                if not waiting:
                    del self._waiting[run_id]

    async def settled_within(self, run_id: str, limit_ms: int | None) -> Run:
        """The run, once it has ended or is blocked, or `TimedOut`."""
        if limit_ms is None:
            return await self.wait(run_id)
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return await self.wait(run_id)
        except TimeoutError:
            raise TimedOut(
                f"run {run_id} has not ended within {limit_ms / 1000:g} s",
                hint="It goes on; ask for its result again later.",
            ) from None

    async def watch(self) -> None:
        """Look up what others have settled, for ever."""
        while True:
            try:
                async with asyncio.timeout(SAFETY_POLL_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            began_ms = self._clock.steady_ms()
            try:
                await self._look_up()
            except TransientError as error:
                self._emit(StoreTroubled(str(error)))
                self._changed.set()
            await self._clock.pause(REST_FACTOR * (self._clock.steady_ms() - began_ms) / 1000)

    async def _look_up(self) -> None:
        run_ids = [run_id for run_id in self._waiting if not self._held_here(run_id)]
        for start in range(0, len(run_ids), LOOK_UP_MAX):
            asked = run_ids[start : start + LOOK_UP_MAX]
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
