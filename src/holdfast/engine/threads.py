"""Threads for sync effects.

The standard pool makes the interpreter wait for its threads at exit. An effect that hangs would then keep a stopped
process alive for ever; these threads are daemons, and whatever they still do when the process ends is lost like any
attempt whose process died.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


class Job:
    """A call in a thread: its end, and whether it has begun."""

    __slots__ = ("begun", "done", "loop", "work")

    def __init__(self, work: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.loop = loop
        self.done: asyncio.Future[Any] = loop.create_future()
        self.begun = False


class DaemonThreads:
    """At most `limit` threads, made when they are needed and kept."""

    def __init__(self, limit: int, *, name: str) -> None:
        self._limit = limit
        self._name = name
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = 0
        self._idle = threading.Semaphore(0)  # a thread counts as idle when it has ended its job, not when nobody waits

    def call(self, fn: Callable[..., Any], *args: Any) -> Job:
        """Have `fn` called in a thread, with the caller's context variables."""
        context = contextvars.copy_context()
        job = Job(lambda: context.run(fn, *args), asyncio.get_running_loop())
        if not self._idle.acquire(blocking=False) and self._threads < self._limit:
            self._threads += 1
            threading.Thread(target=self._run, name=f"{self._name}-{self._threads}", daemon=True).start()
        self._jobs.put(job)
        return job

    def close(self) -> None:
        """Let idle threads end; busy ones end when they are done, or with the process."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            _do(job)
            self._idle.release()


def _do(job: Job) -> None:
    if job.done.cancelled():
        return
    job.begun = True
    try:
        result = job.work()
    except (StopIteration, GeneratorExit) as error:  # a future cannot carry them
        _answer(job, job.done.set_exception, RuntimeError(f"a sync function raised {error!r}"))
    except BaseException as error:  # noqa: BLE001 - it belongs to whoever called
        _answer(job, job.done.set_exception, error)
    else:
        _answer(job, job.done.set_result, result)


def _answer(job: Job, setter: Callable[[Any], None], value: Any) -> None:
    def settle() -> None:
        if not job.done.done():
            setter(value)

    try:
        job.loop.call_soon_threadsafe(settle)
    except RuntimeError:
        return  # the loop has been closed: nobody waits any more
