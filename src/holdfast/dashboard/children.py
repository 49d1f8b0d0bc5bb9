"""The children of a run: those in trouble first, then all of them, page by page, each with its own to unfold.

A run may have ten thousand. So a page shows some, counts all of them by status, and links to the searches that list
them; the children of a child are asked for when it is unfolded.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from holdfast.client import Run
from holdfast.dashboard.context import HtmlPage, Visit
from holdfast.dashboard.filters import link
from holdfast.kernel.attributes import PARENT
from holdfast.kernel.runs import Status
from holdfast.wire.run_queries import RunQuery

PAGE = 20
TROUBLED = 5


class StatusCount(NamedTuple):
    status: str
    number: str
    href: str


class Family(NamedTuple):
    """Some children of a run. `next` is where the next page begins."""

    parent: str
    total: str
    counts: tuple[StatusCount, ...]
    troubled: tuple[Run[Any], ...]
    runs: tuple[Run[Any], ...]
    next: str | None
    is_first: bool

    @property
    def is_empty(self) -> bool:
        return not self.runs and not self.troubled


async def family_of(visit: Visit, run_id: str, *, after: str | None = None) -> Family:
    """A page of the children of a run, in the order in which they were started."""
    found, troubled, tally = await asyncio.gather(
        visit.caller.runs(attributes={PARENT: run_id}, newest_first=False).page(after=after, limit=PAGE),
        visit.caller.runs(attributes={PARENT: run_id}, status=("failed", "blocked")).page(limit=TROUBLED),
        visit.tallies.of(visit.caller, RunQuery(attributes={PARENT: run_id}), roots_only=False, now_ms=visit.now_ms),
    )
    counts = tuple(
        StatusCount(status.value, tally.of(status), link(f'{PARENT}="{run_id}" status:{status}', children=True))
        for status in Status
        if tally.counts.get(status)
    )
    shown = {run.id for run in found.runs}
    others = tuple(run for run in troubled.runs if run.id not in shown) if after is None else ()
    return Family(run_id, tally.of(), counts, others, found.runs, found.next, after is None)


async def children(visit: Visit) -> HtmlPage:
    """The page of a run's children; the page of the run takes its list from here when one is unfolded."""
    run = await visit.caller.get(visit.part("run_id"))
    after = visit.request.query_params.get("after") or None
    family = await family_of(visit, run.id, after=after)
    return HtmlPage("children.html", f"Children of {run.key or run.id}", {"run": run, "family": family})
