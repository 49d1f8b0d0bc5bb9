"""The pulse: how many runs end and how long they take, from events where those tell all, else from the store.

If the one live worker of a namespace is this process, its events tell every end; only what ended before the first of
them has to be read, once. Otherwise runs end in other processes, too: then the store is asked for those that ended
last, a page of them, at most every few seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.assembly import Holdfast
from holdfast.client import Caller
from holdfast.dashboard.series import SPAN_MS, End, Figures, Series
from holdfast.events import Event, RunEnded
from holdfast.kernel.times import EPOCH, Instant, Millis
from holdfast.kernel.units import utc_of
from holdfast.ports.store import Member

FRESH_MS = Millis(5_000)
PAGE = 1_000


class Throughput:
    """Listens, and remembers the last minutes."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._heard = Series()
        self._first_heard_at_ms: Instant | None = None
        self._first_heard: set[str] = (
            set()
        )  # the runs that ended in that very millisecond, in which others may have, too
        self._knows_the_past = False
        self._read: dict[str, tuple[int, Series]] = {}  # by namespace, and when
        hf.listen(self._hear)

    def _hear(self, event: Event) -> None:
        if isinstance(event, RunEnded) and event.namespace == self._hf.namespace:
            at_ms = event.created_at_ms + event.elapsed_ms
            if self._first_heard_at_ms is None:
                self._first_heard_at_ms = at_ms
            if at_ms == self._first_heard_at_ms:
                self._first_heard.add(event.run_id)
            self._heard.add(End(at_ms, event.elapsed_ms, event.status == "failed"))

    async def figures(self, caller: Caller, workers: Sequence[Member], *, now_ms: Instant) -> Figures:
        """The last minutes of the caller's namespace, which these workers serve."""
        alone = [worker.owner for worker in workers] == [self._hf.runtime.owner]
        if not alone or caller.namespace != self._hf.namespace:
            return (await self._from_store(caller, now_ms)).figures(now_ms)
        if not self._knows_the_past:
            self._knows_the_past = True
            until_ms = now_ms if self._first_heard_at_ms is None else self._first_heard_at_ms + Millis(1)
            for end in await self._ends(caller, now_ms - SPAN_MS, until_ms, but=self._first_heard):
                self._heard.add(end)
        return self._heard.figures(now_ms)

    async def _from_store(self, caller: Caller, now_ms: Instant) -> Series:
        read_at_ms, series = self._read.get(caller.namespace, (EPOCH, Series()))
        if read_at_ms + FRESH_MS < now_ms:
            series = Series(await self._ends(caller, now_ms - SPAN_MS, now_ms))
            self._read[caller.namespace] = now_ms, series
        return series

    async def _ends(self, caller: Caller, since_ms: Instant, until_ms: Instant, but: Collection[str] = ()) -> list[End]:
        if since_ms >= until_ms:
            return []
        recent = caller.runs(finished_after=utc_of(since_ms), finished_before=utc_of(until_ms))
        return [
            End(
                Instant(int(run.finished_at.timestamp() * 1_000)),
                Millis(int((run.finished_at - run.created_at).total_seconds() * 1_000)),
                run.status == "failed",
            )
            for run in (await recent.page(limit=PAGE)).runs
            if run.finished_at is not None and run.id not in but
        ]
