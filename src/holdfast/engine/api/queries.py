"""Looking at runs: finding them, following them, explaining them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.engine.announcements import announced_by
from holdfast.engine.api.at_work import StepsAtWork
from holdfast.engine.api.lanes import LaneVerbs
from holdfast.engine.api.scope import Scope
from holdfast.engine.api.subscriptions import Subscriptions
from holdfast.journal import Journal, RunEvent
from holdfast.kernel import bulks, explanations, handovers, waits
from holdfast.kernel.explanations import Story
from holdfast.kernel.handovers import Code
from holdfast.kernel.running_effects import StepAtWork
from holdfast.kernel.runs import ENDED, Run, Status
from holdfast.kernel.searches import Search
from holdfast.kernel.times import Instant
from holdfast.kernel.waits import LanePlace, Wait
from holdfast.ports.store import Backlog, History, Member


class Replayed(NamedTuple):
    """How the code of today fares with the journal of a run; `divergence` is empty if it fits."""

    run_id: str
    workflow: str
    divergence: str


class Queries:
    """The verbs that change nothing."""

    def __init__(
        self,
        scope: Scope,
        subscriptions: Subscriptions,
        *,
        lanes: LaneVerbs,
        served_here: frozenset[str],
        at_work: StepsAtWork,
    ) -> None:
        self._scope = scope
        self._lanes = lanes
        self._at_work = at_work
        self._served_here = served_here
        self._subscriptions = subscriptions
        self._served: frozenset[str] = frozenset()
        self._asked_at_ms = 0
        self._codes: Collection[dict[str, Code]] = ()
        self._codes_at_ms = 0

    async def search(self, search: Search) -> list[Run]:
        self._scope.require_open()
        return await self._scope.store.search(search)

    async def served(self, runs: Sequence[Run]) -> frozenset[str] | None:
        """The workflows that some live worker executes; None if there is no need to ask.

        It is asked only if one of the runs waits for a worker, and this process has none for it. That there is one is
        believed for a moment: a caller that starts many runs does not ask for each.
        """
        now_ms = self._scope.store.now_ms()
        versioned = [run for run in runs if run.version and run.status is Status.PENDING]
        lacking = await self._lacking(versioned, now_ms) if versioned else frozenset[str]()
        wanted = {run.workflow for run in runs if _needs_worker(run, now_ms)} - self._served_here
        if not wanted:
            return frozenset(run.workflow for run in runs) | lacking if lacking else None
        if not wanted <= self._served or now_ms - self._asked_at_ms > self._scope.pace.served_ms:
            self._asked_at_ms, self._served = now_ms, await self._scope.store.served(self._scope.namespace)
        return self._served | lacking

    async def _lacking(self, runs: Sequence[Run], now_ms: Instant) -> frozenset[str]:
        """The versions of these runs that they are pinned to, and that no live worker serves."""
        if now_ms - self._codes_at_ms > self._scope.pace.served_ms:
            namespace, store = self._scope.namespace, self._scope.store
            self._codes_at_ms = now_ms
            self._codes = (await announced_by(store, namespace, await store.members(namespace))).values()
        codes = {run.workflow: [each[run.workflow] for each in self._codes if run.workflow in each] for run in runs}
        return frozenset(
            waits.lacking(run.workflow, run.version)
            for run in runs
            if handovers.lacks_version(run, codes[run.workflow])
        )

    async def members(self) -> list[Member]:
        """The live workers, and the workflows of packs that they execute."""
        self._scope.require_open()
        return list(map(_without_own, await self._scope.store.members(self._scope.namespace)))

    async def backlog(self) -> Backlog:
        """How much there is to do."""
        self._scope.require_open()
        return await self._scope.store.backlog(self._scope.namespace)

    async def at_work(self, runs: Sequence[Run]) -> Mapping[str, tuple[StepAtWork, ...]]:
        """The effects that run now for these runs, by run id."""
        self._scope.require_open()
        return await self._at_work.of(runs)

    async def places(self, runs: Sequence[Run]) -> Mapping[str, LanePlace]:
        """Where those of these runs stand that are parked in a lane, by run id."""
        self._scope.require_open()
        return await self._lanes.places(runs)

    def waits_of(
        self,
        run: Run,
        served: frozenset[str] | None,
        at_work: tuple[StepAtWork, ...] = (),
        place: LanePlace | None = None,
    ) -> tuple[Wait, ...]:
        if run.status in ENDED:
            return ()
        known = frozenset({run.workflow}) if served is None else served
        return waits.waits_of(run, served=known, now_ms=self._scope.store.now_ms(), running=at_work, place=place)

    async def explain(self, run_id: str) -> Story:
        """The story of a run."""
        history = await self._scope.history(run_id)
        run = history.run
        at_work = await self._at_work.in_history(history)
        begun = explanations.under_way(run, history.journal)
        place = (await self.places([run])).get(run.id)
        waits_now = self.waits_of(run, await self.served([run]), at_work, place)
        waiting_on = (*await self._turn_of(run), *waits_now, *begun)
        actions = explanations.next_actions(run, history.journal, now_ms=self._scope.store.now_ms())
        return explanations.story(run, history.journal, waiting_on=waiting_on, next_actions=actions)

    async def _turn_of(self, run: Run) -> tuple[Wait, ...]:
        """What the run waits for if others go before it, as it takes turns with them."""
        now_ms = self._scope.store.now_ms()
        if run.status is not Status.PENDING or run.wake_at_ms is None or run.wake_at_ms > now_ms:
            return ()
        turn = await self._scope.store.turn(run)
        return (Wait("turn", turn.share, ahead=turn.ahead),) if turn is not None and turn.ahead else ()

    async def journal(self, run_id: str) -> Journal:
        """What has happened to a run, since it last continued as new."""
        return _journal_of(await self._scope.history(run_id))

    async def events(self, run_id: str, after: int | None) -> AsyncIterator[RunEvent]:
        """What happens to a run, entry by entry, until it has ended."""
        cursor = -1 if after is None else after
        with self._subscriptions.following(run_id) as changed:
            while True:
                changed.clear()
                history = await self._scope.history(run_id)
                for event in _journal_of(history).after(cursor).events():
                    cursor = event.cursor
                    yield event
                if history.run.status in ENDED:
                    return
                with contextlib.suppress(TimeoutError):  # a notice may be lost
                    async with asyncio.timeout(self._scope.pace.events_poll_seconds):
                        await changed.wait()


def _needs_worker(run: Run, now_ms: Instant) -> bool:
    """Whether a worker would take it up now, or as soon as it is its turn."""
    return waits.may_be_parked(run) if run.wake_at_ms is None else run.wake_at_ms <= now_ms


def _without_own(member: Member) -> Member:
    """The engine's own workflows are left out: every worker executes them."""
    named = tuple(name for name in member.serves.workflows if name != bulks.WORKFLOW)
    return replace(member, serves=replace(member.serves, workflows=named))


def _journal_of(history: History) -> Journal:
    return Journal(history.journal, first=history.run.length - len(history.journal))
