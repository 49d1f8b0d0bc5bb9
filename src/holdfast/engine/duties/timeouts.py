"""Ends runs that have taken longer than they may: those that wait, are blocked or have no worker, too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast.engine.pace import Pace
from holdfast.errors import TransientError
from holdfast.events import AskedInVain, DutyFailed, Emit
from holdfast.kernel import timeouts
from holdfast.kernel.timeouts import TimeLimit
from holdfast.ports.store import Store

EndRun = Callable[[TimeLimit], Awaitable[TimeLimit | None]]


class Timeouts:
    """Looks for limits that are due.

    `end` ends the run, or asks its owner to; it returns the limit as it is then, None if it is over.
    """

    def __init__(self, store: Store, *, emit: Emit, pace: Pace, end: EndRun) -> None:
        self._store = store
        self._emit = emit
        self._pace = pace
        self._end = end

    async def tick(self) -> float:
        pace, store = self._pace, self._store
        due = await store.due(timeouts.EVERYWHERE, (timeouts.KIND,), pace.timeouts_max)
        if not due:
            self._emit(AskedInVain("timeouts"))
            return pace.timeouts_seconds
        for document in due:
            # Asking again changes nothing: if this process dies before the write, the next leader asks once more.
            limit: TimeLimit | None = timeouts.of(document)
            assert limit is not None
            try:
                limit = await self._end(limit)
            except TransientError:
                raise
            except Exception as error:  # noqa: BLE001 - one run that cannot be read must not keep the others from ending
                self._emit(DutyFailed("timeouts", f"{type(error).__name__}: {error}"))
            now_ms = store.now_ms()
            await store.write([timeouts.go_on(document, limit, grace_ms=pace.cancel_grace_ms, now_ms=now_ms)])
        return pace.bite_pause_seconds if len(due) == pace.timeouts_max else pace.timeouts_seconds
