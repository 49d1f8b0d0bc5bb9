"""Asks a run to cancel, or ends it where it has no owner who would read that. Callers and parents do it alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from holdfast import events
from holdfast.engine.values import unread
from holdfast.events import Emit
from holdfast.kernel import cancels, transitions
from holdfast.kernel.cancels import Way
from holdfast.kernel.changes import Answer, Change, Committed
from holdfast.kernel.journal import Failure
from holdfast.kernel.messages import CancelRequest
from holdfast.kernel.runs import ENDED, Run
from holdfast.kernel.times import Instant
from holdfast.ports.store import History


class Cancellation(NamedTuple):
    """A cancellation that was asked for, durably."""

    run_id: str
    nonce: str
    reason: str
    deadline_at_ms: Instant
    error: Failure | None = None  # what the run fails with, instead of being cancelled


class Canceller:
    """Cancels runs that are not one's own. `history` returns None for a run that is not there any more, or raises."""

    def __init__(
        self,
        *,
        now_ms: Callable[[], Instant],
        commit: Callable[[Change], Awaitable[Answer]],
        history: Callable[[str], Awaitable[History | None]],
        emit: Emit,
        on_ended: Callable[[Run], None],
    ) -> None:
        self._now_ms = now_ms
        self._commit = commit
        self._history = history
        self._emit = emit
        self._on_ended = on_ended

    async def ask(self, asked: Cancellation, run: Run | None = None) -> bool:
        """Whether the run has ended. If not, its owner has been asked; asking again changes nothing.

        `run` is what the caller has just read. Without it, and when it turns out to be outdated, the run is read here.
        """
        while True:
            history: History | None = None
            if run is None:
                history = await self._history(asked.run_id)
                if history is None:
                    return True
                run = history.run
            match cancels.way(run):
                case Way.ENDED:
                    return True
                case Way.AT_ONCE:
                    if await self.stop(asked.run_id, asked.reason, late=False, history=history, error=asked.error):
                        return True
                case Way.BY_ITS_OWNER:
                    change = cancels.request(
                        run.id,
                        nonce=asked.nonce,
                        reason=asked.reason,
                        deadline_at_ms=asked.deadline_at_ms,
                        error=asked.error,
                    )
                    if isinstance(await self._commit(change), Committed):
                        return False
            run = None

    async def stop_if_asked(self, run_id: str) -> None:
        """A run was given back. If it has never begun, a request to cancel that it has not read needs no owner."""
        history = await self._history(run_id)
        asked = () if history is None else [each for each in history.messages if isinstance(each, CancelRequest)]
        if asked:
            await self.stop(run_id, asked[0].reason, late=False, history=history, error=asked[0].error)

    async def stop(
        self, run_id: str, reason: str, *, late: bool, history: History | None = None, error: Failure | None = None
    ) -> bool:
        """End a run by a commit of our own: with `late`, whatever its owner does. True if it has ended."""
        history = history or await self._history(run_id)
        if history is None or history.run.status in ENDED:
            return True
        if not late and cancels.way(history.run) is not Way.AT_ONCE:
            return False
        now_ms = self._now_ms()
        recorded = unread(history, now_ms=now_ms)
        change = transitions.stop(
            history.run, history.journal, reason=reason, late=late, recorded=recorded, now_ms=now_ms, error=error
        )
        answer = await self._commit(change)
        if not isinstance(answer, Committed):
            return False
        if answer.run is not None and answer.run.status in ENDED:
            told = "" if answer.run.error is None else answer.run.error.decode()
            self._emit(events.ended(answer.run, told or (f"cancelled: {reason}" if reason else "")))
            self._on_ended(answer.run)
        return True
