"""Looking at lanes, and setting them by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.engine.api.scope import Scope
from holdfast.errors import UnknownLane, UsageError
from holdfast.events import LaneSet
from holdfast.kernel import lanes, waits
from holdfast.kernel.lanes import LaneSetting, LaneState
from holdfast.kernel.runs import Run
from holdfast.kernel.waits import LanePlace


class FoundLane(NamedTuple):
    """A lane, and the row of the run that has been there for longest."""

    state: LaneState
    head: Run | None


class LaneVerbs:
    """The lanes of one namespace."""

    def __init__(self, scope: Scope, *, on_set: Callable[[], None]) -> None:
        self._scope = scope
        self._on_set = on_set

    async def lane(self, name: str) -> FoundLane:
        """The lane of this name, or `UnknownLane`."""
        self._scope.require_open()
        found = await self._scope.store.lane(self._scope.namespace, lanes.checked_name(name))
        if found is None:
            raise UnknownLane(name)
        return (await self._with_heads([found]))[0]

    async def page(self, after: str, limit: int) -> list[FoundLane]:
        """Those whose name comes behind `after`, by name."""
        self._scope.require_open()
        return await self._with_heads(await self._scope.store.lanes(self._scope.namespace, after=after, limit=limit))

    async def set(self, name: str, width: int | None, *, paused: bool | None, by: str) -> FoundLane:
        """Set a lane by hand, whether or not a run has used it."""
        self._scope.require_open()
        setting = LaneSetting(
            self._scope.namespace,
            lanes.checked_name(name),
            None if width is None else lanes.checked_width(width),
            checked_paused(paused),
            by,
        )
        if width is None and paused is None:
            raise UsageError(f"lane {name!r} is to be set to nothing", hint="Pass width=, paused=, or both.")
        found = await self._scope.store.set_lane(setting)
        self._scope.emit(LaneSet(name, found.lane.width, found.lane.paused, by))
        self._on_set()
        return (await self._with_heads([found]))[0]

    async def _with_heads(self, found: Sequence[LaneState]) -> list[FoundLane]:
        ids = [each.head for each in found if each.head is not None]
        runs = {run.id: run for run in await self._scope.store.runs(ids)} if ids else {}
        return [FoundLane(each, runs.get(each.head or "")) for each in found]

    async def places(self, runs: Sequence[Run]) -> Mapping[str, LanePlace]:
        """Where those of these runs stand that are parked, by run id."""
        store, namespace = self._scope.store, self._scope.namespace
        parked = [run for run in runs if waits.may_be_parked(run)]
        if not parked:
            return {}
        standings = await asyncio.gather(*map(store.standing, parked))
        names = sorted({run.lane for run in parked})
        found = await asyncio.gather(*(store.lane(namespace, name) for name in names))
        states = dict(zip(names, found, strict=True))
        first_ids = sorted({each.first for each in standings if each is not None and each.first is not None})
        firsts = {run.id: run for run in await store.runs(first_ids)}
        places = {
            run.id: waits.place_of(standing, states[run.lane], firsts.get(standing.first or ""))
            for run, standing in zip(parked, standings, strict=True)
            if standing is not None
        }
        return {run_id: place for run_id, place in places.items() if place is not None}


def checked_paused(paused: Any) -> bool | None:
    """`paused`, or a `UsageError`."""
    if paused is not None and not isinstance(paused, bool):
        raise UsageError(f"paused={paused!r:.60} is neither True nor False", hint="Write paused=True.")
    return paused
