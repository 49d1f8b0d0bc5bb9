"""An inspection says whether the store can keep its promises: each trouble by its name, and what to do."""

from __future__ import annotations

import os
import socket
from collections import Counter
from pathlib import Path

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.ports.store import Finding, Serves, Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore, files, inspections
from holdfast.stores.sqlite.inspections import GIB, MIB
from holdfast.stores.sqlite.pace import SqlitePace
from tests.builders import FakeClock
from tests.contract.conftest import SqliteBackend
from tests.contract.helpers import admitted, database, stored

WHATS = [
    *("journal mode", "synchronous", "SQLite", "schema", "pages", "room", "log", "file system", "clock", "notices"),
    "lanes",
]


async def _inspected(store: Store) -> dict[str, Finding]:
    findings = await store.inspect()
    assert Counter(finding.what for finding in findings).most_common(1)[0][1] == 1
    return {finding.what: finding for finding in findings}


def _trouble(findings: dict[str, Finding]) -> dict[str, str]:
    return {what: finding.level for what, finding in findings.items() if finding.level != "ok"}


async def test_every_trouble_comes_with_a_hint(store: Store) -> None:
    findings = await store.inspect()
    assert findings
    for finding in findings:
        assert finding.detail
        assert finding.hint or finding.level == "ok", finding


async def test_a_file_on_a_good_disk_is_in_order(sqlite: SqliteBackend) -> None:
    store = await sqlite.another()
    await admitted(store)
    findings = await _inspected(store)
    assert list(findings) == WHATS
    # Where the tests run, the disk may be full or the directory in memory; that is no fault of the file.
    assert set(_trouble(findings)) <= {"room", "file system"}


async def test_memory_promises_nothing_beyond_the_process() -> None:
    assert _trouble(await _inspected(MemoryStore(clock=FakeClock()))) == {"durability": "warning"}


@pytest.mark.parametrize(
    ("setting", "what"), [("PRAGMA synchronous = NORMAL", "synchronous"), ("PRAGMA user_version = 99", "schema")]
)
async def test_the_settings_are_those_of_the_connection_that_writes(
    sqlite: SqliteBackend, setting: str, what: str
) -> None:
    store = await sqlite.another()
    assert isinstance(store, SqliteStore)
    await store._writer.do(lambda db: db.execute(setting))
    assert (await _inspected(store))[what].level == "error"


async def test_a_newer_schema_made_by_another_process_is_seen(sqlite: SqliteBackend) -> None:
    store = await sqlite.another()
    db = database(sqlite.path)
    db.execute(f"PRAGMA user_version = {files.newest_schema() + 1}")
    db.close()
    finding = (await _inspected(store))["schema"]
    assert finding.level == "error"
    assert str(files.newest_schema() + 1) in finding.detail


async def test_a_damaged_file_is_found(sqlite: SqliteBackend) -> None:
    store = await sqlite.another()
    for n in range(50):
        await stored(store, f"d-{n}", body=b"x" * 5_000)
    db = database(sqlite.path)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    data = bytearray(sqlite.path.read_bytes())
    for page in range(len(data) // 4096 // 2, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xfe" * 64
    with sqlite.path.open("r+b") as file:
        file.write(data)
    finding = (await _inspected(store))["pages"]
    assert finding.level == "error"
    assert "backup" in finding.hint


async def test_a_large_file_is_not_checked_and_that_is_said(sqlite: SqliteBackend) -> None:
    sqlite.pace = SqlitePace(check_bytes_max=4096)
    store = await sqlite.another()
    finding = (await _inspected(store))["pages"]
    assert finding.level == "ok"
    assert "not checked" in finding.detail
    assert "quick_check" in finding.hint


@pytest.mark.parametrize(
    ("step_ms", "level"), [(5_000, "ok"), (-5_000, "ok"), (5_001, "warning"), (-3_600_000, "warning")]
)
async def test_a_wall_clock_that_was_moved_is_seen(sqlite: SqliteBackend, step_ms: int, level: str) -> None:
    store = await sqlite.another()
    sqlite.clock.advance(123)
    sqlite.clock.wall += step_ms
    assert (await _inspected(store))["clock"].level == level


async def test_processes_that_tell_each_other_are_in_order(sqlite: SqliteBackend) -> None:
    store, other = await sqlite.another(), await sqlite.another()
    await other.join("w-1", 1_000, Serves("default", (), socket.gethostname(), os.getpid()))
    await sqlite.quiet()
    finding = (await _inspected(store))["notices"]
    assert (finding.level, "others there: 1" in finding.detail) == ("ok", True)


async def test_a_worker_that_has_no_socket_is_named(sqlite: SqliteBackend) -> None:
    store = await sqlite.another()
    await store.join("w-1", 1_000, Serves("default", (), "elsewhere", 4711))
    await store.join("w-2", 10, Serves("other", (), "gone", 7))
    await store.join("w-3", 1_000)  # it does not say where it is
    sqlite.clock.advance(20)
    finding = (await _inspected(store))["notices"]
    assert finding.level == "warning"
    assert "elsewhere-4711" in finding.detail
    assert "gone" not in finding.detail
    assert "earlier version" in finding.hint


async def test_a_process_that_can_make_no_socket_is_seen(sqlite: SqliteBackend) -> None:
    sqlite.path.with_name(sqlite.path.name + "-wake").touch()
    store = await sqlite.another()
    finding = (await _inspected(store))["notices"]
    assert finding.level == "warning"
    assert "Not a directory" in finding.detail
    assert "directory" in finding.hint


async def test_an_inspection_changes_nothing(sqlite: SqliteBackend) -> None:
    store = await sqlite.another()
    await admitted(store)
    probe = database(sqlite.path)
    version = probe.execute("PRAGMA data_version").fetchall()
    log = sqlite.path.with_name(sqlite.path.name + "-wal").stat()
    await store.inspect()
    after = sqlite.path.with_name(sqlite.path.name + "-wal").stat()
    assert probe.execute("PRAGMA data_version").fetchall() == version
    assert (after.st_size, after.st_mtime_ns) == (log.st_size, log.st_mtime_ns)
    probe.close()


async def test_a_store_that_is_closed_cannot_be_inspected(sqlite: SqliteBackend) -> None:
    store = await sqlite.another()
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.inspect()


# -- from where on it is a trouble


@pytest.mark.parametrize(
    ("free", "size", "level"),
    [
        (GIB, 0, "ok"),
        (10 * GIB, 5 * GIB, "ok"),
        (10 * GIB - 1, 5 * GIB, "warning"),
        (GIB - 1, 0, "warning"),
        (64 * MIB, 0, "warning"),
        (64 * MIB - 1, 0, "error"),
        (0, 0, "error"),
    ],
)
def test_how_much_room_there_must_be(free: int, size: int, level: str) -> None:
    assert inspections.room(free, size).level == level


@pytest.mark.parametrize(("size", "level"), [(0, "ok"), (GIB, "ok"), (GIB + 1, "warning")])
def test_how_long_the_log_may_get(size: int, level: str) -> None:
    assert inspections.log_size(size).level == level


@pytest.mark.parametrize(("number", "level"), [(3_051_002, "error"), (3_051_003, "ok"), (4_000_000, "ok")])
def test_which_sqlite_is_new_enough(number: int, level: str) -> None:
    assert inspections.library(number, "x").level == level


@pytest.mark.parametrize(("mode", "level"), [("wal", "ok"), ("delete", "error"), ("memory", "error")])
def test_which_journal_mode_is_right(mode: str, level: str) -> None:
    assert inspections.journal_mode(mode).level == level


@pytest.mark.parametrize(("setting", "level"), [(0, "error"), (1, "error"), (2, "ok"), (3, "ok")])
def test_which_synchronous_is_right(setting: int, level: str) -> None:
    assert inspections.synchronous(setting).level == level


@pytest.mark.parametrize(
    ("path", "kind", "level"),
    [
        ("/x.db", "ext4", "ok"),
        ("/srv/x.db", "nfs4", "warning"),
        ("/srv/local/x.db", "xfs", "ok"),
        ("/srvx/x.db", "ext4", "ok"),
        ("/with space/x.db", "cifs", "warning"),
        ("/home/ada/x.db", "fuse.sshfs", "warning"),
        ("/run/x.db", "tmpfs", "warning"),
        ("/twice/x.db", "ext4", "ok"),
        ("/home/own/x.db", "fuse.mine", "ok"),
    ],
)
def test_the_file_system_is_that_of_the_innermost_mount(tmp_path: Path, path: str, kind: str, level: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "rootfs / overlay rw 0 0\n"
        "box:/srv /srv nfs4 rw 0 0\n"
        "/dev/vdb /srv/local xfs rw 0 0\n"
        "//box/share /with\\040space cifs rw 0 0\n"
        "ada@box: /home/ada fuse.sshfs rw 0 0\n"
        "mine /home/own fuse.mine rw 0 0\n"
        "tmpfs /run tmpfs rw 0 0\n"
        "box:/twice /twice nfs rw 0 0\n"
        "/dev/vdc /twice ext4 rw 0 0\n"
        "/dev/vda / ext4 rw,relatime 0 0\n"
    )
    assert inspections.mount_type(Path(path), mounts) == kind
    assert inspections.file_system(kind).level == level


def test_a_machine_that_does_not_show_its_mounts_is_no_trouble(tmp_path: Path) -> None:
    assert inspections.mount_type(Path("/x.db"), tmp_path / "none") is None
    assert inspections.file_system(None).level == "ok"
