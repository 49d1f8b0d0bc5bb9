"""Limits on SQLite: a second file beside the database, which need not survive a crash of the machine.

- It is never synced and has a lock of its own: counting a request neither waits for a commit nor delays one.
- A crash of the machine may leave a file that was never synced in any state. So each start of the machine has a file of
  its own, and the first process removes those of the starts before.
- Counts that are over are removed by a task that looks now and then, as long as there are any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from holdfast.errors import StoreUnavailable
from holdfast.kernel import limits
from holdfast.kernel.limits import UNUSED, Cost, Verdicts
from holdfast.kernel.rates import Micros
from holdfast.kernel.times import Instant
from holdfast.ports.clock import Clock
from holdfast.stores.sqlite import files
from holdfast.stores.sqlite.files import Database
from holdfast.stores.sqlite.pace import SqlitePace
from holdfast.stores.sqlite.threads import DatabaseThread

_SCHEMA = """
CREATE TABLE IF NOT EXISTS counts (place TEXT PRIMARY KEY, due_at_us INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS counts_due ON counts (due_at_us);
"""
_DUE = "SELECT due_at_us FROM counts WHERE place = :place"
_KEEP = "INSERT INTO counts VALUES (:place, :due_at_us) ON CONFLICT DO UPDATE SET due_at_us = excluded.due_at_us"
_OVER = "DELETE FROM counts WHERE place IN (SELECT place FROM counts WHERE due_at_us <= :now_us LIMIT :n)"


class SqliteLimiter:
    """A file of counts, opened by the first call. Several processes on one file are exact."""

    def __init__(self, database: Path, *, now_ms: Callable[[], Instant], clock: Clock, pace: SqlitePace) -> None:
        boot = blake2b(clock.boot_id().encode(), digest_size=4).hexdigest()
        self._database = database
        self.path = database.with_name(f"{database.name}-limits-{boot}")
        self._now_ms = now_ms
        self._clock = clock
        self._pace = pace
        self._thread: DatabaseThread | None = None
        self._opening: asyncio.Task[DatabaseThread] | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._is_closed = False

    async def spend(self, namespace: str, costs: Sequence[Cost]) -> Verdicts:
        thread = self._thread or await self._opened()
        places = [f"{namespace}\0{cost.place}" for cost in costs]
        verdicts = await thread.do(lambda db: self._spend(db, costs, places))
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = asyncio.create_task(self._sweep(thread))
        return verdicts

    def _spend(self, db: Database, costs: Sequence[Cost], places: Sequence[str]) -> Verdicts:
        db.execute("BEGIN IMMEDIATE")
        try:
            now_ms = self._now_ms()  # behind the lock, so that calls are judged in the order in which they are counted
            decided = limits.decide(costs, [_due(db, place) for place in places], now_ms=now_ms)
            for place, due_at_us in zip(places, decided.kept, strict=decided.are_spent):
                if due_at_us > now_ms * 1000:
                    db.execute(_KEEP, {"place": place, "due_at_us": due_at_us})
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return decided.verdicts

    async def close(self) -> None:
        self._is_closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if self._thread is not None:
            await self._thread.close()

    async def _opened(self) -> DatabaseThread:
        """The thread of the file. A caller that waits no longer does not end the opening."""
        if self._is_closed:
            raise StoreUnavailable(f"{self._database} has been closed")
        if self._opening is None or (self._opening.done() and self._thread is None):
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> DatabaseThread:
        thread = DatabaseThread(self._connect, self.path, "holdfast-limits", self._pace)
        await thread.open()
        self._thread = thread
        return thread

    def _connect(self) -> Database:
        self._remove_former()
        return files.prepare_unsynced(self.path, _SCHEMA, busy_ms=self._pace.busy_ms)

    def _remove_former(self) -> None:
        """The files of earlier starts of the machine: no process has them open any more."""
        former = f"{self._database.name}-limits-"
        with suppress(OSError):  # it is no harm if one stays
            for each in self._database.parent.iterdir():
                if each.name.startswith(former) and not each.name.startswith(self.path.name):
                    each.unlink(missing_ok=True)

    async def _sweep(self, thread: DatabaseThread) -> None:
        """Remove what is over, as long as anything is kept."""
        left = True
        while left:
            await self._clock.pause(self._pace.limits_sweep_seconds)
            try:
                left = await thread.do(self._remove_over)
            except StoreUnavailable:
                continue  # it is locked, or the disk is full: there is time

    def _remove_over(self, db: Database) -> bool:
        """Whether anything is left."""
        over = {"now_us": self._now_ms() * 1000, "n": self._pace.limits_sweep_max}
        while True:
            db.execute(_OVER, over)
            if db.changes() < self._pace.limits_sweep_max:
                return bool(db.execute("SELECT 1 FROM counts LIMIT 1").fetchall())


def _due(db: Database, place: str) -> Micros:
    rows = db.execute(_DUE, {"place": place}).fetchall()
    return rows[0][0] if rows else UNUSED
