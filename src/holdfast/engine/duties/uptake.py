"""Takes up runs that are blocked because code contradicted their journal, where the code of this worker was not tried.

It looks when the worker has joined, and now and then: a run may have been blocked by a worker that did not see this one
yet. It takes as many as the worker has room for; those that are left, the next look finds, here or in another process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from holdfast.engine.pace import Pace
from holdfast.events import Emit, RunTakenUp
from holdfast.kernel import handovers, searches, transitions
from holdfast.kernel.changes import Answer, Change, Committed
from holdfast.kernel.handovers import Code
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.searches import Search
from holdfast.kernel.starts import Hand
from holdfast.kernel.times import Instant
from holdfast.ports.ids import Ids
from holdfast.ports.store import Store


class Uptake:
    """Looks through the blocked runs of a namespace, a page at a time."""

    def __init__(
        self,
        store: Store,
        *,
        namespace: str,
        codes: Mapping[str, Code],
        owner: Callable[[], str],
        room: Callable[[], int],
        commit: Callable[[Change], Awaitable[Answer]],
        renew: Callable[[], Awaitable[None]],
        on_taken: Callable[[], None],
        ids: Ids,
        emit: Emit,
        pace: Pace,
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._codes = codes
        self._owner = owner
        self._room = room
        self._commit = commit
        self._renew = renew
        self._on_taken = on_taken
        self._ids = ids
        self._emit = emit
        self._pace = pace
        self._after: tuple[Instant, str] | None = None

    async def tick(self) -> float:
        pace = self._pace
        await self._renew()
        room = self._room()
        if not self._owner() or not room:
            return pace.uptake_seconds
        page = await self._store.search(
            Search(
                namespace=self._namespace,
                limit=pace.uptake_max,
                statuses=frozenset({Status.BLOCKED}),
                after=self._after,
            )
        )
        taken = await self._take(page, room)
        if taken:
            self._on_taken()
        is_last = len(page) < pace.uptake_max
        self._after = None if is_last else searches.place_of(searches.cursor_of(page[-1]))
        return pace.uptake_seconds if is_last or taken == room else pace.bite_pause_seconds

    async def _take(self, page: list[Run], room: int) -> int:
        """Take up those whose code may be ours, as long as there is room. Returns how many."""
        served = [run for run in page if run.workflow in self._codes]
        if not served:
            return 0
        places = [(run.namespace, handovers.TRIED, run.id) for run in served]
        told = {document.id: document for document in await self._store.named(places)}
        taken = 0
        for run in served:
            tried = told.get(run.id)
            if taken == room or not handovers.may_take_up(run, self._codes[run.workflow], tried):
                continue
            now_ms = self._store.now_ms()
            if (writing := handovers.take_up(run, tried, now_ms=now_ms)) is not None:
                await self._store.write([writing])
            hand = Hand(self._owner(), self._ids.nonce())
            answer = await self._commit(transitions.take_up(run, hand, now_ms=now_ms))
            if isinstance(answer, Committed):  # otherwise another worker, or a person, was first
                taken += 1
                self._emit(RunTakenUp(run.id, run.workflow))
        return taken
