"""What may be wrong with a database file, and what is said about it. Nothing is ever overwritten."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
from importlib import resources
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError, InvalidConfig, StoreUnavailable
from holdfast.kernel.times import Millis
from holdfast.stores.sqlite import SqliteStore, files
from holdfast.stores.sqlite.pace import SqlitePace
from tests.builders import FakeClock
from tests.contract.conftest import SqliteBackend
from tests.contract.helpers import admitted, claim, committed, completion, database, held, history

ROOT = Path(__file__).parents[2]


async def _refused(path: Path) -> InvalidConfig:
    store = SqliteStore(path, clock=FakeClock())
    with pytest.raises(InvalidConfig) as caught:
        await store.open()
    await store.close()
    assert caught.value.hint
    assert str(path) in caught.value.message
    return caught.value


async def _opened(path: Path) -> SqliteStore:
    store = SqliteStore(path, clock=FakeClock())
    await store.open()
    return store


def _newest() -> int:
    return max(int(file.name[:4]) for file in resources.files(files._PACKAGE).iterdir() if file.name.endswith(".sql"))


async def test_a_new_file_gets_the_newest_schema_and_our_mark(tmp_path: Path) -> None:
    store = await _opened(tmp_path / "new.db")
    await store.close()
    db = database(tmp_path / "new.db")
    assert db.pragma("user_version") == _newest()
    assert db.pragma("application_id") == files.APPLICATION_ID
    assert db.pragma("journal_mode") == "wal"
    db.close()


async def test_an_empty_file_is_taken_as_new(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    store = await _opened(path)
    await admitted(store)
    await store.close()


async def test_a_file_opened_again_keeps_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    store = await _opened(path)
    run = await committed(store, completion(store, await held(store)))
    journal = (await history(store)).journal
    await store.close()
    again = await _opened(path)
    assert await again.run("default", "run-1") == run
    assert (await history(again)).journal == journal
    await again.close()


async def test_migrations_are_numbered_without_gaps() -> None:
    names = sorted(file.name for file in resources.files(files._PACKAGE).iterdir() if file.name.endswith(".sql"))
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))


async def test_a_migration_that_was_cut_off_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """A crash in the middle of the first migration: the next one begins again."""
    path = tmp_path / "cut.db"
    db = database(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("BEGIN IMMEDIATE")
    db.execute("CREATE TABLE runs (half INTEGER)")
    db.execute(f"PRAGMA application_id = {files.APPLICATION_ID}")
    db.close(True)  # without a commit
    store = await _opened(path)
    await admitted(store)
    await store.close()


async def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "newer.db"
    store = await _opened(path)
    await admitted(store)
    await store.close()
    db = database(path)
    db.execute(f"PRAGMA user_version = {_newest() + 1}")
    db.close()
    error = await _refused(path)
    assert str(_newest() + 1) in error.message
    db = database(path)
    assert db.execute("SELECT id FROM runs").fetchall() == [("run-1",)]
    assert db.pragma("user_version") == _newest() + 1
    db.close()


@pytest.mark.parametrize("mark", [0, 0x12345678])
async def test_the_database_of_another_application_is_refused_and_left_alone(tmp_path: Path, mark: int) -> None:
    path = tmp_path / "foreign.db"
    db = database(path)
    db.execute("CREATE TABLE customers (name TEXT)")
    db.execute("INSERT INTO customers VALUES ('Ada')")
    db.execute(f"PRAGMA application_id = {mark}")
    db.close()
    before = path.read_bytes()
    error = await _refused(path)
    assert "another application" in error.message
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"hello, I am no database. " * 100, b"\x00" * 8192, b"PK\x03\x04zip" * 500])
async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "letter.db"
    path.write_bytes(content)
    await _refused(path)
    assert path.read_bytes() == content


async def test_a_corrupt_file_is_said_to_be_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "corrupt.db"
    store = await _opened(path)
    for n in range(200):
        await admitted(store, f"run-{n}", key=None)
    await store.close()
    data = bytearray(path.read_bytes())
    data[100 : len(data)] = b"\xff" * (len(data) - 100)  # the header is whole, the pages are not
    path.write_bytes(data)
    error = await _refused(path)
    assert "corrupt" in error.message
    assert bytes(data) == path.read_bytes()


async def test_damage_found_later_is_called_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "later.db"
    store = await _opened(path)
    for n in range(400):
        await admitted(store, f"run-{n}", key=None)
    await store.close()
    pages = path.stat().st_size // 4096
    data = bytearray(path.read_bytes())
    for page in range(3 * pages // 4, pages):  # the schema is whole, the rows are not
        data[page * 4096 : (page + 1) * 4096] = b"\xfe" * 4096
    path.write_bytes(data)
    store = await _opened(path)
    with pytest.raises(HoldfastError, match="corrupt") as caught:
        await store.histories([f"run-{n}" for n in range(400)])
    assert "backup" in caught.value.hint
    await store.close()


async def test_a_missing_directory_is_named_with_the_command_that_makes_it(tmp_path: Path) -> None:
    path = tmp_path / "no" / "such" / "x.db"
    error = await _refused(path)
    assert f"mkdir -p {path.parent}" in error.hint
    assert not path.parent.exists()


async def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    await _refused(tmp_path / "file" / "x.db")


async def test_a_directory_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dir.db").mkdir()
    await _refused(tmp_path / "dir.db")


async def test_a_directory_in_which_nobody_may_write_is_refused() -> None:
    await _refused(Path("/proc/self/x.db"))


async def test_a_store_that_could_not_be_opened_leaves_no_thread_behind(tmp_path: Path) -> None:
    path = tmp_path / "letter.db"
    path.write_bytes(b"hello, I am no database. " * 100)
    before = set(threading.enumerate())
    store = SqliteStore(path, clock=FakeClock())
    with pytest.raises(InvalidConfig):
        await store.open()
    await store.close()
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("holdfast"):
            await asyncio.to_thread(thread.join, 10)
            assert not thread.is_alive(), thread


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = await _opened(tmp_path / "x.db")
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.runs(["run-1"])
    with pytest.raises(StoreUnavailable, match="closed"):
        await admitted(store)


async def test_what_was_answered_is_on_the_disk(sqlite: SqliteBackend) -> None:
    """synchronous=FULL, on the connection that writes: a commit is confirmed after its fsync."""
    store = await sqlite.another()
    assert isinstance(store, SqliteStore)
    settings = await store._writer.do(lambda db: [db.pragma(name) for name in ("synchronous", "journal_mode")])
    assert settings == [2, "wal"]


async def test_a_reader_cannot_write(sqlite: SqliteBackend) -> None:
    store = await sqlite.another()
    assert isinstance(store, SqliteStore)
    assert await store._reader.do(lambda db: db.pragma("query_only")) == 1


async def test_a_locked_database_is_waited_for(sqlite: SqliteBackend) -> None:
    store = await sqlite.another()
    other = database(sqlite.path)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(admitted(store))
    assert await store.runs(["run-1"]) == []  # reads go on meanwhile
    assert not waiting.done()
    other.execute("COMMIT")
    assert (await asyncio.wait_for(waiting, 30)).id == "run-1"
    other.close()


def test_a_lock_is_looked_at_again_soon_and_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own way waits 1, 2, 5, 10 and more milliseconds; a transaction takes less than the first of them."""
    slept: list[float] = []

    class Time:
        sleep = staticmethod(slept.append)

        @staticmethod
        def monotonic() -> float:
            return 7.0 + sum(slept)

    monkeypatch.setattr(files, "time", Time)
    wait = files._patience(Millis(100))
    for _ in range(2):  # it begins again for the next lock
        slept.clear()
        count = 0
        while wait(count):
            count += 1
        assert slept[0] <= 0.0005
        assert max(slept) <= 0.005
        assert 0.100 <= sum(slept) <= 0.110


async def test_a_database_locked_for_too_long_is_a_passing_trouble(sqlite: SqliteBackend) -> None:
    sqlite.pace = SqlitePace(busy_ms=50)
    store = await sqlite.another()
    other = database(sqlite.path)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        await admitted(store)
    other.execute("COMMIT")
    other.close()
    assert (await admitted(store)).id == "run-1"  # work goes on when it can


async def test_many_stores_may_create_one_file_at_once(tmp_path: Path) -> None:
    """Each in a thread with its own event loop, as so many processes would."""
    path = tmp_path / "shared.db"
    failures: list[BaseException] = []
    together = threading.Barrier(8)

    def life(number: int) -> None:
        async def work() -> None:
            store = await _opened(path)
            for n in range(10):
                await admitted(store, f"run-{number}-{n}", key=f"{n}-{number}")
            await store.close()

        try:
            together.wait(30)
            asyncio.run(work())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=life, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join, 60)
    assert failures == []
    store = await _opened(path)
    assert len(await claim(store)) == 80
    await store.close()


async def test_processes_that_start_together_share_one_file(tmp_path: Path) -> None:
    path = tmp_path / "processes.db"
    code = f"""
        import asyncio, os, pathlib
        from holdfast.kernel.changes import Committed
        from holdfast.stores.sqlite import SqliteStore
        from holdfast.adapters.machine import SystemClock
        from tests.contract.helpers import admission

        async def main():
            store = SqliteStore(pathlib.Path({str(path)!r}), clock=SystemClock())
            await store.open()
            answers = [
                (await store.commit([admission(store, f"run-{{n}}-{{os.getpid()}}", key=f"order:{{n}}")]))[0]
                for n in range(20)
            ]
            print(sum(isinstance(answer, Committed) for answer in answers))
            await store.close()

        asyncio.run(main())
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True, env=environment
        )
        for _ in range(4)
    ]
    outputs = [await asyncio.to_thread(process.communicate, None, 60) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert sum(int(out) for out, _ in outputs) == 20


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:shop.db"])
async def test_a_url_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        files.path_of(url)
    assert "sqlite:///shop.db" in caught.value.hint


@pytest.mark.parametrize(
    ("url", "path"), [("sqlite:///shop.db", "shop.db"), ("sqlite:////var/lib/shop.db", "/var/lib/shop.db")]
)
async def test_a_url_names_its_file(url: str, path: str) -> None:
    assert files.path_of(url) == Path(path)
