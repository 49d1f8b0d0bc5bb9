"""Says when the next run is due: a timer, a delayed start, a retry."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.engine.pace import Pace
from holdfast.events import AskedInVain, Emit
from holdfast.kernel.times import Instant
from holdfast.ports.store import Store

RINGS_MAX = 16  # then it looks no more often than in any case


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
        self._knows_next = False  # not while it looks, nor when it has rung for what was due
        self._rings = 0  # one after the other, without a claim

    def is_news(self, wake_at_ms: Instant) -> bool:
        """Whether a run that becomes claimable at `wake_at_ms` is due before anything known."""
        return self._planned_at_ms is None or wake_at_ms < self._planned_at_ms

    def note_claim(self) -> bool:
        """Runs were claimed. Whether it must look again: they may be those that it believes to come next."""
        self._rings = 0
        return not self._knows_next

    async def tick(self) -> float:
        """Say so if a run is due, and plan for the next one."""
        self._planned_at_ms = None  # while we look, whatever is set is news
        self._knows_next = False
        wake_at_ms = self._planned_at_ms = await self._store.next_wake_at_ms(self._namespace, self._workflows)
        if wake_at_ms is None:
            self._rings = 0
            self._emit(AskedInVain("waker"))
            self._knows_next = True
            return self._pace.wake_poll_seconds
        delay = (wake_at_ms - self._store.now_ms()) / 1000
        if delay <= 0:
            self._planned_at_ms = None
            self._on_due()
            # Another process may be faster, or the reply to the claim be lost: then nothing says that it is over.
            self._rings = min(self._rings + 1, RINGS_MAX)
            return min(self._pace.wake_again_seconds * 2**self._rings, self._pace.wake_poll_seconds)
        self._rings = 0
        self._knows_next = True
        return min(delay, self._pace.wake_poll_seconds)
