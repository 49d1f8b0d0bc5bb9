"""An alarm: what a part of the engine waits for that looks when it is told to, and now and then besides.

It is an `asyncio.Event` with a limit, for a single task that waits. Such parts do nothing else as often, so a wait is
one future and one timer: `asyncio.timeout` around an event cancels the task and takes the cancellation back.
"""

from __future__ import annotations

import asyncio


class Alarm:
    """Set by others, cleared by the task that waits."""

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: asyncio.Future[bool] | None = None

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        if (waiting := self._waiting) is not None and not waiting.done():
            waiting.set_result(True)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self, seconds: float | None) -> bool:
        """True once it is set; False if it was not within this time, where there is a limit."""
        if self._is_set:
            return True
        assert self._waiting is None, "another task waits"
        loop = asyncio.get_running_loop()
        waiting = self._waiting = loop.create_future()
        timer: asyncio.Handle | None = None
        if seconds is not None:
            timer = loop.call_later(seconds, _end, waiting) if seconds > 0 else loop.call_soon(_end, waiting)
        try:
            return await waiting
        finally:
            if timer is not None:
                timer.cancel()
            self._waiting = None


def _end(waiting: asyncio.Future[bool]) -> None:
    if not waiting.done():
        waiting.set_result(False)
