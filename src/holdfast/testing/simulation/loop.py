"""An event loop whose time is virtual: one process of a simulated world, which the world lets execute turn by turn.

It executes callbacks and timers as asyncio does, in the same order, and nothing else: there are no sockets, threads or
signals in it. Between two turns it stands still. If the world never lets it execute again, the process is dead: no
`finally` and no `except` of its coroutines is executed. The rest of `holdfast.testing.simulation` is built on it.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from heapq import heappop, heappush
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")
FOREVER = float("inf")
_copied = copy_context


class _Soon(asyncio.Handle):
    """A callback that is executed at the next turn. Thousands are made in a world, so it is made in few steps."""

    __slots__ = ()

    def __init__(  # pyright: ignore[reportMissingSuperCall] - it asks the loop for its debug mode
        self, callback: Callable[..., Any], args: tuple[Any, ...], loop: VirtualLoop, context: Context | None
    ) -> None:
        self._context = _copied() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = self._source_traceback = None


class _Timer(asyncio.TimerHandle):
    """A callback that is executed at its time, made as `_Soon` is. The loop takes it away once it is cancelled."""

    __slots__ = ()

    def __init__(  # pyright: ignore[reportMissingSuperCall] - it asks the loop for its debug mode
        self,
        when: float,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        loop: VirtualLoop,
        context: Context | None,
    ) -> None:
        self._context = _copied() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._when = when
        self._cancelled = self._scheduled = False
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = None
        self._args = ()


class VirtualLoop(asyncio.BaseEventLoop):
    """Executes what is ready when `turn` is called. `now` tells its time, in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self.time = now
        self.ahead_seconds = 0.0  # of the time of the world
        self.first_at = FOREVER  # its first timer, in the time of the world; or earlier, if that has been cancelled
        self.host: Any = None  # whose loop it is
        self.is_ready = False  # whether it is among those that are
        self.among: list[VirtualLoop] = []  # of the world
        self.no_timer_before = [FOREVER]  # of the world: no timer of its loops rings before that
        self.is_stopped = False  # in the middle of a turn, too: then not one callback more is executed
        self.soon: deque[asyncio.Handle] = deque()
        self._later: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        # As `run_forever` sets them.
        self.generator_hooks: tuple[Any, Any] = (
            getattr(self, "_asyncgen_firstiter_hook"),  # noqa: B009 - typeshed does not know it
            getattr(self, "_asyncgen_finalizer_hook"),  # noqa: B009
        )

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = _Soon(callback, args, self, context)
        self.soon.append(handle)
        if not self.is_ready:
            self.is_ready = True
            self.among.append(self)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        self._count += 1
        heappush(self._later, (when, self._count, timer))
        first_at = when - self.ahead_seconds
        if first_at < self.first_at:
            self._is_first_at(first_at)
        return timer

    def _is_first_at(self, first_at: float) -> None:
        self.first_at = first_at
        self.no_timer_before[0] = min(self.no_timer_before[0], first_at)

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def create_task(self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], **options: Any) -> asyncio.Task[T]:
        task = super().create_task(coro, **options)
        self._tasks.add(task)
        return task

    def unfinished(self) -> set[asyncio.Task[Any]]:
        """The tasks of this loop that have not ended. asyncio would look through those of all worlds."""
        return {task for task in self._tasks if not task.done()}

    def next_at(self) -> float:
        """When it next has something to execute, in seconds of the world; infinity if there is nothing."""
        return self.time() - self.ahead_seconds if self.soon else self.next_timer_at()

    def next_timer_at(self) -> float:
        """When its first timer rings, in seconds of the world; infinity if it has none."""
        later = self._later
        while later and later[0][2]._cancelled:  # type: ignore[attr-defined] # noqa: SLF001 - asked at every instant
            heappop(later)
        self._is_first_at(later[0][0] - self.ahead_seconds if later else FOREVER)
        return self.first_at

    def turn(self, rounds_max: int = 1) -> int:
        """Execute what is ready and what is due; and what that makes ready, in so many rounds at most.

        Returns the rounds. The caller has made it the running loop.
        """
        soon = self.soon
        if self._later and self._later[0][0] <= (now := self.time()):
            while self._later and self._later[0][0] <= now:
                timer = heappop(self._later)[2]
                if not timer.cancelled():
                    soon.append(timer)
            self.next_timer_at()
        left, rounds = len(soon), 1
        while not self.is_stopped:
            if not left:
                left = len(soon)
                if not left or rounds >= rounds_max:
                    break
                rounds += 1
            left -= 1
            handle = soon.popleft()
            if handle._cancelled:  # type: ignore[attr-defined] # noqa: SLF001 - as `Handle._run`, without a call
                continue
            try:
                handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined] # noqa: SLF001
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - it belongs to the handler
                self._tell_of(handle, error)
        return rounds

    def call_now(self, callback: Callable[..., Any], *args: Any) -> None:
        """Execute a callback between two turns, as the next one would."""
        try:
            callback(*args)
        except Exception as error:  # noqa: BLE001 - it belongs to the handler
            self.call_exception_handler({"message": f"Exception in callback {callback!r}", "exception": error})

    def close(self) -> None:
        """It never executes again."""
        super().close()
        # The contexts of callbacks hold attempts of effects, which the collector does not look into: it would keep a
        # whole world forever.
        self.soon.clear()
        self._later.clear()

    def _tell_of(self, handle: asyncio.Handle, error: BaseException) -> None:
        self.call_exception_handler({"message": f"Exception in callback {handle!r}", "exception": error})

    def is_running(self) -> bool:
        return events._get_running_loop() is self  # noqa: SLF001

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_stopped:  # of the dead, nothing is told
            super().call_exception_handler(context)
