"""Whether a file can keep the store's promises: what is looked at, and from where on it is a trouble.

Looking costs little and changes nothing. The pages are checked on a connection of its own, so that no caller waits.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import apsw
from msgspec import Struct

from holdfast.kernel.times import Instant, Millis
from holdfast.ports.store import Finding
from holdfast.stores.sqlite import files
from holdfast.stores.sqlite.files import Database
from holdfast.stores.sqlite.pace import PACE, SqlitePace
from holdfast.stores.sqlite.peers import Peers, label

MIB = 1024**2
GIB = 1024**3
FREE_MIN, FREE_SCARCE = 64 * MIB, GIB
LOG_MAX = GIB
APART_MS_MAX = 5_000
MOUNTS = Path("/proc/mounts")
NETWORK = frozenset({"9p", "afs", "ceph", "cifs", "davfs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "smbfs"})
NETWORK_BY_FUSE = frozenset({"ceph", "davfs", "gcsfuse", "glusterfs", "rclone", "s3fs", "sshfs"})
IN_MEMORY = frozenset({"ramfs", "tmpfs"})

_FULL = 2  # what `PRAGMA synchronous` returns


class WriterSettings(Struct, frozen=True):
    """How a connection writes."""

    journal_mode: str
    synchronous: int
    schema: int


def settings(db: Database) -> WriterSettings:
    """Those of this very connection: most of them belong to a connection, not to the file."""
    return WriterSettings(db.pragma("journal_mode"), db.pragma("synchronous"), db.pragma("user_version"))


def inspect(
    path: Path,
    writer: WriterSettings,
    *,
    wall_ms: Instant,
    now_ms: Instant,
    pace: SqlitePace = PACE,
) -> tuple[Finding, ...]:
    """All that is known about the file at `path`, which `writer` writes."""
    size = _size(path)
    return (
        journal_mode(writer.journal_mode),
        synchronous(writer.synchronous),
        library(apsw.SQLITE_VERSION_NUMBER, apsw.sqlite_lib_version()),
        schema(writer.schema, files.newest_schema()),
        pages(path, size, pace=pace),
        room(shutil.disk_usage(path.parent).free, size),
        log_size(_size(path.with_name(path.name + "-wal"))),
        file_system(mount_type(path.resolve(), MOUNTS)),
        clock(wall_ms - now_ms),
    )


def journal_mode(mode: str) -> Finding:
    if mode == "wal":
        return Finding("ok", "journal mode", "commits go to a write-ahead log")
    return Finding(
        "error",
        "journal mode",
        f"the journal mode is {mode}, not wal: readers and writers stop each other",
        hint="Something has changed it while Holdfast was running. Start this process again.",
    )


def synchronous(level: int) -> Finding:
    if level >= _FULL:
        return Finding("ok", "synchronous", "a commit is confirmed after its fsync")
    return Finding(
        "error",
        "synchronous",
        f"synchronous is {level}, not {_FULL} (FULL): a loss of power may lose commits that were confirmed",
        hint="Start this process again; Holdfast sets it when it opens the file.",
    )


def library(number: int, name: str) -> Finding:
    if number >= files.version_number(files.SQLITE_MIN):
        return Finding("ok", "SQLite", f"version {name}")
    wanted = ".".join(map(str, files.SQLITE_MIN))
    return Finding(
        "error",
        "SQLite",
        f"version {name} is older than {wanted}: it may corrupt a log that several connections share",
        hint=f"Install apsw {wanted} or newer.",
    )


def schema(found: int, newest: int) -> Finding:
    if found == newest:
        return Finding("ok", "schema", f"version {found}, the newest that this Holdfast knows")
    return Finding(
        "error",
        "schema",
        f"the file has schema {found}; this Holdfast works with schema {newest}",
        hint="A newer Holdfast has brought it up to date. Install that one here, too.",
    )


def pages(path: Path, size: int, *, pace: SqlitePace) -> Finding:
    """Reads every page once, if there are not too many."""
    if size >= pace.check_bytes_max:
        return Finding(
            "ok",
            "pages",
            f"not checked: the file has {_amount(size)}, and a check reads all of it",
            hint=f'For a check of your own: sqlite3 {path} "PRAGMA quick_check"',
        )
    db = files.connect(path, busy_ms=pace.busy_ms)
    try:
        [(word,)] = db.execute("PRAGMA quick_check(1)").fetchall()
    except (apsw.CorruptError, apsw.NotADBError) as error:
        word = str(error)
    finally:
        db.close()
    if word == "ok":
        return Finding("ok", "pages", f"{_amount(size)}, all in order")
    return Finding(
        "error",
        "pages",
        f"the file is damaged: {word}",
        hint="Stop all processes, keep the damaged file for analysis, and restore a backup.",
    )


def room(free: int, size: int) -> Finding:
    hint = "Free some space. When the disk is full, nothing is lost, but nothing goes on either."
    if free < FREE_MIN:
        return Finding("error", "room", f"{_amount(free)} are free on the disk", hint=hint)
    if free < FREE_SCARCE or free < 2 * size:
        return Finding("warning", "room", f"{_amount(free)} are free on the disk; the file has {_amount(size)}", hint)
    return Finding("ok", "room", f"{_amount(free)} are free on the disk")


def log_size(size: int) -> Finding:
    if size <= LOG_MAX:
        return Finding("ok", "log", f"the write-ahead log has {_amount(size)}")
    return Finding(
        "warning",
        "log",
        f"the write-ahead log has grown to {_amount(size)}",
        hint="A reader keeps it from being emptied: look for a process that has the file open and does not move.",
    )


def file_system(kind: str | None) -> Finding:
    if kind is None:
        return Finding("ok", "file system", "it cannot be seen here whether the file is on a local disk")
    if kind in IN_MEMORY:
        return Finding(
            "warning",
            "file system",
            f"the file is in memory ({kind}), and is gone when the machine restarts",
            hint="Move the file to a disk.",
        )
    if kind in NETWORK or (kind.startswith("fuse.") and kind.removeprefix("fuse.") in NETWORK_BY_FUSE):
        return Finding(
            "warning",
            "file system",
            f"the file is on a network file system ({kind}), where locks and shared memory cannot be relied on",
            hint="Move the file to a local disk, and let all processes that use it run on that machine.",
        )
    return Finding("ok", "file system", f"local ({kind})")


def notices(peers: Peers, live: Iterable[tuple[str, int]]) -> Finding:
    """Whether processes tell each other what they commit. `live` are the workers with a lease, by host and process."""
    if peers.trouble:
        return Finding(
            "warning",
            "notices",
            f"what other processes commit is looked for every few milliseconds: {peers.trouble}",
            hint="Runs take some milliseconds longer between processes. Let those that use the file write into its "
            "directory, on a file system that has Unix sockets.",
        )
    silent = [label(host, pid) for host, pid in live if pid and label(host, pid) not in peers.labels]
    if silent:
        return Finding(
            "warning",
            "notices",
            f"no socket in {peers.directory} is that of {', '.join(silent)}: they look every few milliseconds, and "
            "so do the others while they commit",
            hint="They run an earlier version, were just killed, or their log says why they have no socket.",
        )
    return Finding("ok", "notices", f"processes tell each other through {peers.directory}; others there: {len(peers)}")


def clock(apart_ms: Millis) -> Finding:
    """How far the wall clock is ahead of the store's."""
    if abs(apart_ms) <= APART_MS_MAX:
        return Finding("ok", "clock", "the wall clock and the store's clock agree")
    way = "ahead of" if apart_ms > 0 else "behind"
    return Finding(
        "warning",
        "clock",
        f"the wall clock is {abs(apart_ms) / 1000:.1f} s {way} the store's clock, which goes on evenly",
        hint="The wall clock was set after the machine had started. Timers are right; the dates that are shown are "
        "off until the machine starts again.",
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def mount_type(path: Path, mounts: Path) -> str | None:
    """The type of the file system that holds `path`; None if the machine does not show it."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    found: tuple[int, str | None] = (0, None)
    for line in lines:
        _, place, kind, *_ = line.split(" ")
        mounted = Path(_unescaped(place))
        if path.is_relative_to(mounted) and len(mounted.parts) >= found[0]:  # the last one covers those before it
            found = (len(mounted.parts), kind)
    return found[1]


def _unescaped(place: str) -> str:
    for code in (" ", "\t", "\n", "\\"):
        place = place.replace(f"\\{ord(code):03o}", code)
    return place


def _amount(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.1f} MiB"
