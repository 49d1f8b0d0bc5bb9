"""Opens the database file: settings, migrations, and a clear word when the file is not what it should be."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, Self, cast

import apsw

from holdfast.errors import EngineFault, HoldfastError, InvalidConfig, StoreUnavailable
from holdfast.kernel.times import Millis
from holdfast.stores.sqlite.pace import PACE

APPLICATION_ID = 0x486F6C64  # "Hold"
SQLITE_MIN = (3, 51, 3)  # older ones may corrupt a WAL that several connections share
_PACKAGE = "holdfast.stores.sqlite.migrations"
_LOCKED_SECONDS, _LOCKED_SECONDS_MAX = 0.0002, 0.005  # the first wait for a lock, and the longest before another look

_OPEN_AGAIN_SECONDS = 0.02  # after other processes were opening the file, too

_NONE: Mapping[str, Any] = {}


class Rows(Protocol):
    """What a statement returns."""

    def fetchall(self) -> list[tuple[Any, ...]]: ...


class Database(Protocol):
    """The part of apsw's connection that is used here, with the types that apsw leaves open."""

    @property
    def in_transaction(self) -> bool: ...
    def execute(self, statements: str, bindings: Mapping[str, Any] | tuple[Any, ...] = _NONE) -> Rows: ...
    def cursor(self) -> Database: ...
    def changes(self) -> int: ...
    def pragma(self, name: str) -> Any: ...
    def set_busy_handler(self, handler: Callable[[int], bool]) -> None: ...
    def close(self, force: bool = False) -> None: ...  # noqa: FBT001, FBT002 - apsw's signature
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> bool | None: ...


# No mutex: each connection has a thread of its own.
_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_NOMUTEX


class _Connection(apsw.Connection):
    """A connection that executes all its statements by one cursor: rows are fetched at once, here as everywhere."""

    def __init__(self, path: str, *, flags: int) -> None:
        super().__init__(path, flags=flags)
        self.execute = self.cursor().execute  # pyright: ignore[reportUnknownMemberType]


def path_of(url: str) -> Path:
    """The file that `sqlite:///relative.db` or `sqlite:////absolute.db` names."""
    prefix = "sqlite:///"
    name = url.removeprefix(prefix)
    if not url.startswith(prefix) or not name or name == ":memory:":
        raise InvalidConfig(
            f"{url!r} names no SQLite file",
            hint="Write sqlite:///shop.db (relative), sqlite:////var/lib/shop.db, or memory://.",
        )
    return Path(name)


def version_number(version: tuple[int, int, int]) -> int:
    """A version of SQLite, as the library itself counts it."""
    major, minor, patch = version
    return major * 1_000_000 + minor * 1_000 + patch


def connect(path: Path, *, reader: bool = False, busy_ms: Millis = PACE.busy_ms) -> Database:
    """A connection with the settings that durability needs."""
    if version_number(SQLITE_MIN) > apsw.SQLITE_VERSION_NUMBER:
        raise InvalidConfig(f"SQLite {apsw.sqlite_lib_version()} is too old", hint="Install apsw 3.51.3 or newer.")
    db = cast("Database", cast("object", _Connection(str(path), flags=_FLAGS)))
    db.set_busy_handler(_patience(busy_ms))
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("PRAGMA cache_size = -65536")
    db.execute("PRAGMA journal_size_limit = 67108864")
    if reader:
        db.execute("PRAGMA query_only = ON")
        db.execute("PRAGMA mmap_size = 2147418112")  # scattered pages of a large file are read where they lie
    return db


def _patience(busy_ms: Millis) -> Callable[[int], bool]:
    """What waits for a lock, until it has waited for so long.

    Processes that wake each other want to write at the same moment, and a transaction takes less than a millisecond.
    SQLite's own way to wait begins with one and goes on with 2, 5, 10, 15 and more.
    """
    give_up = 0.0

    def wait(count: int) -> bool:
        nonlocal give_up
        now = time.monotonic()
        if count == 0:
            give_up = now + busy_ms / 1000
        time.sleep(min(_LOCKED_SECONDS * (count + 1), _LOCKED_SECONDS_MAX))
        return now < give_up

    return wait


def prepare(path: Path, *, busy_ms: Millis = PACE.busy_ms) -> Database:
    """The writer's connection to a database that exists, is Holdfast's, and has the newest schema."""
    if not path.parent.is_dir():
        raise InvalidConfig(f"the directory of {path} does not exist", hint=f"Create it: mkdir -p {path.parent}")
    give_up = time.monotonic() + 2 * busy_ms / 1000
    while True:
        db = None
        try:
            db = connect(path, busy_ms=busy_ms)
            _check_owner(db, path)
            if db.execute("PRAGMA journal_mode = WAL").fetchall() != [("wal",)]:
                raise InvalidConfig(
                    f"{path} cannot use a write-ahead log", hint="Use a local disk, not a network file system."
                )
            _migrate(db, path)
        except apsw.BusyError:
            # Changing the journal mode does not wait by itself while others open the file too.
            if db is not None:
                db.close()
            if time.monotonic() > give_up:
                raise StoreUnavailable(f"{path} is locked by another process") from None
            time.sleep(0.1)
        except apsw.Error as error:
            raise translated(error, path, busy_ms=busy_ms, opening=True) from error
        else:
            return db


def prepare_unsynced(path: Path, schema: str, *, busy_ms: Millis) -> Database:
    """A connection to a file beside the database that need not survive a crash of the machine; it may be new."""
    give_up = time.monotonic() + busy_ms / 1000
    while True:
        db = connect(path, busy_ms=busy_ms)
        try:
            db.execute("PRAGMA synchronous = OFF")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(schema)
        except apsw.BusyError:  # as above
            db.close()
            if time.monotonic() > give_up:
                raise
            time.sleep(_OPEN_AGAIN_SECONDS)
        else:
            return db


def translated(error: apsw.Error, path: Path, *, busy_ms: Millis, opening: bool = False) -> HoldfastError:
    """SQLite's errors in our words."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(f"{path} is locked by another process for longer than {busy_ms} ms")
        case apsw.FullError():
            return StoreUnavailable(
                f"the disk that holds {path} is full", hint="Free some space; work goes on by itself then."
            )
        case apsw.NotADBError() | apsw.CorruptError() if not opening:
            return StoreUnavailable(
                f"{path} is corrupt: {error}", hint="Stop the process and restore the file from a backup."
            )
        case apsw.NotADBError():
            return InvalidConfig(
                f"{path} is not a SQLite database", hint="Choose another file name, or restore it from a backup."
            )
        case apsw.CorruptError():
            return InvalidConfig(
                f"{path} is corrupt: {error}", hint="Restore it from a backup; keep the damaged file for analysis."
            )
        case apsw.ConstraintError() | apsw.TooBigError() | apsw.MismatchError():
            return EngineFault(f"{path} refuses a change: {error}")
        case apsw.CantOpenError() | apsw.ReadOnlyError() | apsw.PermissionsError() if opening:
            return InvalidConfig(
                f"{path} cannot be opened for writing", hint="Check the permissions of the file and of its directory."
            )
        case _:
            return StoreUnavailable(f"{path} cannot be used: {type(error).__name__}: {error}")


def _check_owner(db: Database, path: Path) -> None:
    with db:  # one snapshot: another process may be creating it at this moment
        owner = db.pragma("application_id")
        tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchall()[0][0]
    if owner != APPLICATION_ID and (tables or owner):
        raise InvalidConfig(f"{path} belongs to another application", hint="Give Holdfast a file of its own.")


def newest_schema() -> int:
    """The version that the last migration leads to."""
    return int(_migrations()[-1][:4])


def _migrations() -> list[str]:
    return sorted(file.name for file in resources.files(_PACKAGE).iterdir() if file.name.endswith(".sql"))


def _migrate(db: Database, path: Path) -> None:
    newest = newest_schema()
    if _version(db, path, newest) == newest:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for script in _migrations():
            if int(script[:4]) > _version(db, path, newest):
                db.execute(resources.files(_PACKAGE).joinpath(script).read_text(encoding="utf-8"))
                db.execute(f"PRAGMA user_version = {int(script[:4])}")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _version(db: Database, path: Path, newest: int) -> int:
    version = int(db.pragma("user_version"))
    if version > newest:
        raise InvalidConfig(
            f"{path} has schema {version}; this Holdfast knows schemas up to {newest}",
            hint="Install the newer Holdfast.",
        )
    return version
