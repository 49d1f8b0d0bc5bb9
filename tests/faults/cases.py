"""One case: a directory with a database file, a ledger, and the processes that use them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from holdfast import Holdfast
from tests.faults.actor import Part, load
from tests.faults.ledger import Ledger
from tests.faults.processes import Nest, Process, Processes


class Case:
    """A small world of its own."""

    def __init__(self, directory: Path, nest: Nest) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.path = directory / "holdfast.db"
        self.ledger = Ledger(directory / "ledger.jsonl")
        self.processes = Processes(nest, directory)

    def part(self, **options: Any) -> Part:
        """What a process of this case is to do."""
        return Part(path=str(self.path), ledger=str(self.ledger.path), **options)

    async def fork(self, **options: Any) -> Process:
        return await self.processes.fork(self.part(**options))

    def run(self, **options: Any) -> Process:
        return self.processes.run(self.part(**options))

    def client(self, pack: str = "tests.faults.scenario:shop") -> Holdfast:
        """A client in the process of the test."""
        return Holdfast(f"sqlite:///{self.path}", packs=[load(pack)], worker=False)

    def ask(self, sql: str, *bindings: Any) -> list[tuple[Any, ...]]:
        """Look into the file, past Holdfast."""
        db = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            db.set_busy_timeout(10_000)
            return list(db.execute(sql, bindings))
        finally:
            db.close()

    def statuses(self) -> dict[str, str]:
        """The status of every run, by its key or else its id."""
        return dict(self.ask("SELECT coalesce(key, id), status FROM runs"))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Somebody else holds the write lock of the file."""
        db = apsw.Connection(str(self.path))
        db.set_busy_timeout(10_000)
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            db.execute("ROLLBACK")
            db.close()

    def flag(self, name: str) -> Path:
        """A file whose existence means something to the processes of the case."""
        return self.directory / name

    def raise_flag(self, name: str) -> None:
        self.flag(name).touch()
