"""The SQLite store: WAL, synchronous=FULL, one writing thread per process, many processes per file.

- Everything that writes goes through one thread with one connection, in `BEGIN IMMEDIATE` transactions. A batch of
  changes is one transaction, hence one fsync.
- Reads go through a second thread, so that neither a long journal nor a busy disk stops the event loop.
- Other processes' commits are noticed by `PRAGMA data_version`, which reads a counter in shared memory.
- The clock is the machine's steady clock, set once per boot: wall-clock steps move nothing, and all processes of
  the machine agree.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import TypeVar

import apsw
import msgspec

from holdfast.kernel.changes import (
    ENDED,
    Answer,
    Beat,
    Change,
    Committed,
    Fenced,
    KeyFree,
    KeyHeldBy,
    Known,
    Message,
    Refused,
    Run,
    Status,
    Watcher,
    blob_of,
    outcome_message,
)
from holdfast.ports.clock import Clock
from holdfast.ports.store import Claim, History
from holdfast.stores.sqlite import files
from holdfast.stores.sqlite.files import Database
from holdfast.stores.sqlite.rows import COLUMNS, admitted, encode_entries, journal_of, message_of, run_of
from holdfast.stores.sqlite.threads import DatabaseThread

T = TypeVar("T")
NOTICE_SECONDS = 0.01


def _queries() -> dict[str, str]:
    text = resources.files("holdfast.stores.sqlite").joinpath("queries.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)[1:]
    return {name: sql.strip().replace("{columns}", COLUMNS) for name, sql in zip(parts[::2], parts[1::2], strict=True)}


SQL = _queries()
PRIORITY_TOP = 1 << 62


class SqliteStore:
    """One file."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._offset_ms: int = 0
        self._writer = DatabaseThread(lambda: files.prepare(path), path, "holdfast-writer")
        self._reader = DatabaseThread(lambda: files.connect(path, reader=True), path, "holdfast-reader")
        self._notices: asyncio.Task[None] | None = None
        self._writer_version: object = None
        self._foreign_commits = False
        self._own_commits = 0

    async def open(self) -> None:
        try:
            await self._writer.open()
            await self._reader.open()
            await self._write(self._set_clock)
        except BaseException as error:
            await self.close()
            if isinstance(error.__cause__, apsw.CorruptError | apsw.NotADBError):
                raise files.translated(error.__cause__, self._path, opening=True) from error.__cause__
            raise

    async def close(self) -> None:
        if self._notices is not None:
            self._notices.cancel()
        await self._reader.close()
        await self._writer.close()

    def now_ms(self) -> int:
        return int(self._clock.steady_ms() + self._offset_ms)

    # -- commit

    async def commit(self, changes: Sequence[Change]) -> list[Answer]:
        return await self._write(lambda db: [self._apply(db, change) for change in changes])

    def _apply(self, db: Database, change: Change) -> Answer:
        match change.guard:
            case KeyFree():
                return self._admit(db, change)
            case KeyHeldBy(run_id, epoch, nonce):
                if self._run(db, change.id) is None:
                    db.execute(SQL["release_key"], (run_id, epoch, nonce))
                return self._admit(db, change)
            case Fenced(run_id, epoch, nonce) if change.run is None:
                if not db.execute(SQL["at_fence"], (run_id, epoch, nonce)).fetchall():
                    return Refused(self._run(db, run_id))
                self._write_beats(db, run_id, change.beats)
                return Committed(None)
            case Fenced():
                return self._update(db, change)
            case Known(run_id):
                run = self._run(db, run_id)
                if run is None:
                    return Refused(None)
                return Committed(run, self._add_watcher(db, run, change.watcher))

    def _admit(self, db: Database, change: Change) -> Answer:
        run = change.run
        assert run is not None
        db.execute(SQL["admit"], admitted(run))
        if not db.changes():
            known = self._run(db, run.id)
            if known is not None:  # offered again after a lost reply
                return Committed(known)
            assert run.key is not None
            return Refused(self._run_of_key(db, run.namespace, run.workflow, run.key))
        self._append(db, run.id, 0, change)
        if change.watcher is not None:
            self._add_watcher(db, run, change.watcher)
        return Committed(run)

    def _update(self, db: Database, change: Change) -> Answer:
        run, guard = change.run, change.guard
        assert run is not None
        assert isinstance(guard, Fenced)
        position, read = run.length - len(change.entries), len(change.read)
        if run.status is Status.RUNNING:
            fence = (run.id, guard.epoch, guard.nonce, position, change.id)
            if read:
                db.execute(SQL["progress_and_read"], (read, run.length, change.id, *fence))
            else:
                db.execute(SQL["progress"], (run.length, change.id, *fence))
        else:
            db.execute(
                SQL["settle"],
                (
                    run.status,
                    run.epoch,
                    run.nonce,
                    run.owner,
                    run.wake_ms,
                    run.length,
                    read,
                    run.started_ms,
                    run.finished_ms,
                    run.expires_ms,
                    run.output,
                    run.error,
                    change.id,
                    run.id,
                    guard.epoch,
                    guard.nonce,
                    self.now_ms(),
                    position,
                ),
            )
        if not db.changes():
            current = self._run(db, run.id)
            repeated = current is not None and current.change_id == change.id
            return Committed(current) if repeated else Refused(current)
        self._append(db, run.id, position, change)
        for message_id in change.read:
            db.execute(SQL["forget_message"], (run.id, message_id))
        self._write_beats(db, run.id, change.beats)
        if run.status in ENDED:
            return Committed(run, self._tell_watchers(db, run))
        if run.status is Status.WAITING:
            return Committed(self._run(db, run.id))  # the store may have set another wake-up
        return Committed(run)

    def _append(self, db: Database, run_id: str, position: int, change: Change) -> None:
        if change.entries:
            db.execute(SQL["append"], (run_id, position, encode_entries(change.entries)))
        for blob in change.blobs:
            db.execute(SQL["keep_blob"], (run_id, blob.digest, blob.data))

    def _write_beats(self, db: Database, run_id: str, beats: tuple[Beat, ...]) -> None:
        for beat in beats:
            db.execute(SQL["keep_beat"], (run_id, beat.step, beat.details))

    def _add_watcher(self, db: Database, run: Run, watcher: Watcher | None) -> tuple[str, ...]:
        if watcher is None:
            return ()
        db.execute(SQL["add_watcher"], (run.id, watcher.run_id, watcher.step))
        return self._tell(db, run, watcher) if run.status in ENDED else ()

    def _tell_watchers(self, db: Database, run: Run) -> tuple[str, ...]:
        told: tuple[str, ...] = ()
        for watcher, step in db.execute(SQL["watchers"], (run.id,)).fetchall():
            told += self._tell(db, run, Watcher(watcher, step))
        return told

    def _tell(self, db: Database, run: Run, watcher: Watcher) -> tuple[str, ...]:
        message = outcome_message(run, watcher)
        db.execute(
            SQL["add_message"],
            (watcher.run_id, message.id, message.step, message.from_run, message.status, message.output, message.error),
        )
        if not db.changes():
            return ()
        if (digest := blob_of(message)) is not None:
            db.execute(SQL["copy_blob"], (watcher.run_id, run.id, digest))
        db.execute(SQL["tell"], (self.now_ms(), watcher.run_id))
        return (watcher.run_id,)

    # -- claim

    async def claim(self, claim: Claim) -> list[Run]:
        # Look before asking for the write lock: an idle worker must not hold up the others.
        wake_ms = await self.next_wake_ms(claim.namespace, claim.workflows)
        if wake_ms is None or wake_ms > self.now_ms() or claim.limit < 1:
            return []
        return await self._write(lambda db: self._claim(db, claim))

    def _claim(self, db: Database, claim: Claim) -> list[Run]:
        now_ms = self.now_ms()
        ready: list[tuple[int, int, str]] = []
        for workflow in claim.workflows:
            left = claim.limit
            for priority in self._priorities(db, claim.namespace, workflow):
                rows = db.execute(SQL["ready"], (claim.namespace, workflow, priority, now_ms, left)).fetchall()
                ready += [(-priority, wake_ms, run_id) for run_id, wake_ms in rows]
                left -= len(rows)
                if left <= 0:
                    break
        run_ids = [run_id for _, _, run_id in sorted(ready)[: claim.limit]]
        for run_id in run_ids:
            db.execute(SQL["claim"], (claim.owner, claim.nonce, now_ms, run_id))
        runs = {run.id: run for run in self._runs(db, run_ids)}
        return [runs[run_id] for run_id in run_ids]

    def _priorities(self, db: Database, namespace: str, workflow: str) -> list[int]:
        """The distinct priorities that have work, highest first: one index seek each, however much work there is."""
        priorities: list[int] = []
        while rows := db.execute(
            SQL["next_priority"], (namespace, workflow, priorities[-1] if priorities else PRIORITY_TOP)
        ).fetchall():
            priorities.append(rows[0][0])
        return priorities

    async def next_wake_ms(self, namespace: str, workflows: tuple[str, ...]) -> int | None:
        def read(db: Database) -> int | None:
            wakes = [
                db.execute(SQL["first_wake"], (namespace, workflow, priority)).fetchall()[0][0]
                for workflow in workflows
                for priority in self._priorities(db, namespace, workflow)
            ]
            return min(wakes, default=None)

        return await self._read(read)

    # -- reads

    async def run(self, namespace: str, run_id: str) -> Run | None:
        run = await self._read(lambda db: self._run(db, run_id))
        return run if run is not None and run.namespace == namespace else None

    async def runs(self, run_ids: Sequence[str]) -> list[Run]:
        return await self._read(lambda db: self._runs(db, run_ids))

    async def run_of_key(self, namespace: str, workflow: str, key: str) -> Run | None:
        return await self._read(lambda db: self._run_of_key(db, namespace, workflow, key))

    async def histories(self, run_ids: Sequence[str]) -> list[History]:
        def read(db: Database) -> list[History]:
            with db:  # one snapshot, so that row, journal and messages belong together
                return [
                    History(
                        run,
                        journal_of(db.execute(SQL["journal"], (run.id,)).fetchall()),
                        tuple(map(message_of, db.execute(SQL["messages"], (run.id,)).fetchall())),
                        tuple(Beat(step, details) for step, details in db.execute(SQL["beats"], (run.id,)).fetchall()),
                    )
                    for run in self._runs(db, run_ids)
                ]

        return await self._read(read)

    async def messages(self, owner: str) -> dict[str, list[Message]]:
        rows = await self._read(lambda db: db.execute(SQL["unread"], (owner,)).fetchall())
        found: dict[str, list[Message]] = {}
        for run_id, *rest in rows:
            found.setdefault(run_id, []).append(message_of(rest))
        return found

    async def held(self, owner: str) -> list[str]:
        return await self._read(lambda db: [run_id for (run_id,) in db.execute(SQL["held"], (owner, -1)).fetchall()])

    async def blob(self, run_id: str, digest: str) -> bytes | None:
        rows = await self._read(lambda db: db.execute(SQL["blob"], (run_id, digest)).fetchall())
        return rows[0][0] if rows else None

    # -- leases

    async def join(self, owner: str, ttl_ms: int) -> None:
        await self._write(lambda db: db.execute(SQL["join"], (owner, self.now_ms() + ttl_ms)))

    async def renew(self, owner: str, ttl_ms: int) -> bool:
        def write(db: Database) -> bool:
            now_ms = self.now_ms()
            db.execute(SQL["renew"], (now_ms + ttl_ms, owner, now_ms))
            return db.changes() == 1

        return await self._write(write)

    async def leave(self, owner: str) -> None:
        def write(db: Database) -> None:
            self._free(db, owner, limit=-1)
            db.execute(SQL["leave"], (owner,))

        await self._write(write)

    async def rescue(self, limit: int) -> list[str]:
        if not await self._read(self._fallen):
            return []

        def write(db: Database) -> list[str]:
            rescued: list[str] = []
            for owner in self._fallen(db):
                rescued += self._free(db, owner, limit=limit - len(rescued))
                if len(rescued) == limit:
                    break
                db.execute(SQL["leave"], (owner,))
            return rescued

        return await self._write(write)

    def _fallen(self, db: Database) -> list[str]:
        """Owners whose lease has expired, and owners without one: they were rescued before their last write landed."""
        fallen = [owner for (owner,) in db.execute(SQL["expired"], (self.now_ms(),)).fetchall()]
        owner = ""
        while (owner := db.execute(SQL["next_owner"], (owner,)).fetchall()[0][0]) is not None:
            if not db.execute(SQL["has_lease"], (owner,)).fetchall():
                fallen.append(owner)
        return fallen

    def _free(self, db: Database, owner: str, *, limit: int) -> list[str]:
        run_ids = [run_id for (run_id,) in db.execute(SQL["held"], (owner, limit)).fetchall()]
        for run_id in run_ids:
            db.execute(SQL["free"], (self.now_ms(), run_id))
        return run_ids

    # -- retention

    async def prune(self, limit: int) -> int:
        if not await self._read(lambda db: db.execute(SQL["over"], (self.now_ms(), 1)).fetchall()):
            return 0

        def write(db: Database) -> int:
            over = [run_id for (run_id,) in db.execute(SQL["over"], (self.now_ms(), limit)).fetchall()]
            for run_id in over:
                db.execute("DELETE FROM runs WHERE id = ?", (run_id,))
                for table in ("journal", "blobs", "messages", "watchers", "beats"):
                    db.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608 - our own names
            return len(over)

        return await self._write(write)

    # -- notices

    def watch(self, on_change: Callable[[], None]) -> None:
        self._notices = asyncio.create_task(self._notice(on_change))

    async def _notice(self, on_change: Callable[[], None]) -> None:
        """Tell commits of other processes from our own.

        A connection's data_version moves when any other connection commits. The writer looks at its own when it
        begins, so it sees just the foreign ones; while it is idle, so does the connection that is looked at here.
        In doubt, after a tick in which both may have happened, the writer is asked as soon as it is idle.
        """
        db = files.connect(self._path, reader=True)
        cursor = db.cursor()
        seen, own, in_doubt = None, -1, True
        try:
            while True:
                try:
                    version = cursor.execute("PRAGMA data_version").fetchall()
                except apsw.Error:
                    version = None  # whoever is told will meet the trouble, and say it
                idle, own = own == self._own_commits, self._own_commits
                if idle and in_doubt:
                    await self._writer.do(self._look_for_foreign_commits)
                if self._foreign_commits or (idle and version != seen):
                    self._foreign_commits = False
                    on_change()
                in_doubt = not idle
                seen = version
                await self._clock.pause(NOTICE_SECONDS)
        finally:
            db.close()

    def _look_for_foreign_commits(self, db: Database) -> None:
        version = db.execute("PRAGMA data_version").fetchall()
        if version != self._writer_version:
            self._writer_version = version
            self._foreign_commits = True

    # -- the two threads

    async def _write(self, work: Callable[[Database], T]) -> T:
        return await self._writer.do(lambda db: self._in_transaction(db, work))

    def _in_transaction(self, db: Database, work: Callable[[Database], T]) -> T:
        db.execute("BEGIN IMMEDIATE")
        try:
            self._look_for_foreign_commits(db)
            result = work(db)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        self._own_commits += 1
        return result

    async def _read(self, work: Callable[[Database], T]) -> T:
        return await self._reader.do(work)

    def _run(self, db: Database, run_id: str) -> Run | None:
        rows = db.execute(SQL["run"], (run_id,)).fetchall()
        return run_of(rows[0]) if rows else None

    def _runs(self, db: Database, run_ids: Sequence[str]) -> list[Run]:
        return [
            run_of(row) for row in db.execute(SQL["runs"], (msgspec.json.encode(list(run_ids)).decode(),)).fetchall()
        ]

    def _run_of_key(self, db: Database, namespace: str, workflow: str, key: str) -> Run | None:
        rows = db.execute(SQL["run_of_key"], (namespace, workflow, key)).fetchall()
        return run_of(rows[0]) if rows else None

    def _set_clock(self, db: Database) -> None:
        boot_id = self._clock.boot_id()
        rows = db.execute(SQL["clock"]).fetchall()
        if rows and rows[0][0] == boot_id:
            self._offset_ms = rows[0][1]
            return
        # After a restart the wall clock may be behind; the store's must not be.
        newest_ms = db.execute(SQL["newest"]).fetchall()[0][0]
        self._offset_ms = round(max(self._clock.wall_ms(), newest_ms) - self._clock.steady_ms())
        db.execute(SQL["set_clock"], (boot_id, self._offset_ms))
