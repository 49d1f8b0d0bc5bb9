"""A lane, as callers have it. All names are imported from `holdfast.client`, where the verbs are that return lanes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from msgspec import Struct

from holdfast.engine.api.backend import Backend
from holdfast.engine.api.lanes import FoundLane
from holdfast.errors import UsageError
from holdfast.run import Run, snapshot

PAGE = 50
PAGE_MAX = 200


class Lane(Struct, frozen=True, kw_only=True):
    """A lane as it was when this was read: runs go through it one after the other, or `width` of them at once.

    `active` runs may be executed, the `parked` ones wait for their turn; while it is `paused`, no run becomes active.
    `head` is the run that has been there for longest: an active one, if there is any. `active_runs` and `parked_runs`
    are the ids of the first of them, in order, up to twenty each.
    """

    name: str
    width: int
    active: int
    parked: int
    paused: bool
    head: Run[Any] | None
    active_runs: tuple[str, ...] = ()
    parked_runs: tuple[str, ...] = ()


class LanePage(NamedTuple):
    """Some of the lanes; `next` is where the next page begins, None if there is none."""

    lanes: tuple[Lane, ...]
    next: str | None


class Lanes:
    """The lanes that there are, by name: iterate over them, or ask for a page."""

    def __init__(self, service: Backend) -> None:
        self._service = service

    async def __aiter__(self) -> AsyncIterator[Lane]:
        page = await self.page()
        while True:
            for lane in page.lanes:
                yield lane
            if page.next is None:
                return
            page = await self.page(after=page.next)

    async def page(self, *, after: str | None = None, limit: int = PAGE) -> LanePage:
        """Up to `limit` lanes, those that come behind the cursor `after`."""
        if not 1 <= limit <= PAGE_MAX:
            raise UsageError(f"a page of {limit} lanes is not possible", hint=f"Ask for 1 to {PAGE_MAX}.")
        found = await self._service.lanes.page(after or "", limit)
        lanes = tuple([await lane_of(each, self._service) for each in found])
        return LanePage(lanes, found[-1].state.lane.name if len(found) == limit else None)


async def lane_of(found: FoundLane, service: Backend) -> Lane:
    """The lane, with its first run as callers have runs."""
    state = found.state
    return Lane(
        name=state.lane.name,
        width=state.lane.width,
        active=state.active,
        parked=state.parked,
        paused=state.lane.paused,
        head=None if found.head is None else await snapshot(found.head, service),
        active_runs=state.first_active,
        parked_runs=state.first_parked,
    )
