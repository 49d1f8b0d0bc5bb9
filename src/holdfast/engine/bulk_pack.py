"""The workflow of bulk runs, which every worker executes: select a page, apply the verb to it, sleep, go on.

What it does to runs is in `engine.api.bulk`, which the replica provides; what that means is in `kernel.bulks`. Its
journal holds the cursor, so it goes on where it stood whatever process dies. Cancelled, it stands still, and may be
resumed.
"""

from __future__ import annotations

from typing import Protocol

from msgspec.structs import replace

from holdfast.errors import TransientError
from holdfast.kernel import bulks
from holdfast.kernel.bulks import BulkCounts, BulkOrder, BulkReport, BulkState, SelectedPage, SelectedRun
from holdfast.kernel.retries import Retry
from holdfast.kernel.times import Instant
from holdfast.pack import Pack
from holdfast.workflow import continue_as_new, current, set_attributes, sleep

PAGES_MAX = 20  # in one journal
PATIENT = Retry(attempts=1_000, on=(TransientError,))  # a store that is away does not end it

pack = Pack("holdfast")


class BulkWork(Protocol):
    """What a bulk run does to the runs of its namespace."""

    async def begin(self, bulk_id: str, order: BulkOrder) -> BulkState: ...
    async def select(
        self, order: BulkOrder, began_at_ms: Instant, seen: int, after: tuple[Instant, str] | None
    ) -> SelectedPage: ...
    async def apply(self, bulk_id: str, order: BulkOrder, page: tuple[SelectedRun, ...]) -> BulkCounts: ...


@pack.resource
def runs() -> BulkWork:
    """The verbs of this process."""
    raise AssertionError("the replica provides it")


@pack.effect(safety="natural", retry=PATIENT)
async def count(bulk_id: str, order: BulkOrder, work: BulkWork = runs.shared) -> BulkState:
    return await work.begin(bulk_id, order)


@pack.effect(safety="natural", retry=PATIENT)
async def select(
    order: BulkOrder,
    began_at_ms: Instant,
    seen: int,
    after: tuple[Instant, str] | None,
    work: BulkWork = runs.shared,
) -> SelectedPage:
    return await work.select(order, began_at_ms, seen, after)


@pack.effect(safety="natural", retry=PATIENT)
async def apply(
    bulk_id: str, order: BulkOrder, page: tuple[SelectedRun, ...], work: BulkWork = runs.shared
) -> BulkCounts:
    return await work.apply(bulk_id, order, page)


@pack.workflow(outcomes=("no_effects", "resumable", "partial", "unknown", "completed_first"))
async def bulk(order: BulkOrder, state: BulkState | None = None) -> BulkReport:
    """Apply a verb to all runs that a filter means, page by page."""
    bulk_id = current().run_id
    if state is None:
        state = await count(bulk_id, order)
        await set_attributes(bulks.attributes(state))
    for _ in range(PAGES_MAX):
        page = await select(order, state.began_at_ms, state.counts.seen, state.after)
        counts = await apply(bulk_id, order, page.runs) if page.runs else BulkCounts()
        state = replace(state, counts=state.counts + counts, after=page.next)
        if page.runs:
            await set_attributes(bulks.attributes(state))
        if page.next is None:
            return bulks.report(order, state)
        if pause_ms := order.pause_ms(counts):
            await sleep(pause_ms / 1000)
    return continue_as_new(bulk(order, state))
