"""On one file: what is committed is told by name, and is found by looking where it is not told.

A safety look once an hour shows what is told: what is not told is then not noticed at all.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from holdfast.errors import InvalidConfig, StoreUnavailable
from holdfast.kernel.messages import Watcher
from holdfast.ports.notices import ANYTHING, Notice, Ready
from holdfast.ports.store import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.pace import SqlitePace
from tests.builders import FakeClock, performed
from tests.contract.conftest import SqliteBackend
from tests.contract.helpers import (
    WORKFLOW,
    a_document,
    a_signal,
    admitted,
    blockage,
    claim,
    committed,
    completion,
    database,
    ended,
    held,
    let_go,
    progress,
    refused,
    retry,
    signalled,
    writes,
)
from tests.earlier_store import EarlierStore

PACE = SqlitePace()
HOURLY = SqlitePace(safety_seconds=3600.0)
POLL_MS = PACE.notice_seconds * 1000
SAFETY_MS = PACE.safety_seconds * 1000


class Told:
    """One that watches, and what it was told since it was asked last."""

    def __init__(self, sqlite: SqliteBackend, watcher: Store) -> None:
        self._sqlite = sqlite
        self.watcher = watcher
        self.notices: list[Notice] = []
        watcher.watch(lambda notice: not self.notices.append(notice))

    async def of(self, happens: Callable[[], Awaitable[object]]) -> list[Notice]:
        """What it is told when this happens, and within 20 ms."""
        await self._sqlite.quiet()
        self.notices.clear()
        await happens()
        await self._sqlite.noticed(lambda: False)
        return self.notices


async def _told(sqlite: SqliteBackend) -> tuple[Told, Store]:
    """A process that watches, and another one."""
    watcher, other = await sqlite.another(), await sqlite.another()
    told = Told(sqlite, watcher)
    await sqlite.quiet()
    return told, other


@pytest.fixture
def hourly(sqlite: SqliteBackend) -> SqliteBackend:
    sqlite.pace = HOURLY
    return sqlite


def _is_ready(notice: Notice, store: Store) -> bool:
    """Whether it tells of work that may be claimed by now, and of its workflow."""
    [ready] = notice.ready
    return (ready.namespace, ready.workflow) == ("default", WORKFLOW) and ready.wake_at_ms <= store.now_ms()


# -- what is told


async def test_work_is_told_now_and_for_later(hourly: SqliteBackend) -> None:
    told, other = await _told(hourly)
    [notice] = await told.of(lambda: admitted(other, "run-1", key=None))
    assert notice.runs == ("run-1",)
    assert _is_ready(notice, other)
    run = await held(other, "run-2", key=None)
    wake_at_ms = other.now_ms() + 5_000
    [notice] = await told.of(lambda: committed(other, let_go(other, run, wake_at_ms=wake_at_ms)))
    assert notice.ready == (Ready("default", WORKFLOW, wake_at_ms),)


async def test_an_end_is_told_and_so_is_a_run_that_is_blocked_and_one_that_is_tried_again(
    hourly: SqliteBackend,
) -> None:
    told, other = await _told(hourly)
    [notice] = await told.of(lambda: ended(other, "run-1", key=None))
    assert notice.settled == ("run-1",)
    run = await held(other, "run-2", key=None)
    [notice] = await told.of(lambda: committed(other, blockage(other, run)))
    assert notice.settled == ("run-2",)
    blocked = await other.run("default", "run-2")
    assert blocked is not None
    change = await retry(other, blocked)
    [notice] = await told.of(lambda: committed(other, change))
    assert notice.runs == ("run-2",)
    assert _is_ready(notice, other)


async def test_a_signal_is_told_to_the_holder_and_to_those_who_may_claim(hourly: SqliteBackend) -> None:
    told, other = await _told(hourly)
    run = await held(other)
    [notice] = await told.of(lambda: signalled(other, "run-1", 1))
    assert (notice.told, notice.ready) == (("run-1",), ())
    await committed(other, let_go(other, run, read=(a_signal(1).id,)))
    [notice] = await told.of(lambda: signalled(other, "run-1", 2))
    assert notice.told == ("run-1",)
    assert _is_ready(notice, other)


async def test_the_end_of_a_child_tells_the_workflow_of_a_parent_that_was_let_go(hourly: SqliteBackend) -> None:
    told, other = await _told(hourly)
    parent = await held(other, "parent", key=None)
    child = await held(other, "run-1", watcher=Watcher("parent", "child#1"))
    await committed(other, let_go(other, parent))
    [notice] = await told.of(lambda: committed(other, completion(other, child)))
    assert (notice.told, notice.settled) == (("parent",), ("run-1",))
    assert _is_ready(notice, other)


async def test_progress_is_told_together_and_within_20_ms(hourly: SqliteBackend) -> None:
    told, other = await _told(hourly)
    runs = [await held(other, f"run-{number}", key=None) for number in range(3)]

    async def all_go_on() -> None:
        for run in runs:
            await committed(other, progress(other, run, performed("s#1")))

    assert await told.of(all_go_on) == [Notice(("run-0", "run-1", "run-2"))]


async def test_documents_are_told_by_kind(hourly: SqliteBackend) -> None:
    told, other = await _told(hourly)
    document = a_document(other)
    assert await told.of(lambda: writes(other, document)) == [Notice(documents=(("default", "note"),))]
    again = a_document(other, body=b'"other"')
    assert await told.of(lambda: writes(other, again)) == []  # it was not stored


async def test_what_a_worker_leaves_behind_is_told(hourly: SqliteBackend) -> None:
    told, other = await _told(hourly)
    assert await told.of(lambda: other.join("w-1", 1_000)) == [ANYTHING]
    await held(other, owner="w-1")
    assert await told.of(lambda: other.leave("w-1")) == [ANYTHING]
    await other.join("w-2", 10)
    [run] = await claim(other, "w-2")
    hourly.clock.advance(20)
    assert await told.of(lambda: other.rescue(10)) == [ANYTHING]
    assert (await told.of(lambda: claim(other, "w-3")))[0].runs == (run.id,)


async def test_a_renewal_and_what_is_refused_are_told_to_none(hourly: SqliteBackend) -> None:
    told, other = await _told(hourly)
    await other.join("w-1", 1_000)
    assert await told.of(lambda: other.renew("w-1", 1_000)) == []
    stale = replace(await held(other), epoch=99)
    assert await told.of(lambda: refused(other, completion(other, stale))) == []


async def test_what_is_committed_while_the_first_other_process_comes_is_not_missed(hourly: SqliteBackend) -> None:
    """The batch was written without a thought of others, and told when one was there."""
    alone = await hourly.another()
    assert isinstance(alone, SqliteStore)
    parent = await held(alone, "parent", key=None)
    child = await held(alone, "run-1", watcher=Watcher("parent", "child#1"))
    await committed(alone, let_go(alone, parent))
    gate, reached = asyncio.Event(), asyncio.Event()
    do = alone._writer.do

    async def late(work: Callable[..., object]) -> object:
        done = await do(work)
        reached.set()
        await gate.wait()
        return done

    alone._writer.do = late  # type: ignore[method-assign]
    writing = asyncio.create_task(alone.commit([completion(alone, child)]))
    await reached.wait()
    told = Told(hourly, await hourly.another())
    await hourly.quiet()
    told.notices.clear()
    gate.set()
    await writing
    await hourly.quiet()
    assert told.notices == [ANYTHING]


# -- where it cannot be told


def _no_sockets(path: Path) -> None:
    path.with_name(path.name + "-wake").touch()


async def test_without_sockets_a_commit_is_noticed_within_two_polls_and_that_is_said(sqlite: SqliteBackend) -> None:
    _no_sockets(sqlite.path)
    told, other = await _told(sqlite)
    for number in range(5):
        assert await told.of(lambda number=number: admitted(other, f"run-{number}", key=None)) == [ANYTHING]
    assert "no socket can be made" in told.watcher.poll_reason
    assert sqlite.path.with_name(sqlite.path.name + "-wake").exists()


async def test_a_process_that_has_got_no_socket_tries_again(sqlite: SqliteBackend) -> None:
    _no_sockets(sqlite.path)
    told, other = await _told(sqlite)
    sqlite.path.with_name(sqlite.path.name + "-wake").unlink()
    await sqlite.quiet()
    assert told.watcher.poll_reason
    Told(sqlite, other)
    await sqlite.passed(PACE.unannounced_ms)
    assert (told.watcher.poll_reason, other.poll_reason) == ("", "")
    await sqlite.quiet()
    [notice] = await told.of(lambda: admitted(other, "run-1", key=None))
    assert notice.ready


async def test_a_process_that_tells_nothing_is_noticed_and_from_then_on_soon(sqlite: SqliteBackend) -> None:
    """While an installation is brought up to date, processes of both versions use the file."""
    told, other = await _told(sqlite)
    earlier = EarlierStore(sqlite.path, clock=sqlite.clock)
    await earlier.open()
    sqlite.opened(earlier)
    assert await told.of(lambda: admitted(earlier, "run-1", key=None)) == []
    await sqlite.passed(SAFETY_MS)
    assert told.notices == [ANYTHING]
    await sqlite.passed(PACE.announced_ms)
    assert "does not tell" in told.watcher.poll_reason
    for number in range(2, 6):
        assert await told.of(lambda number=number: admitted(earlier, f"run-{number}", key=None)) == [ANYTHING]
    # The others are told by name meanwhile.
    assert any(notice.ready for notice in await told.of(lambda: admitted(other, "run-6", key=None)))
    await sqlite.passed(PACE.unannounced_ms)
    await sqlite.passed(PACE.announced_ms)
    assert told.watcher.poll_reason == ""
    assert await told.of(lambda: admitted(earlier, "run-7", key=None)) == []


async def test_commits_between_those_that_are_told_are_noticed_within_a_second(sqlite: SqliteBackend) -> None:
    """They hide behind the others: each look finds that something was committed, and was told of something."""
    told, other = await _told(sqlite)
    probe = database(sqlite.path)
    for number in range(3):
        await admitted(other, f"run-{number}", key=None)
        probe.execute(
            f"INSERT INTO documents (namespace, kind, id, version, body) VALUES ('', 'odd', {number}, 1, x'')"
        )
        await admitted(other, f"also-{number}", key=None)
        await sqlite.quiet()
        told.notices.clear()
        await sqlite.passed(SAFETY_MS)
        assert told.notices == [ANYTHING]
    probe.close()


async def test_two_that_tell_each_other_never_have_to_look_often(sqlite: SqliteBackend) -> None:
    told, other = await _told(sqlite)
    Told(sqlite, other)
    own = told.watcher
    await own.join("w-1", 1_000_000)
    for number in range(60):
        await admitted(other, f"run-{number}", key=None)
        await own.renew("w-1", 1_000_000)
        run = await held(own, f"held-{number}", key=None)
        await committed(own, progress(own, run, performed("s#1")))
        await sqlite.passed(SAFETY_MS / 4)
        assert (own.poll_reason, other.poll_reason) == ("", "")


async def test_own_commits_are_not_taken_for_those_of_a_silent_process(sqlite: SqliteBackend) -> None:
    alone = await sqlite.another()
    told = Told(sqlite, alone)
    await sqlite.quiet()
    told.notices.clear()
    for number in range(30):
        await admitted(alone, f"run-{number}", key=None)
        await sqlite.passed(SAFETY_MS / 3)
    assert alone.poll_reason == ""
    assert told.notices == []


async def test_an_own_commit_that_is_seen_before_it_is_counted_is_still_an_own_one(sqlite: SqliteBackend) -> None:
    """The thread that writes may have to wait between its commit and its next line."""
    alone = await sqlite.another()
    assert isinstance(alone, SqliteStore)
    Told(sqlite, alone)
    await sqlite.passed(SAFETY_MS)
    await alone._writer.do(lambda db: db.execute("UPDATE clock SET offset_ms = offset_ms + 1"))
    await sqlite.passed(2 * SAFETY_MS)
    assert alone.poll_reason == ""


@pytest.mark.parametrize(
    ("asks", "error"),
    [
        ("_connect", apsw.CantOpenError("unable to open database file")),
        ("_connect", InvalidConfig("too old", hint="Install a newer one.")),
        ("_ask_writer", InvalidConfig("the directory does not exist", hint="Create it.")),
        ("_ask_writer", StoreUnavailable("it is locked by another process")),
    ],
)
async def test_a_look_that_fails_is_not_the_last_one(
    sqlite: SqliteBackend, monkeypatch: pytest.MonkeyPatch, asks: str, error: Exception
) -> None:
    def fail(*_: object) -> None:
        failed.set()
        raise error

    watcher, failed = await sqlite.another(), asyncio.Event()
    assert isinstance(watcher, SqliteStore)
    with monkeypatch.context() as patched:
        patched.setattr(watcher._commit_watch, asks, fail)
        told = Told(sqlite, watcher)
        await sqlite.quiet()
        assert failed.is_set()
    await sqlite.passed(SAFETY_MS)
    told.notices.clear()
    silent = database(sqlite.path)
    silent.execute("INSERT INTO documents (namespace, kind, id, version, body) VALUES ('', 'odd', 1, 1, x'')")
    silent.close()
    await sqlite.passed(SAFETY_MS)
    assert told.notices == [ANYTHING]


class RecordingClock(FakeClock):
    """Remembers how long the pauses were that were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float] = []

    async def pause(self, seconds: float) -> None:
        self.asked.append(seconds)
        await super().pause(seconds)


async def test_idle_processes_that_tell_each_other_look_once_a_second_and_no_more(sqlite: SqliteBackend) -> None:
    clock = sqlite.clock = RecordingClock()
    told, other = await _told(sqlite)
    Told(sqlite, other)
    await sqlite.passed(SAFETY_MS)
    told.notices.clear()
    clock.asked.clear()
    for _ in range(10):
        await sqlite.passed(SAFETY_MS)
    assert clock.asked == [PACE.safety_seconds] * 20
    assert told.notices == []


async def test_nothing_is_left_beside_the_file_when_all_have_gone(sqlite: SqliteBackend) -> None:
    stores = [await sqlite.another() for _ in range(3)]
    assert len(os.listdir(f"{sqlite.path}-wake")) == 3  # noqa: PTH208 - how many, not which
    for store in stores:
        await store.close()
    assert {path.name for path in sqlite.path.parent.iterdir()} == {sqlite.path.name}
