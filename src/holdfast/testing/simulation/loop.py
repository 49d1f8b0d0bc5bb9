"""An event loop whose time is virtual: one process of a simulated world, which the world lets execute turn by turn.

It executes callbacks and timers as asyncio does, in the same order, and nothing else: there are no sockets, threads or
signals in it. Between two turns it stands still. If the world never lets it execute again, the process is dead: no
`finally` and no `except` of its coroutines is executed. The rest of `holdfast.testing.simulation` is built on it.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextvars import Context
from heapq import heappop, heappush
from typing import Any


class VirtualLoop(asyncio.BaseEventLoop):
    """Executes what is ready when `turn` is called. `now` tells its time, in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self.time = now
        self.is_stopped = False  # in the middle of a turn, too: then not one callback more is executed
        self._soon: deque[asyncio.Handle] = deque()
        self._later: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0
        # As `run_forever` sets them.
        self._generator_hooks: tuple[Any, Any] = (
            getattr(self, "_asyncgen_firstiter_hook"),  # noqa: B009 - typeshed does not know it
            getattr(self, "_asyncgen_finalizer_hook"),  # noqa: B009
        )

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._soon.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heappush(self._later, (when, self._count, timer))
        return timer

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def next_at(self) -> float | None:
        """When it next has something to execute: now, if that is ready; None if there is nothing."""
        if self._soon:
            return self.time()
        later = self._later
        while later:
            if not later[0][2]._cancelled:  # type: ignore[attr-defined] # noqa: SLF001 - asked at every step
                return later[0][0]
            heappop(later)
        return None

    def turn(self) -> None:
        """Execute what is ready and what is due, but nothing of what that makes ready."""
        now = self.time()
        while self._later and self._later[0][0] <= now:
            timer = heappop(self._later)[2]
            if not timer.cancelled():
                self._soon.append(timer)
        outer, hooks = events._get_running_loop(), sys.get_asyncgen_hooks()  # noqa: SLF001 - documented for loop authors
        sys.set_asyncgen_hooks(*self._generator_hooks)
        events._set_running_loop(self)  # noqa: SLF001
        try:
            for _ in range(len(self._soon)):
                if self.is_stopped:
                    break
                handle = self._soon.popleft()
                if not handle.cancelled():
                    handle._run()  # noqa: SLF001
        finally:
            events._set_running_loop(outer)  # noqa: SLF001
            sys.set_asyncgen_hooks(*hooks)

    def is_running(self) -> bool:
        return events._get_running_loop() is self  # noqa: SLF001

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_stopped:  # of the dead, nothing is told
            super().call_exception_handler(context)
