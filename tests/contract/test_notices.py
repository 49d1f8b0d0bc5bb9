"""A process that watches is told of other processes' commits: soon, and without a write or a query."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path

from holdfast.stores.sqlite.pace import SqlitePace
from tests.builders import performed
from tests.contract.conftest import POLLS_MAX, Backend, SqliteBackend
from tests.contract.helpers import admitted, committed, completion, database, held, progress

ROOT = Path(__file__).parents[2]


async def test_two_polls_are_within_the_promise() -> None:
    assert SqlitePace().notice_seconds * POLLS_MAX <= 0.020


async def test_a_commit_of_another_store_is_noticed_within_two_polls(backend: Backend) -> None:
    watcher, other = await backend.another(), await backend.another()
    told: list[int] = []
    watcher.watch(lambda _: not told.append(1))
    await backend.quiet()
    run = await held(other)
    for number in range(10):
        before = len(told)
        run = await committed(other, progress(other, run, performed(f"s#{number}")))
        await backend.noticed(lambda before=before: len(told) > before)
        assert len(told) > before, number


async def test_claims_leases_and_ends_are_noticed_too(sqlite: SqliteBackend) -> None:
    watcher, other = await sqlite.another(), await sqlite.another()
    told: list[int] = []
    watcher.watch(lambda _: not told.append(1))
    await sqlite.quiet()
    for happens in (
        lambda: admitted(other, "run-1"),
        lambda: other.join("w-1", 1_000),
        lambda: other.leave("w-1"),
    ):
        before = len(told)
        await happens()
        await sqlite.noticed(lambda before=before: len(told) > before)
        assert len(told) > before


async def test_a_commit_of_another_process_is_noticed_within_two_polls(sqlite: SqliteBackend) -> None:
    watcher = await sqlite.another()
    told: list[int] = []
    watcher.watch(lambda _: not told.append(1))
    await sqlite.quiet()
    before = len(told)
    await asyncio.to_thread(_commit_elsewhere, sqlite.path)
    await sqlite.noticed(lambda: len(told) > before)
    assert len(told) > before
    assert await watcher.run("default", "elsewhere") is not None


def _commit_elsewhere(path: Path) -> None:
    code = f"""
        import asyncio, pathlib
        from holdfast.stores.sqlite import SqliteStore
        from tests.builders import FakeClock
        from tests.contract.helpers import admitted

        async def main():
            store = SqliteStore(pathlib.Path({str(path)!r}), clock=FakeClock())
            await store.open()
            await admitted(store, "elsewhere")
            await store.close()

        asyncio.run(main())
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60, cwd=ROOT)


async def test_nothing_is_told_while_nothing_happens(sqlite: SqliteBackend) -> None:
    watcher = await sqlite.another()
    await admitted(watcher)
    told: list[int] = []
    watcher.watch(lambda _: not told.append(1))
    await sqlite.quiet()
    before = len(told)
    for _ in range(40):
        await sqlite.quiet()
    assert len(told) == before


async def test_watching_writes_nothing(sqlite: SqliteBackend) -> None:
    watcher, other = await sqlite.another(), await sqlite.another()
    run = await held(other)
    await committed(other, completion(other, run))
    watcher.watch(lambda _: True)
    await sqlite.quiet()
    probe = database(sqlite.path)
    version = probe.execute("PRAGMA data_version").fetchall()
    wal = sqlite.path.with_name(sqlite.path.name + "-wal").stat()
    for _ in range(40):
        await sqlite.quiet()
    assert probe.execute("PRAGMA data_version").fetchall() == version
    after = sqlite.path.with_name(sqlite.path.name + "-wal").stat()
    assert (after.st_size, after.st_mtime_ns) == (wal.st_size, wal.st_mtime_ns)
    probe.close()


async def test_a_watcher_does_not_keep_others_from_writing(sqlite: SqliteBackend) -> None:
    """It must hold no snapshot: a log that can never be truncated would grow forever."""
    watcher, other = await sqlite.another(), await sqlite.another()
    watcher.watch(lambda _: True)
    await sqlite.quiet()
    for number in range(20):
        await admitted(other, f"run-{number}", key=None)
        await sqlite.noticed(lambda: False)
    probe = database(sqlite.path)
    busy, frames, done = probe.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
    assert (busy, frames, done) == (0, 0, 0)
    probe.close()
