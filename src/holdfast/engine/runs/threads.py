"""Threads for sync effects.

The standard pool makes the interpreter wait for its threads at exit. An effect that hangs would then keep a stopped
process alive forever; these threads are daemons, and whatever they still do when the process ends is lost like any
attempt whose process died.

Rules
- Whether a call may be entered is asked in its thread, right before: between handing a call over and entering it, a
  process may be stopped for any time.
- The time limit of a call counts from when it is entered. Waiting for a thread uses none of it up.
- A thread cannot be interrupted. One whose call is given up is replaced, and ends when its call does.
- There are at most `limit` threads besides those given up, and of these at most `given_up_threads_max`. Beyond that,
  callers wait until one of them ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from holdfast.engine.failures import worded
from holdfast.engine.pace import Pace
from holdfast.kernel.retries import Begin, GiveUp
from holdfast.kernel.times import NO_TIME, Millis

MayEnter = Callable[[], Begin | GiveUp | None]


class NotEntered(Exception):
    """A call may not be entered, or not now."""


class Job:
    """A call in a thread, and how far it has come."""

    __slots__ = (
        "_timer",
        "_token",
        "done",
        "given_up",
        "leaves",
        "limit_ms",
        "loop",
        "may_enter",
        "on_ended",
        "overdue",
        "work",
    )

    def __init__(self, work: Callable[[], Any], may_enter: MayEnter, loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.may_enter = may_enter
        self.loop = loop
        self.done: asyncio.Future[Any] = loop.create_future()
        self.overdue: asyncio.Future[None] = loop.create_future()
        self.limit_ms = NO_TIME  # once it is entered, if there is one
        self.on_ended: Callable[[], None] | None = None
        self.given_up = False
        self.leaves = False  # whether its thread ends with it
        self._timer: asyncio.TimerHandle | None = None
        self._token = threading.Lock()

    def take(self) -> bool:
        """Whether the call is the asker's to enter, or to withdraw. Only one of the two ever is told yes."""
        return self._token.acquire(blocking=False)

    def begin(self, limit_ms: Millis) -> None:
        """It was entered, and may take this long."""
        if not self.done.done():
            self.limit_ms = limit_ms
            self._timer = self.loop.call_later(limit_ms / 1000, self._is_overdue)

    def end(self) -> None:
        """Its thread has done with it."""
        if self._timer is not None:
            self._timer.cancel()
        if self.on_ended is not None:
            self.on_ended()

    def _is_overdue(self) -> None:
        if not self.overdue.done():
            self.overdue.set_result(None)


class DaemonThreads:
    """Threads that are made when they are needed, and kept."""

    def __init__(self, limit: int, *, name: str, pace: Pace) -> None:
        self.given_up = 0
        self._limit = limit
        self._name = name
        self._pace = pace
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = 0
        self._made = 0
        self._at_work = 0  # calls that have not ended; each of them has a thread, or one is about to be free for it
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def are_used_up(self) -> bool:
        """Whether there is no thread for one more call, and none may be made."""
        return self._at_work >= self._limit + self._pace.given_up_threads_max

    async def until_free(self) -> None:
        """Returns when there may be a thread for one more call."""
        free: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(free)
        try:
            await free
        except asyncio.CancelledError:
            if free.done() and not free.cancelled():
                self._next_caller()  # there was one, and it is not used
            raise

    def call(self, work: Callable[[], Any], may_enter: MayEnter) -> Job:
        """Have `work` called in a thread, unless `may_enter` says there that it may not."""
        job = Job(work, may_enter, asyncio.get_running_loop())
        self._at_work += 1
        self._jobs.put(job)
        self._hire(job.loop)
        return job

    def give_up(self, job: Job) -> bool:
        """The caller no longer needs the thread. True if it is in the middle of the call, and so had to be replaced."""
        if job.given_up or job.take() or job.done.done():
            return False
        job.given_up = True
        self.given_up += 1
        self._hire(job.loop)
        return True

    def close(self) -> None:
        """Let idle threads end; busy ones end when they are done, or with the process."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _hire(self, loop: asyncio.AbstractEventLoop) -> None:
        # Counted on the event loop alone. A count of idle threads that the threads keep themselves is wrong whenever
        # one ends its call just as another is made: then a call could wait behind one that hangs.
        if self._threads >= min(self._at_work, self._limit + self.given_up):
            return
        self._made += 1
        thread = threading.Thread(target=self._run, name=f"{self._name}-{self._made}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no more for us at present
            loop.call_later(self._pace.start_thread_again_seconds, self._hire, loop)
        else:
            self._threads += 1

    def _ended(self, job: Job) -> None:
        self._at_work -= 1
        self.given_up -= job.given_up
        self._threads -= job.leaves
        job.end()
        self._next_caller()

    def _next_caller(self) -> None:
        while self._waiting:
            free = self._waiting.popleft()
            if not free.done():
                free.set_result(None)
                return

    # -- in the threads

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._execute(job)
            if job.leaves:
                return
            del job  # an idle thread keeps nothing alive

    def _execute(self, job: Job) -> None:
        setter, value = _result_of(job)
        job.leaves = job.given_up
        self._tell(job, setter, value)

    def _tell(self, job: Job, setter: Callable[[Any], None], value: Any) -> None:
        def settle() -> None:
            self._ended(job)
            if not job.done.done():
                setter(value)

        try:
            job.loop.call_soon_threadsafe(settle)
        except RuntimeError:
            return  # the loop has been closed: the caller is gone


def _result_of(job: Job) -> tuple[Callable[[Any], None], Any]:
    if not job.take():
        return job.done.set_exception, NotEntered()  # it was withdrawn
    try:
        verdict = job.may_enter()
        if isinstance(verdict, Begin) and verdict.limit_ms is not None:
            job.loop.call_soon_threadsafe(job.begin, verdict.limit_ms)
            verdict = job.may_enter()  # once more: nothing but the call itself may lie between this and the call
        if isinstance(verdict, Begin):
            return job.done.set_result, job.work()
        return job.done.set_exception, NotEntered()
    except (StopIteration, GeneratorExit) as error:  # a future cannot carry them
        raised = RuntimeError(f"a sync function raised {worded(error)}")
        raised.__cause__ = error
        return job.done.set_exception, raised
    except BaseException as error:  # noqa: BLE001 - it belongs to the caller
        return job.done.set_exception, error
