"""Looking at runs: finding them, following them, explaining them, and replaying them against the code of today."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from holdfast.engine.access import Access
from holdfast.engine.followers import Followers
from holdfast.engine.guards import keep_order, keep_the_collector_out
from holdfast.engine.machine import Machine
from holdfast.engine.replaying import replay
from holdfast.errors import HoldfastError, UnknownWorkflow
from holdfast.kernel import searches, stories, waits
from holdfast.kernel.changes import ENDED, Run, Status
from holdfast.kernel.forks import values
from holdfast.kernel.journal import Entry
from holdfast.kernel.replay import noted
from holdfast.kernel.searches import Search
from holdfast.kernel.stories import Story
from holdfast.kernel.waits import Wait
from holdfast.ports.store import Backlog, History, Member
from holdfast.workflow import Current

SAFETY_POLL_SECONDS = 15.0
SERVED_MS = 1_000
REPLAY_PAGE = 20  # replaying is work without a wait; others want their turn


class Replayed(NamedTuple):
    """How the code of today fares with the journal of a run; `divergence` is empty if it fits."""

    run_id: str
    workflow: str
    divergence: str


class RunEvent(NamedTuple):
    """Something that has happened to a run. With `after=cursor` one goes on behind it."""

    cursor: int
    entry: Entry


class Lookouts:
    """The verbs that change nothing."""

    def __init__(self, access: Access, followers: Followers, *, served_here: frozenset[str]) -> None:
        self._access = access
        self._served_here = served_here
        self._followers = followers
        self._served: frozenset[str] = frozenset()
        self._asked_ms = 0

    async def search(self, search: Search) -> list[Run]:
        self._access.require_open()
        return await self._access.store.search(search)

    async def served(self, runs: Sequence[Run]) -> frozenset[str] | None:
        """The workflows that some live worker executes; None if there is no need to ask.

        It is asked only if one of the runs waits for a worker, and this process has none for it. That there is one is
        believed for a moment: who starts many runs does not ask for each.
        """
        now_ms = self._access.store.now_ms()
        waiting = (run for run in runs if run.wake_ms is not None and run.wake_ms <= now_ms)
        wanted = {run.workflow for run in waiting} - self._served_here
        if not wanted:
            return None
        if not wanted <= self._served or now_ms - self._asked_ms > SERVED_MS:
            self._asked_ms, self._served = now_ms, await self._access.store.served(self._access.namespace)
        return self._served

    async def members(self) -> list[Member]:
        """The live workers."""
        self._access.require_open()
        return await self._access.store.members(self._access.namespace)

    async def backlog(self) -> Backlog:
        """How much there is to do."""
        self._access.require_open()
        return await self._access.store.backlog(self._access.namespace)

    def waits_of(self, run: Run, served: frozenset[str] | None) -> tuple[Wait, ...]:
        known = frozenset({run.workflow}) if served is None else served
        return waits.waits_of(run, served=known, now_ms=self._access.store.now_ms())

    async def explain(self, run_id: str) -> Story:
        """The story of a run."""
        history = await self._access.history(run_id)
        run = history.run
        waiting_on = (*self.waits_of(run, await self.served([run])), *stories.under_way(run, history.journal))
        return stories.story(
            run, history.journal, waiting_on=waiting_on, next_actions=stories.next_actions(run, history.journal)
        )

    async def recorded(self, run_id: str) -> tuple[RunEvent, ...]:
        """What has happened to a run, since it last began anew."""
        return _events_of(await self._access.history(run_id))

    async def events(self, run_id: str, after: int | None) -> AsyncIterator[RunEvent]:
        """What happens to a run, entry by entry, until it has ended."""
        cursor = -1 if after is None else after
        with self._followers.following(run_id) as changed:
            while True:
                changed.clear()
                history = await self._access.history(run_id)
                for event in _events_of(history):
                    if event.cursor > cursor:
                        cursor = event.cursor
                        yield event
                if history.run.status in ENDED:
                    return
                with contextlib.suppress(TimeoutError):  # a notice may be lost
                    async with asyncio.timeout(SAFETY_POLL_SECONDS):
                        await changed.wait()

    async def replay_check(
        self, workflow: str | None, statuses: frozenset[Status], limit: int | None
    ) -> list[Replayed]:
        """Replay stored journals against the code of today. Nothing is performed, nothing is written."""
        keep_order()  # this process may have no worker
        keep_the_collector_out()
        checked: list[Replayed] = []
        after: tuple[int, str] | None = None
        while limit is None or len(checked) < limit:
            page = await self.search(
                Search(
                    namespace=self._access.namespace,
                    limit=REPLAY_PAGE if limit is None else min(REPLAY_PAGE, limit - len(checked)),
                    workflow=workflow,
                    statuses=statuses,
                    after=after,
                )
            )
            checked += [
                Replayed(history.run.id, history.run.workflow, await self._divergence(history))
                for history in await self._access.store.histories([run.id for run in page])
            ]
            if not page:
                break
            after = searches.place_of(searches.cursor_of(page[-1]))
        return checked

    async def _divergence(self, history: History) -> str:
        run, journal = history.run, history.journal
        try:
            workflow = self._access.registry.workflow(run.workflow)
        except UnknownWorkflow as error:
            return error.message
        blobs = {value.blob: await self._access.bytes_of(run.id, value) for value in values(journal) if value.blob}
        current = Current(run.id, run.key, run.workflow, run.version or None)
        machine = Machine(
            workflow,
            current,
            codec=self._access.codec,
            blobs=blobs,
            noted=noted(journal, first=run.length - len(journal)),
        )
        try:
            replay(machine, run, journal)
        except HoldfastError as error:
            return error.message
        finally:
            machine.evict()
        return ""


def _events_of(history: History) -> tuple[RunEvent, ...]:
    first = history.run.length - len(history.journal)
    return tuple(RunEvent(position, entry) for position, entry in enumerate(history.journal, first))
