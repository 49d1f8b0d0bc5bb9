"""The store of the sketch: the rows, the claim of a key, the guard of an owner, and the thread that commits.

It has of Holdfast's tables what the design needs, and the settings of Holdfast's store. A run is admitted by a run row
and a journal row; what it records is its run row at its fence, and a journal row. Commits that are ready together share
a transaction; a lone one is not held back.
"""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import apsw
from msgspec import Raw, Struct
from msgspec.msgpack import Decoder, encode

SCHEMA = """
create table runs (
    rowid integer primary key, id text not null unique, workflow text not null, key text not null unique,
    digest text not null, request_id text not null, retention_ms integer not null, created_ms integer not null,
    status text not null, epoch integer not null, nonce text not null, owner text, length integer not null,
    finished_ms integer, expires_ms integer, output blob, change_id text not null) strict;
create index runs_held on runs (owner) where owner is not null;
create table journal (run_id text not null, position integer not null, entries blob not null,
                      primary key (run_id, position)) strict, without rowid;
"""
SETTINGS = {"journal_mode": "wal", "synchronous": "full", "cache_size": -65536, "journal_size_limit": 67108864}
ADMIT = """insert into runs (id, workflow, key, digest, request_id, retention_ms, created_ms, status, epoch, nonce,
    owner, length, change_id) values (?, ?, ?, ?, ?, ?, ?, 'running', 1, ?, ?, 1, ?) on conflict do nothing"""
HOLDER = "select id, digest, output from runs where key = ?"
PROGRESS = "update runs set length = ?, change_id = ? where id = ? and epoch = ? and nonce = ? and length = ?"
SETTLE = """update runs set status = 'completed', owner = null, finished_ms = ?, expires_ms = ?, output = ?, length = ?,
    change_id = ? where id = ? and epoch = ? and nonce = ? and length = ?"""
APPEND = "insert into journal values (?, ?, ?)"
TAKE = "update runs set owner = ?, nonce = ?, epoch = epoch + 1 where owner is not null returning id, workflow, epoch"
JOURNAL = "select entries from journal where run_id = ? order by position"
RETENTION_MS = 30 * 86_400_000

Change = Callable[[apsw.Cursor], Any]  # called in a transaction that others share
Batch = list[tuple[Change, asyncio.Future[Any]]]


class Started(Struct, tag="started", tag_field="what"):
    at_ms: int
    input: Raw


class Intent(Struct):
    """What the code asked for. On a replay it must ask for the same."""

    kind: str
    name: str
    key: str
    digest: str
    line: str


class Performed(Struct, tag="performed", tag_field="what"):
    at_ms: int
    step: str
    intent: Intent
    attempt: int
    value: Raw


class Completed(Struct, tag="completed", tag_field="what"):
    at_ms: int


Entry = Started | Performed | Completed
decode_entries = Decoder(list[Entry]).decode


class Holder(NamedTuple):
    """The run that has a key."""

    run_id: str
    digest: str  # of its input
    output: bytes | None  # if it has ended


class Fence(NamedTuple):
    """A run in the hands of one owner."""

    run_id: str
    epoch: int
    nonce: str

    def change_id(self, length: int, status: str) -> str:
        return f"{self.run_id}/{self.epoch}.{self.nonce}.{length}.{status}"


class Admission(NamedTuple):
    """A run that is wanted: it is admitted if its key is free."""

    fence: Fence
    owner: str
    workflow: str
    key: str
    digest: str
    first: Started

    def __call__(self, db: apsw.Cursor) -> Holder:
        run_id = self.fence.run_id
        row = (run_id, self.workflow, self.key, self.digest, run_id, RETENTION_MS, self.first.at_ms)
        db.execute(ADMIT, (*row, self.fence.nonce, self.owner, self.fence.change_id(1, "running")))
        if not db.connection.changes():
            return Holder(*db.execute(HOLDER, (self.key,)).fetchall()[0])
        db.execute(APPEND, (run_id, 0, encode([self.first])))
        return Holder(run_id, self.digest, None)


class Record(NamedTuple):
    """What a run has recorded, from a position on; with its output, if it has ended. Not written at another fence."""

    fence: Fence
    position: int
    entries: list[Entry]
    output: bytes | None

    def __call__(self, db: apsw.Cursor) -> bool:
        length = self.position + len(self.entries)
        change_id = self.fence.change_id(length, "running" if self.output is None else "completed")
        if self.output is None:
            db.execute(PROGRESS, (length, change_id, *self.fence, self.position))
        else:
            at_ms = self.entries[-1].at_ms
            ended = (at_ms, at_ms + RETENTION_MS, self.output)
            db.execute(SETTLE, (*ended, length, change_id, *self.fence, self.position))
        if not db.connection.changes():
            return False
        db.execute(APPEND, (self.fence.run_id, self.position, encode(self.entries)))
        return True


class Writer:
    """Commits on a thread of its own. What becomes ready while a batch is being written leaves as the next."""

    def __init__(self, path: Path) -> None:
        self._db = apsw.Connection(str(path))
        self._db.set_busy_timeout(5_000)
        for name, value in SETTINGS.items():
            self._db.pragma(name, value)
        if not self._db.pragma("user_version"):
            self._db.execute(f"begin; {SCHEMA} pragma user_version = 1; commit")
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Batch | None] = SimpleQueue()
        self._waiting: Batch = []
        self._busy = False
        self._thread = threading.Thread(target=self._write, name="sketch-writer")

    def take_runs(self, owner: str, nonce: str) -> list[tuple[Fence, str, list[Entry]]]:
        """The runs that are under way, each with its workflow and its journal; before the thread is started."""
        return [
            (Fence(run_id, epoch, nonce), workflow, self._journal(run_id))
            for run_id, workflow, epoch in self._db.execute(TAKE, (owner, nonce)).fetchall()
        ]

    def _journal(self, run_id: str) -> list[Entry]:
        return [entry for (row,) in self._db.execute(JOURNAL, (run_id,)) for entry in decode_entries(row)]

    def start(self) -> None:
        self._thread.start()

    def commit(self, change: Change) -> asyncio.Future[Any]:
        """What the change returns, once it is durable."""
        answer = self._loop.create_future()
        self._waiting.append((change, answer))
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._send)
        return answer

    async def close(self) -> None:
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        self._db.close()

    def _send(self) -> None:
        batch, self._waiting = self._waiting, []
        self._queue.put(batch)

    def _write(self) -> None:
        cursor = self._db.cursor()
        while (batch := self._queue.get()) is not None:
            cursor.execute("begin immediate")
            results = [change(cursor) for change, _ in batch]
            cursor.execute("commit")
            self._loop.call_soon_threadsafe(self._hand_back, batch, results)

    def _hand_back(self, batch: Batch, results: list[Any]) -> None:
        for (_, answer), result in zip(batch, results, strict=True):
            if not answer.done():
                answer.set_result(result)
        self._busy = bool(self._waiting)
        if self._busy:
            self._send()
