"""The floor: what the disk and SQLite allow when nothing else is done.

One writer thread with one connection (WAL, `synchronous=FULL`, `BEGIN IMMEDIATE`); whatever is queued when it
wakes becomes one transaction. It writes the rows that Holdfast writes for the same work, in as many dependent
commits, and does none of the work:

    a one-effect run     4 rows in 2 commits   run row, journal row | run row again, journal row
    a further effect     2 rows in 1 commit    run row again, journal row
    a duplicate start    no row                the claim of the key is tried, in the writer's transaction
    a due timer          2 rows in 1 commit    run row again, journal row
    a signal             5 rows in 2 commits   message row, run row again | both again, journal row
"""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from queue import SimpleQueue

import apsw

from bench.entry import contend
from bench.workloads import Wait

Row = tuple[str, tuple[str | int | bytes, ...]]
Commit = tuple[Sequence[Row], asyncio.Future[None]]

SCHEMA = """
create table runs (id text primary key, key text not null unique, state text not null, fence integer not null,
                   value blob not null) without rowid;
create table journal (run text not null, seq integer not null, entry blob not null,
                      primary key (run, seq)) without rowid;
create table inbox (arrival integer primary key, run text not null, id text not null, body blob, unique (run, id));
"""
INSERT_RUN = "insert into runs values (?, ?, 'running', 1, ?) on conflict do nothing"
UPDATE_RUN = "update runs set state = ?, value = ? where id = ? and fence = 1"
INSERT_ENTRY = "insert into journal values (?, ?, ?) on conflict do nothing"
INSERT_MESSAGE = "insert or ignore into inbox (run, id, body) values (?, ?, ?)"
UPDATE_MESSAGE = "update inbox set body = null where run = ? and id = ?"
PAYLOAD = b"x" * 100
SPIN_S = 0.003


class Writer:
    """Commits on a thread of its own; a lone commit is never held back to wait for company."""

    def __init__(self, path: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Commit | None] = SimpleQueue()
        self._db = apsw.Connection(str(path))
        self._db.pragma("journal_mode", "wal")
        self._db.pragma("synchronous", "full")
        self._db.execute(SCHEMA)
        self._thread = threading.Thread(target=self._write, name="floor-writer")
        self._thread.start()

    def commit(self, rows: Sequence[Row]) -> asyncio.Future[None]:
        """Durable when the answer is done."""
        answer = self._loop.create_future()
        self._queue.put((rows, answer))
        return answer

    async def close(self) -> None:
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        self._db.close()

    def _write(self) -> None:
        while (first := self._queue.get()) is not None:
            batch = [first, *self._ready()]
            self._db.execute("begin immediate")
            for rows, _ in batch:
                for sql, values in rows:
                    self._db.execute(sql, values)
            self._db.execute("commit")
            self._loop.call_soon_threadsafe(_answer, [answer for _, answer in batch])

    def _ready(self) -> Iterator[Commit]:
        # The one taker of this queue is here, and it is closed only when no caller waits: no None turns up.
        while not self._queue.empty():
            if (commit := self._queue.get()) is not None:
                yield commit


def _answer(replies: list[asyncio.Future[None]]) -> None:
    for answer in replies:
        answer.set_result(None)


def _admission(run: str) -> list[Row]:
    return [(INSERT_RUN, (run, f"key:{run}", PAYLOAD)), (INSERT_ENTRY, (run, 0, PAYLOAD))]


def _record(run: str, seq: int, state: str) -> list[Row]:
    return [(UPDATE_RUN, (state, PAYLOAD, run)), (INSERT_ENTRY, (run, seq, PAYLOAD))]


class Floor:
    """The verbs of a contender as bare rows."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._started: set[str] = set()

    async def one(self, order: str) -> None:
        await self.many(order, 1)

    async def many(self, order: str, effects: int) -> None:
        await self._writer.commit(_admission(order))
        for seq in range(1, effects + 1):
            await self._writer.commit(_record(order, seq, "completed" if seq == effects else "running"))

    async def start(self, order: str) -> Wait:
        duplicate = order in self._started
        self._started.add(order)
        await self._writer.commit(_admission(order)[: 1 if duplicate else 2])
        return lambda: self._writer.commit(_record(order, 1, "completed"))

    async def timer(self, order: str, due: float) -> None:
        await self._writer.commit(_admission(order))
        # Wakes early and spins to the instant: the floor of W5 is one lone commit and no timer's lateness.
        await asyncio.sleep(due - time.time() - SPIN_S)
        while time.time() < due:
            pass
        await self._writer.commit(_record(order, 1, "completed"))

    async def listener(self, order: str) -> Wait:
        await self._writer.commit(_admission(order))

        async def signal() -> None:
            message = f"signal:{order}"
            await self._writer.commit(
                [(INSERT_MESSAGE, (order, message, PAYLOAD)), (UPDATE_RUN, ("waiting", PAYLOAD, order))]
            )
            await self._writer.commit([*_record(order, 1, "completed"), (UPDATE_MESSAGE, (order, message))])

        return signal


@asynccontextmanager
async def open_floor(directory: Path) -> AsyncGenerator[Floor, None]:
    writer = Writer(directory / "floor.db")
    try:
        yield Floor(writer)
    finally:
        await writer.close()


if __name__ == "__main__":
    contend(open_floor)
