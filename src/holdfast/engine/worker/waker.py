"""Says when the next run is due: a timer, a delayed start, a retry."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.engine.pace import Pace
from holdfast.events import AskedInVain, Emit
from holdfast.kernel.times import Instant
from holdfast.ports.store import Store


class Waker:
    """Knows when the next run is due, and looks again only when that may have changed."""

    def __init__(
        self,
        store: Store,
        *,
        namespace: str,
        workflows: tuple[str, ...],
        emit: Emit,
        pace: Pace,
        on_due: Callable[[], None],
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._workflows = workflows
        self._emit = emit
        self._pace = pace
        self._on_due = on_due
        self._planned_at_ms: Instant | None = None
        # Not while it looks, nor when it has rung for what was due: a claim may change what comes next.
        self.knows_next = False

    def is_news(self, wake_at_ms: Instant) -> bool:
        """Whether a run that becomes claimable at `wake_at_ms` is due before anything known."""
        return self._planned_at_ms is None or wake_at_ms < self._planned_at_ms

    async def tick(self) -> float:
        """Say so if a run is due, and plan for the next one."""
        self._planned_at_ms = None  # while we look, whatever is set is news
        self.knows_next = False
        wake_at_ms = self._planned_at_ms = await self._store.next_wake_at_ms(self._namespace, self._workflows)
        if wake_at_ms is None:
            self._emit(AskedInVain("waker"))
            self.knows_next = True
            return self._pace.wake_poll_seconds
        delay = (wake_at_ms - self._store.now_ms()) / 1000
        if delay <= 0:
            self._planned_at_ms = None
            self._on_due()
            return self._pace.wake_poll_seconds
        self.knows_next = True
        return min(delay, self._pace.wake_poll_seconds)
