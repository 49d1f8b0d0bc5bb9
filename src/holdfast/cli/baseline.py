"""What the disk and SQLite allow when nothing else is done.

One piece of work is two rows, as it is for Holdfast: one that a key finds, and one of a journal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from holdfast.stores.sqlite.files import Database, connect

PAYLOAD = b"x" * 100
SCHEMA = """
create table if not exists runs (id text primary key, key text not null unique, value blob) without rowid;
create table if not exists journal (run text, position integer, entry blob, primary key (run, position)) without rowid;
"""


def measure_alone(path: Path, count: int, step: Callable[[], None]) -> list[float]:
    """How many milliseconds each of `count` commits takes, one after the other."""
    db = _open(path)
    taken: list[float] = []
    for number in range(count):
        began = time.perf_counter()
        with db:
            _write(db, f"alone-{number}")
        taken.append((time.perf_counter() - began) * 1000)
        step()
    db.close()
    return taken


def measure_grouped(path: Path, count: int, size: int, step: Callable[[], None]) -> float:
    """How many pieces of work per second are durable, `size` of them to a commit."""
    db = _open(path)
    began = time.perf_counter()
    for first in range(0, count, size):
        with db:
            for number in range(first, min(first + size, count)):
                _write(db, f"grouped-{number}")
        step()
    taken = time.perf_counter() - began
    db.close()
    return count / taken


def _open(path: Path) -> Database:
    db = connect(path)
    db.execute("pragma journal_mode = wal")
    db.execute(SCHEMA)
    return db


def _write(db: Database, name: str) -> None:
    row = {"name": name, "key": f"key:{name}", "payload": PAYLOAD}
    db.execute("insert into runs values (:name, :key, :payload)", row)
    db.execute("insert into journal values (:name, 0, :payload)", row)
