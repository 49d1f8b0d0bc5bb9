"""The SQLite store: WAL, synchronous=FULL, one writing thread per process, many processes per file.

- Everything that writes goes through one thread with one connection, in `BEGIN IMMEDIATE` transactions. A batch of
  changes is one transaction, hence one fsync.
- Reads go through a second thread, so that neither a long journal nor a busy disk stops the event loop.
- Each commit is told to the other processes on the file, through sockets beside it (`peers`). The file is looked at now
  and then in case that fails, and often where it cannot work (`commit_watch`).
- The clock is the machine's steady clock, set once per boot: wall-clock steps move nothing, and all processes of
  the machine agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec
from msgspec.structs import asdict, replace

from holdfast.errors import StoreUnavailable
from holdfast.kernel.audits import Audits
from holdfast.kernel.changes import Answer, Beat, Change, HookOpen
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.fairness import FairTurn
from holdfast.kernel.lanes import LaneSetting, LaneStanding, LaneState
from holdfast.kernel.messages import Message
from holdfast.kernel.outs import Outs
from holdfast.kernel.runs import Run
from holdfast.kernel.searches import Search
from holdfast.kernel.times import END_OF_TIME, Instant, Millis
from holdfast.ports.clock import Clock
from holdfast.ports.notices import ANYTHING, NOTHING, Notice, Ready
from holdfast.ports.store import Backlog, Batches, Claim, Claimed, Finding, History, KnownHook, Member, Serves
from holdfast.stores.notices import of_documents
from holdfast.stores.sqlite import backlogs, documents, files, inspections, kept, lanes, rules, searches
from holdfast.stores.sqlite.commit_watch import CommitWatch
from holdfast.stores.sqlite.files import Database
from holdfast.stores.sqlite.limiter import SqliteLimiter
from holdfast.stores.sqlite.notifier import FileNotifier, notice_of, woken_by
from holdfast.stores.sqlite.pace import PACE, SqlitePace
from holdfast.stores.sqlite.queries import SQL
from holdfast.stores.sqlite.rows import (
    decode_names,
    fresh_history_of,
    journal_of,
    member_of,
    message_of,
    messages_of,
    run_of,
)
from holdfast.stores.sqlite.threads import DatabaseThread
from holdfast.stores.sqlite.writes import SqlWrites, run_by_id, run_of_key

T = TypeVar("T")
BATCHES = Batches(size=512, at_once=1)  # one transaction after the other, hence as few as possible


class SqliteStore:
    """One file."""

    def __init__(self, path: Path, *, clock: Clock, pace: SqlitePace = PACE) -> None:
        self._path = path
        self._pace = pace
        self._clock = clock
        self._offset_ms: float = 0
        busy_ms = pace.busy_ms
        self._writer = DatabaseThread(lambda: files.prepare(path, busy_ms=busy_ms), path, "holdfast-writer", pace)
        self._reader = DatabaseThread(self._connect_reader, path, "holdfast-reader", pace)
        self._notices: asyncio.Task[None] | None = None
        self._notifier = FileNotifier(path, clock=clock, pace=pace)
        self._commit_watch = CommitWatch(
            self._notifier, connect=self._connect_reader, ask_writer=self._writer.do, clock=clock, pace=pace
        )
        self._writes = SqlWrites(self.now_ms)
        self._limiter = SqliteLimiter(path, now_ms=self.now_ms, clock=clock, pace=pace)

    def _connect_reader(self) -> Database:
        return files.connect(self._path, reader=True, busy_ms=self._pace.busy_ms)

    @property
    def batches(self) -> Batches:
        return BATCHES

    @property
    def caution(self) -> str:
        return ""

    @property
    def poll_reason(self) -> str:
        return self._commit_watch.poll_reason

    async def open(self) -> None:
        try:
            await self._writer.open()
            await self._reader.open()
            await self._write(self._set_clock)
            self._notifier.open()
        except BaseException as error:
            await self.close()
            if isinstance(error.__cause__, apsw.CorruptError | apsw.NotADBError):
                raise files.translated(
                    error.__cause__, self._path, busy_ms=self._pace.busy_ms, opening=True
                ) from error.__cause__
            raise

    async def close(self) -> None:
        if self._notices is not None:
            self._notices.cancel()
        self._notifier.close()
        await self._limiter.close()
        await self._reader.close()
        await self._writer.close()

    def now_ms(self) -> Instant:
        return int(self._clock.steady_ms() + self._offset_ms)  # pyright: ignore[reportReturnType] - read often: no call for a name

    def id_for(self, run_id: str, **_: str | None) -> str:
        return run_id  # there is one shard

    # -- commit

    async def commit(self, changes: Sequence[Change]) -> list[Answer]:
        write = partial(self._in_transaction, partial(self._apply_all, changes))
        answers, woken = await self._writer.do(write)
        if self._notifier.peers:
            self._notifier.tell(notice_of(answers, woken))
        return answers

    def _apply_all(self, changes: Sequence[Change], db: Database) -> tuple[list[Answer], list[Ready] | None]:
        answers = list(map(partial(self._writes.apply, db), changes))
        return answers, woken_by(db, answers) if self._notifier.peers else None

    # -- claim

    async def claim(self, claim: Claim) -> Claimed:
        def look_and_claim(db: Database) -> Claimed:
            # Look before asking for the write lock: an idle worker must not hold up the others. And on this thread,
            # not on that of the reads: a run that another process has started waits for each hand-over.
            due = backlogs.due_workflows(db, claim.namespace, claim.workflows, now_ms=self.now_ms())
            if not due or claim.limit < 1:
                return Claimed([])
            return self._in_transaction(lambda db: self._claim(db, replace(claim, workflows=due)), db)

        claimed = await self._writer.do(look_and_claim)
        if claimed.runs:
            self._notifier.tell(Notice(tuple(run.id for run in claimed.runs)))
        return claimed

    def _claim(self, db: Database, claim: Claim) -> Claimed:
        now_ms = self.now_ms()
        ready: list[tuple[int, Instant, int, str]] = []
        tags: dict[str, int] = {}
        for workflow in claim.workflows:
            left = claim.limit
            place = {"namespace": claim.namespace, "workflow": workflow, "now_ms": now_ms}
            for priority in backlogs.priorities(db, claim.namespace, workflow):
                line = {**place, "priority": priority}
                rows = db.execute(SQL["ready"], {**line, "limit": left}).fetchall()
                going = rules.in_turn(db, line, rows, tags)
                ready += [
                    (-priority, row[1], n, run_id) for n, (row, run_id) in enumerate(zip(rows, going, strict=True))
                ]
                left -= len(rows)
                if left <= 0:
                    break
        taken = sorted(ready)[: claim.limit]
        run_ids = [run_id for *_, run_id in taken]
        for run_id in run_ids:
            taking = {"owner": claim.owner, "nonce": claim.nonce, "now_ms": now_ms, "run_id": run_id}
            db.execute(SQL["claim"], taking)
        rows = self._rows(db, run_ids)
        runs = {run.id: run for run in map(run_of, rows)}
        for run_id in run_ids if tags else ():
            if run_id in tags:
                rules.begin(db, runs[run_id], tags[run_id])
        ready_at_ms = min((wake_at_ms for _, wake_at_ms, _, _ in taken), default=None)
        fresh = tuple(history for row in rows if (history := fresh_history_of(row)) is not None)
        return Claimed([runs[run_id] for run_id in run_ids], ready_at_ms, fresh)

    async def next_wake_at_ms(self, namespace: str, workflows: tuple[str, ...]) -> Instant | None:
        return await self._read(lambda db: backlogs.next_wake_at_ms(db, namespace, workflows))

    # -- reads

    async def run(self, namespace: str, run_id: str) -> Run | None:
        run = await self._read(lambda db: run_by_id(db, run_id))
        return run if run is not None and run.namespace == namespace else None

    async def runs(self, run_ids: Sequence[str]) -> list[Run]:
        return await self._read(lambda db: self._runs(db, run_ids))

    async def run_of_key(self, namespace: str, workflow: str, key: str) -> Run | None:
        return await self._read(lambda db: run_of_key(db, namespace, workflow, key))

    async def histories(self, run_ids: Sequence[str]) -> list[History]:
        def read(db: Database) -> list[History]:
            with db:  # one snapshot, so that row, journal and messages belong together
                return [
                    History(
                        run,
                        journal_of(db.execute(SQL["journal"], place).fetchall()),
                        messages_of(db.execute(SQL["messages"], place).fetchall()),
                        tuple(Beat(step, details) for step, details in db.execute(SQL["beats"], place).fetchall()),
                    )
                    for run in self._runs(db, run_ids)
                    for place in ({"run_id": run.id},)
                ]

        return await self._read(read)

    async def messages(self, owner: str, among: Collection[str] | None = None) -> dict[str, list[Message]]:
        rows = await self._read(lambda db: db.execute(SQL["unread"], {"owner": owner}).fetchall())
        found: dict[str, list[Message]] = {}
        for run_id, body in rows:
            if (among is None or run_id in among) and (message := message_of(body)) is not None:
                found.setdefault(run_id, []).append(message)
        return found

    async def held(self, owner: str) -> list[str]:
        return await self._read(lambda db: self._held(db, owner, limit=-1))

    async def blob(self, run_id: str, digest: str) -> bytes | None:
        rows = await self._read(lambda db: db.execute(SQL["blob"], {"run_id": run_id, "digest": digest}).fetchall())
        return rows[0][0] if rows else None

    async def search(self, search: Search) -> list[Run]:
        if search.statuses == frozenset():
            return []

        few = self._pace.few_runs

        def read(db: Database) -> list[Run]:
            with db:  # one snapshot: what is counted is what is read
                return [run_of(row) for row in db.execute(*searches.statement(db, search, few=few)).fetchall()]

        return await self._read(read)

    async def hook(self, run_id: str, name: str) -> HookOpen | None:
        rows = await self._read(lambda db: db.execute(SQL["hook"], {"run_id": run_id, "name": name}).fetchall())
        return HookOpen(*rows[0]) if rows else None

    async def hook_of_token(self, namespace: str, token: str) -> KnownHook | None:
        def read(db: Database) -> KnownHook | None:
            place = {"namespace": namespace, "token": token}
            for name, found, schema, run_id in db.execute(SQL["hook_of_token"], place).fetchall():
                run = run_by_id(db, run_id)
                return None if run is None else KnownHook(run, HookOpen(name, found, schema))
            return None

        return await self._read(read)

    async def served(self, namespace: str) -> frozenset[str]:
        live = {"namespace": namespace, "now_ms": self.now_ms()}
        rows = await self._read(lambda db: db.execute(SQL["served"], live).fetchall())
        return frozenset(name for (names,) in rows for name in decode_names(names))

    async def members(self, namespace: str) -> list[Member]:
        live = {"namespace": namespace, "now_ms": self.now_ms()}
        rows = await self._read(lambda db: db.execute(SQL["members"], live).fetchall())
        return [member_of(row) for row in rows]

    async def backlog(self, namespace: str) -> Backlog:
        return await self._read(lambda db: backlogs.backlog(db, namespace, now_ms=self.now_ms()))

    async def inspect(self) -> tuple[Finding, ...]:
        settings = await self._writer.do(inspections.settings)
        clocks = {"wall_ms": self._clock.wall_ms(), "now_ms": self.now_ms()}
        live = await self._read(lambda db: db.execute(SQL["live"], {"now_ms": self.now_ms()}).fetchall())
        notices = inspections.notices(self._notifier.peers, ((host, pid) for host, pid in live))
        try:
            of_file = await asyncio.to_thread(inspections.inspect, self._path, settings, pace=self._pace, **clocks)
        except apsw.Error as error:
            raise files.translated(error, self._path, busy_ms=self._pace.busy_ms) from error
        except OSError as error:
            raise StoreUnavailable(f"{self._path} cannot be looked at: {error}") from error
        return (*of_file, notices, await self._read(lanes.finding))

    # -- leases

    async def join(self, owner: str, ttl_ms: Millis, serves: Serves | None = None) -> None:
        told = serves or Serves("", ())
        row = {**asdict(told), "owner": owner, "workflows": msgspec.json.encode(told.workflows).decode()}

        def write(db: Database) -> None:
            now_ms = self.now_ms()
            db.execute(SQL["join"], row | {"joined_ms": now_ms, "until_ms": now_ms + ttl_ms})

        await self._write(write, lambda _: ANYTHING)

    async def renew(self, owner: str, ttl_ms: Millis) -> bool:
        def write(db: Database) -> bool:
            now_ms = self.now_ms()
            db.execute(SQL["renew"], {"until_ms": now_ms + ttl_ms, "owner": owner, "now_ms": now_ms})
            return db.changes() == 1

        return await self._write(write)

    async def leave(self, owner: str) -> None:
        def write(db: Database) -> None:
            self._free(db, owner, limit=-1)
            db.execute(SQL["leave"], {"owner": owner})

        await self._write(write, lambda _: ANYTHING)

    async def fallen(self, limit: int) -> list[Run]:
        def read(db: Database) -> list[str]:
            found: list[str] = []
            for owner in self._fallen(db):
                found += self._held(db, owner, limit=limit - len(found))
            return found

        held = await self._read(read)
        return await self.runs(held) if held else []

    async def rescue(self, limit: int, *, expired_until_ms: Instant = END_OF_TIME) -> list[str]:
        if not await self._read(self._fallen):
            return []

        def write(db: Database) -> list[str]:
            rescued: list[str] = []
            for owner in self._fallen(db, expired_until_ms):
                rescued += self._free(db, owner, limit=limit - len(rescued))
                if len(rescued) == limit:
                    break
                db.execute(SQL["leave"], {"owner": owner})
            return rescued

        return await self._write(write, lambda _: ANYTHING)

    def _fallen(self, db: Database, expired_until_ms: Instant = END_OF_TIME) -> list[str]:
        """Owners whose lease has expired, and owners without one: they were rescued before their last write landed."""
        by_ms = min(self.now_ms(), expired_until_ms)
        fallen = [owner for (owner,) in db.execute(SQL["expired"], {"now_ms": by_ms}).fetchall()]
        owner = ""
        while (owner := db.execute(SQL["next_owner"], {"after": owner}).fetchall()[0][0]) is not None:
            if not db.execute(SQL["has_lease"], {"owner": owner}).fetchall():
                fallen.append(owner)
        return fallen

    def _free(self, db: Database, owner: str, *, limit: int) -> list[str]:
        run_ids = self._held(db, owner, limit=limit)
        for run_id in run_ids:
            db.execute(SQL["free"], {"now_ms": self.now_ms(), "run_id": run_id})
        return run_ids

    def _held(self, db: Database, owner: str, *, limit: int) -> list[str]:
        return [run_id for (run_id,) in db.execute(SQL["held"], {"owner": owner, "limit": limit}).fetchall()]

    # -- retention

    async def prune(self, limit: int) -> int:
        # Look before asking for the write lock.
        looks = (SQL["over"], SQL["over_documents"])
        first = {"now_ms": self.now_ms(), "limit": 1}

        def look(db: Database) -> bool:
            is_over = any(db.execute(sql, first).fetchall() for sql in looks)
            is_over = is_over or bool(lanes.idle(db, 1, now_ms=self.now_ms()))
            return is_over or rules.is_any_over(db, now_ms=self.now_ms())

        if not await self._read(look):
            return 0

        def write(db: Database) -> int:
            over = db.execute(SQL["over"], {"now_ms": self.now_ms(), "limit": limit}).fetchall()
            for (run_id,) in over:
                db.execute("DELETE FROM runs WHERE id = :run_id", {"run_id": run_id})
                for table in ("journal", "blobs", "inbox", "watchers", "beats", "attributes", "hooks"):
                    db.execute(f"DELETE FROM {table} WHERE run_id = :run_id", {"run_id": run_id})  # noqa: S608 - our own names
            self._writes.lanes.forget_idle(db, limit)
            self._writes.rules.forget(db, limit)
            return len(over) + documents.prune(db, limit - len(over), now_ms=self.now_ms())

        return await self._write(write)

    async def relay(self, limit: int) -> int:
        # Nothing crosses shards where there is one.
        if not await self._read(lambda db: lanes.stale_places(db, 1)):
            return 0
        right, _ = await self._write(lambda db: self._writes.lanes.put_right(db, limit), lambda _: ANYTHING)
        return right

    # -- lanes

    async def set_lane(self, setting: LaneSetting) -> LaneState:
        def write(db: Database) -> LaneState:
            self._writes.lanes.set(db, setting)
            state = lanes.state(db, setting.namespace, setting.name)
            assert state is not None
            return state

        return await self._write(write, lambda _: ANYTHING)

    async def lane(self, namespace: str, name: str) -> LaneState | None:
        return await self._read(lambda db: lanes.state(db, namespace, name))

    async def lanes(self, namespace: str, *, after: str = "", limit: int = 100) -> list[LaneState]:
        return await self._read(lambda db: lanes.page(db, namespace, after=after, limit=limit))

    async def standing(self, run: Run) -> LaneStanding | None:
        return await self._read(lambda db: lanes.standing(db, run))

    # -- flow rules

    async def turn(self, run: Run) -> FairTurn | None:
        return await self._read(lambda db: rules.turn(db, run, now_ms=self.now_ms()))

    # -- outs and audits

    async def outs(self, namespace: str, *, after: str = "", limit: int = 100) -> Outs:
        return await self._read(lambda db: kept.outs(db, namespace, after=after, limit=limit))

    async def drop_outs(self, namespace: str, places: Sequence[str]) -> None:
        await self._write(lambda db: kept.drop(db, "drop_out", namespace, places))

    async def audits(self, namespace: str, *, after: str = "", limit: int = 100) -> Audits:
        return await self._read(lambda db: kept.audits(db, namespace, after=after, limit=limit))

    async def drop_audits(self, namespace: str, places: Sequence[str]) -> None:
        await self._write(lambda db: kept.drop(db, "drop_audit", namespace, places))

    # -- documents

    async def write(self, writings: Sequence[Writing]) -> list[bool]:
        return await self._write(
            lambda db: [documents.write(db, writing, now_ms=self.now_ms()) for writing in writings],
            lambda stored: of_documents(writings, stored),
        )

    async def document(self, namespace: str, kind: str, id: str) -> Document | None:
        return await self._read(lambda db: documents.one(db, namespace, kind, id, now_ms=self.now_ms()))

    async def named(self, places: Sequence[tuple[str, str, str]]) -> list[Document]:
        def read(db: Database) -> list[Document]:
            now_ms = self.now_ms()
            return [found for place in places if (found := documents.one(db, *place, now_ms=now_ms)) is not None]

        return await self._read(read)

    async def documents(self, namespace: str, kind: str, *, after: str = "", limit: int = 100) -> list[Document]:
        return await self._read(
            lambda db: documents.page(db, namespace, kind, after=after, limit=limit, now_ms=self.now_ms())
        )

    async def due(self, namespace: str, kinds: Sequence[str], limit: int) -> list[Document]:
        return await self._read(lambda db: documents.due(db, namespace, kinds, limit, now_ms=self.now_ms()))

    # -- limits

    @property
    def limiter(self) -> SqliteLimiter:
        return self._limiter

    # -- notices

    def watch(self, on_notice: Callable[[Notice], bool]) -> None:
        self._notifier.watch(on_notice)
        self._notices = asyncio.create_task(self._commit_watch.watch(on_notice))

    # -- the two threads

    async def _write(self, work: Callable[[Database], T], notice: Callable[[T], Notice] = lambda _: NOTHING) -> T:
        result = await self._writer.do(partial(self._in_transaction, work))
        if self._notifier.peers:
            self._notifier.tell(notice(result))
        return result

    def _in_transaction(self, work: Callable[[Database], T], db: Database) -> T:
        db.execute("BEGIN IMMEDIATE")
        try:
            self._commit_watch.look_from_writer(db)
            result = work(db)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        self._commit_watch.own_commits += 1
        return result

    def _read(self, work: Callable[[Database], T]) -> asyncio.Future[T]:
        return self._reader.do(work)

    def _runs(self, db: Database, run_ids: Sequence[str]) -> list[Run]:
        return [run_of(row) for row in self._rows(db, run_ids)]

    def _rows(self, db: Database, run_ids: Sequence[str]) -> list[tuple[Any, ...]]:
        return db.execute(SQL["runs"], {"run_ids": msgspec.json.encode(list(run_ids)).decode()}).fetchall()

    def _set_clock(self, db: Database) -> None:
        boot_id = self._clock.boot_id()
        rows = db.execute(SQL["clock"]).fetchall()
        if rows and rows[0][0] == boot_id:
            self._offset_ms = rows[0][1]
            return
        # The steady clock begins again when the machine starts, so its offset is set once per boot. The wall clock may
        # be behind then; the store's must not be: leases and timers would come again.
        newest_at_ms = db.execute(SQL["newest"]).fetchall()[0][0]
        self._offset_ms = round(max(self._clock.wall_ms(), newest_at_ms) - float(self._clock.steady_ms()))
        db.execute(SQL["set_clock"], {"boot_id": boot_id, "offset_ms": self._offset_ms})
