"""A thread that owns one database connection and does what it is asked, in order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import apsw

from holdfast.errors import StoreUnavailable
from holdfast.stores.sqlite.files import Database, translated
from holdfast.stores.sqlite.pace import SqlitePace

T = TypeVar("T")
Work = Callable[[Database], Any]
Job = tuple[Work, "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class DatabaseThread:
    """Everything on its connection happens on its thread: SQLite waits for locks and disks, the event loop must not."""

    def __init__(self, connect: Callable[[], Database], path: Path, name: str, pace: SqlitePace) -> None:
        self._connect = connect
        self._path = path
        self._pace = pace
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._open = False

    async def open(self) -> None:
        """Start the thread; raises if its connection cannot be opened."""
        self._open = True
        self._thread.start()
        try:
            await self.do(lambda _: None)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connection. What is still queued is not done; what is under way is given a moment."""
        if self._open:
            self._open = False
            self._drop_queued()
            self._jobs.put(None)
            # The thread may hang with a disk or a lock. It is a daemon: the process need not wait for it.
            last_moment = self._pace.last_moment_seconds
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join, last_moment)

    def _drop_queued(self) -> None:
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return
            if job is not None and not job[1].done():
                job[1].set_exception(StoreUnavailable(f"{self._path} has been closed"))

    def do(self, work: Callable[[Database], T]) -> asyncio.Future[T]:
        """What `work` returns. Its database errors arrive as Holdfast's."""
        if not self._open:
            raise StoreUnavailable(f"{self._path} has been closed", hint="Use it inside `async with Holdfast(...)`.")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._jobs.put((work, done, loop))
        return done

    def _run(self) -> None:
        db: Database | None = None
        while (job := self._jobs.get()) is not None:
            work, done, loop = job
            try:
                if db is None:
                    db = self._connect()
                result = work(db)
            except apsw.Error as error:
                failure = translated(error, self._path, busy_ms=self._pace.busy_ms)
                failure.__cause__ = error
                _answer(loop, done, done.set_exception, failure)
                db = self._recover(db)
            except BaseException as error:  # noqa: BLE001 - it belongs to the caller
                _answer(loop, done, done.set_exception, error)
            else:
                _answer(loop, done, done.set_result, result)
        if db is not None:
            db.close()

    def _recover(self, db: Database | None) -> Database | None:
        """A connection that failed with an I/O error may be of no use any more: the next job opens a new one."""
        if db is not None and db.in_transaction:
            db.close(force=True)
            return None
        return db


def _answer(
    loop: asyncio.AbstractEventLoop, done: asyncio.Future[Any], setter: Callable[[Any], None], value: Any
) -> None:
    try:
        loop.call_soon_threadsafe(_settle, done, setter, value)
    except RuntimeError:
        return  # the loop has been closed: no caller waits any more


def _settle(done: asyncio.Future[Any], setter: Callable[[Any], None], value: Any) -> None:
    if not done.done():
        setter(value)
