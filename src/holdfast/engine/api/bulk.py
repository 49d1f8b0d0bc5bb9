"""One verb on many runs: what a bulk run does to them, how it is started, and what it would do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from holdfast import events
from holdfast.engine.api.operations import Operations
from holdfast.engine.api.scope import Scope
from holdfast.engine.api.signals import Signals, check
from holdfast.engine.api.start_options import StartOptions
from holdfast.engine.bulk_pack import bulk
from holdfast.errors import HoldfastError, NotAllowedNow, TransientError, UnknownRun
from holdfast.kernel import bulks, transitions
from holdfast.kernel.attributes import Scalar
from holdfast.kernel.bulks import BulkCounts, BulkOrder, BulkState, Preview, Previewed, SelectedPage, SelectedRun
from holdfast.kernel.changes import Committed
from holdfast.kernel.runs import Run
from holdfast.kernel.searches import PAGE_MAX
from holdfast.kernel.times import Instant
from holdfast.pack import Call
from holdfast.ports.store import COUNT_MAX, History

AT_ONCE = 20  # whose journals are in memory
Start = Callable[[Call[Any], StartOptions], Awaitable[tuple[Run, bool]]]


class Bulk:
    """Bulk operations on the runs of one namespace."""

    def __init__(
        self,
        scope: Scope,
        *,
        operations: Operations,
        signals: Signals,
        start: Start,
        on_pending: Callable[[Run], None],
    ) -> None:
        self._scope = scope
        self._operations = operations
        self._signals = signals
        self._start = start
        self._on_pending = on_pending

    # -- for callers

    async def start(self, order: BulkOrder, options: StartOptions) -> tuple[Run, bool]:
        """Start a bulk run, once per key."""
        self._check(order)
        shown: dict[str, Scalar] = {"verb": order.verb}
        if order.runs.workflow is not None:
            shown["workflow"] = order.runs.workflow
        return await self._start(bulk(order), replace(options, attributes=shown))

    async def preview(self, order: BulkOrder, first: int) -> Preview:
        """What a bulk run would do if it began now. Changes nothing."""
        self._check(order)
        self._scope.require_open()
        now_ms = self._scope.store.now_ms()
        limit = COUNT_MAX if order.limit is None else min(COUNT_MAX, order.limit)
        runs: list[Run] = []
        matched, is_all = 0, True
        async for run in self._meant(order, now_ms):
            if matched == limit:
                is_all = order.limit is not None and order.limit <= COUNT_MAX
                break
            matched += 1
            if len(runs) < first:
                runs.append(run)
        histories = await self._histories([run.id for run in runs])
        shown = [Previewed(run, await self._refusal(order, histories.get(run.id))) for run in runs]
        return Preview(matched, is_all, tuple(shown))

    def _check(self, order: BulkOrder) -> None:
        if order.verb == "signal":
            self._signals.signal(order.hook, order.payload, None)

    async def _histories(self, run_ids: list[str]) -> dict[str, History | str]:
        """Each run with its journal, or why that cannot be read: one that is damaged must not hold up the others."""
        try:
            return {each.run.id: each for each in await self._scope.store.histories(run_ids)}
        except TransientError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever is in the journal, a newer version may have written it
            if len(run_ids) == 1:
                return {run_ids[0]: f"its journal cannot be read: {error}"}
        found: dict[str, History | str] = {}
        for run_id in run_ids:
            found |= await self._histories([run_id])
        return found

    async def _refusal(self, order: BulkOrder, history: History | str | None) -> str:
        if history is None:
            return "it was removed meanwhile"
        if isinstance(history, str):
            return history
        run, now_ms = history.run, self._scope.store.now_ms()
        try:
            match order.verb:
                case "retry":
                    transitions.retry(run, history.journal, now_ms=now_ms)
                case "resume":
                    transitions.resume(run, history.journal, now_ms=now_ms)
                case "signal":
                    message = self._signals.signal(order.hook, order.payload, None)
                    check(await self._scope.store.hook(run.id, order.hook), message)
                case "cancel":
                    pass
        except HoldfastError as error:
            return error.message
        return "" if run.status in bulks.TAKES[order.verb] else f"it is {run.status} by now"

    # -- for bulk runs

    async def begin(self, bulk_id: str, order: BulkOrder) -> BulkState:
        """When the bulk run began, and how many runs matched."""
        began_at_ms = (await self._scope.run(bulk_id)).created_at_ms
        matched = 0
        async for _ in self._meant(order, began_at_ms):
            matched += 1
            if matched == order.limit:
                break
        return BulkState(began_at_ms, matched)

    async def select(
        self, order: BulkOrder, began_at_ms: Instant, seen: int, after: tuple[Instant, str] | None
    ) -> SelectedPage:
        """The next runs, as they are now, if `seen` were looked at and the last of them was `after`."""
        left = order.page if order.limit is None else min(order.page, order.limit - seen)
        rows = await self._rows(order, began_at_ms, left, after)
        meant = [run for run in rows if bulks.is_meant(run, began_at_ms=began_at_ms)]
        is_last = len(rows) < left or (order.limit is not None and seen + len(meant) >= order.limit)
        place = None if is_last else (rows[-1].created_at_ms, rows[-1].id)
        return SelectedPage(tuple(SelectedRun(run.id, run.epoch, run.length) for run in meant), place)

    async def apply(self, bulk_id: str, order: BulkOrder, page: tuple[SelectedRun, ...]) -> BulkCounts:
        """Apply the verb to each of these runs, unless that was done before. What fails is counted, not raised."""
        counts = BulkCounts()
        for at in range(0, len(page), AT_ONCE):
            some = page[at : at + AT_ONCE]
            histories = await self._histories([each.run_id for each in some])
            done = await asyncio.gather(
                *(self._apply(bulk_id, order, run, histories.get(run.run_id)) for run in some), return_exceptions=True
            )
            for each in done:
                if isinstance(each, BaseException):
                    raise each  # when nothing is under way any more
                counts += each
        return counts

    async def _apply(
        self, bulk_id: str, order: BulkOrder, selected: SelectedRun, history: History | str | None
    ) -> BulkCounts:
        if isinstance(history, str):
            return bulks.failed(selected.run_id, history)
        if history is None or history.run.namespace != self._scope.namespace:
            return bulks.skipped(bulks.GONE)
        why_not = bulks.skip_of(order, bulk_id, selected, history.run, history.journal)
        if why_not is not None:
            return bulks.skipped(why_not) if why_not else bulks.DONE
        try:
            return await self._carry_out(bulk_id, order, history)
        except TransientError:
            raise  # all of the page is tried again, and what was done is found done
        except UnknownRun:
            return bulks.skipped(bulks.GONE)
        except NotAllowedNow as error:
            return bulks.skipped(bulks.REFUSED, selected.run_id, error.message)
        except HoldfastError as error:
            return bulks.failed(selected.run_id, error.message)

    async def _carry_out(self, bulk_id: str, order: BulkOrder, history: History) -> BulkCounts:
        run, now_ms = history.run, self._scope.store.now_ms()
        match order.verb:
            case "retry":
                change = transitions.retry(run, history.journal, now_ms=now_ms, bulk=bulk_id)
            case "resume":
                change = transitions.resume(run, history.journal, now_ms=now_ms, bulk=bulk_id)
            case "cancel":
                reason, deadline = bulks.reason_of(order, bulk_id), order.deadline_ms / 1000
                await self._operations.ask_cancel(run.id, reason, deadline, nonce=bulks.dedupe_of(bulk_id))
                return bulks.DONE
            case "signal":
                await self._signals.to_run(run.id, order.hook, order.payload, bulks.dedupe_of(bulk_id))
                return bulks.DONE
        answer = await self._scope.commit(change)
        if not isinstance(answer, Committed):
            return bulks.skipped(bulks.CHANGED)
        assert answer.run is not None
        self._scope.emit(events.RunRetried(run.id) if order.verb == "retry" else events.RunResumed(run.id))
        self._on_pending(answer.run)
        return bulks.DONE

    # -- finding

    async def _meant(self, order: BulkOrder, began_at_ms: Instant) -> AsyncIterator[Run]:
        after: tuple[Instant, str] | None = None
        while True:
            rows = await self._rows(order, began_at_ms, PAGE_MAX, after)
            for run in rows:
                if bulks.is_meant(run, began_at_ms=began_at_ms):
                    yield run
            if len(rows) < PAGE_MAX:
                return
            after = rows[-1].created_at_ms, rows[-1].id

    async def _rows(
        self, order: BulkOrder, began_at_ms: Instant, limit: int, after: tuple[Instant, str] | None
    ) -> list[Run]:
        search = bulks.search(order, namespace=self._scope.namespace, began_at_ms=began_at_ms, limit=limit, after=after)
        return await self._scope.store.search(search)
