"""Dies before the n-th SQL statement: in the middle of transactions, where no wrapper of the port can."""

from __future__ import annotations

import os
import signal
from typing import Any

import apsw

from tests.faults.ledger import Ledger

_count = 0


def die_before(n: int, book: Ledger) -> None:
    """Kill this process when the n-th statement of its writing transactions is about to be executed.

    With 0 it only counts. A BEGIN counts, and so does a COMMIT: before it nothing is durable, before the next
    statement everything is.
    """

    def trace(by: apsw.Cursor | apsw.Connection, sql: str, _bindings: Any) -> bool:
        global _count  # noqa: PLW0603 - one process, one count
        db = by if isinstance(by, apsw.Connection) else by.connection
        if db.in_transaction or sql.startswith("BEGIN"):
            _count += 1
            if _count == n:
                book.write(reached=f"before statement #{n}: {' '.join(sql.split())[:60]}")
                os.kill(os.getpid(), signal.SIGKILL)
        return True

    def hook(db: apsw.Connection) -> None:
        db.exec_trace = trace

    apsw.connection_hooks.append(hook)


def count() -> int:
    """How many statements have been counted."""
    return _count
