"""How many runs a search means, by status. A count stops at a bound, so that it costs the same however many there are.

One page of the search says it all if it is not full; else each status is counted for itself. Of everything there is the
store keeps counts of its own. What was counted is good for some seconds: a page that is live asks again and again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.client import Caller
from holdfast.kernel.runs import Status
from holdfast.kernel.times import Instant, Millis
from holdfast.ports.store import COUNT_MAX
from holdfast.wire.run_queries import RunQuery

BOUND = 1_000
FRESH_MS = Millis(5_000)
KEPT_MAX = 64
EVERYTHING = RunQuery()


class Tally(NamedTuple):
    """Counts by status, and the number at which they stop."""

    counts: Mapping[str, int]
    bound: int = BOUND

    def of(self, *statuses: str) -> str:
        """How many runs have one of these statuses; of all, if none is named."""
        counted = [self.counts.get(each, 0) for each in statuses or Status]
        return f"{sum(counted):,}{'+' if any(each >= self.bound for each in counted) else ''}"


class Tallies:
    """Counts, and remembers for a while what was counted."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, bool], tuple[Instant, Tally]] = {}  # the oldest first

    async def of(self, caller: Caller, query: RunQuery, *, roots_only: bool, now_ms: Instant) -> Tally:
        """The counts of a search, whatever statuses it names."""
        query = replace(query, statuses=())
        asked = caller.namespace, repr(query), roots_only
        kept = self._kept.get(asked)
        if kept is not None and kept[0] <= now_ms < kept[0] + FRESH_MS:
            return kept[1]
        counted = await count(caller, query, roots_only=roots_only)
        self._kept.pop(asked, None)
        self._kept[asked] = now_ms, counted
        if len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        return counted


async def count(caller: Caller, query: RunQuery, *, roots_only: bool, bound: int = BOUND) -> Tally:
    """The counts as they are now."""
    if query == EVERYTHING and not roots_only:
        return Tally({status.value: number for status, number in (await caller.backlog()).statuses.items()}, COUNT_MAX)
    page = await query.runs(caller, roots_only=roots_only).page(limit=bound)
    if page.next is None:
        return Tally(Counter(run.status for run in page.runs), bound)
    pages = await asyncio.gather(
        *(
            replace(query, statuses=(status.value,)).runs(caller, roots_only=roots_only).page(limit=bound)
            for status in Status
        )
    )
    return Tally({status.value: len(each.runs) for status, each in zip(Status, pages, strict=True)}, bound)
