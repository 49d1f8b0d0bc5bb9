"""The journal of a run, for those who read it: `await run.journal()`, `run.events()`.

Each kind of entry is a type of its own; `entry.what` says it in a word, and `entry.at` when it happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Self

from holdfast.kernel.journal import (
    Attempted,
    Blocked,
    ByHand,
    CancelAsked,
    Cancelled,
    Closed,
    Completed,
    Continued,
    Dropped,
    Elapsed,
    Entry,
    Failed,
    Failure,
    Forked,
    GaveUp,
    Ignored,
    Intended,
    Intent,
    IntentKind,
    Joined,
    KeyReleased,
    Late,
    Marked,
    Opened,
    Other,
    Patched,
    Performed,
    Received,
    Resumed,
    Retried,
    Spawned,
    Started,
    Stopped,
    Tagged,
    Value,
)

__all__ = [
    "Attempted",
    "Blocked",
    "ByHand",
    "CancelAsked",
    "Cancelled",
    "Closed",
    "Completed",
    "Continued",
    "Dropped",
    "Elapsed",
    "Entry",
    "Failed",
    "Failure",
    "Forked",
    "GaveUp",
    "Ignored",
    "Intended",
    "Intent",
    "IntentKind",
    "Joined",
    "Journal",
    "KeyReleased",
    "Late",
    "Marked",
    "Opened",
    "Other",
    "Patched",
    "Performed",
    "Received",
    "Resumed",
    "Retried",
    "RunEvent",
    "Spawned",
    "Started",
    "Stopped",
    "Tagged",
    "Value",
]


class RunEvent(NamedTuple):
    """Something that has happened to a run. `run.events(after=cursor)` goes on behind it."""

    cursor: int
    entry: Entry


class Journal(tuple[Entry, ...]):  # noqa: SLOT001 - a tuple can have no slots of its own
    """The entries of a run, in order: a tuple that knows their cursors.

    `run.events(after=journal.cursor)` yields what happens after the last of them.
    """

    first: int  # the cursor of the first entry: it is not 0 where a run has continued as new, or `after` was given

    def __new__(cls, entries: Iterable[Entry], first: int = 0) -> Self:
        journal = super().__new__(cls, entries)
        journal.first = first
        return journal

    @property
    def cursor(self) -> int:
        """The cursor of the last entry."""
        return self.first + len(self) - 1

    def events(self) -> tuple[RunEvent, ...]:
        """The entries, each with its cursor."""
        return tuple(RunEvent(cursor, entry) for cursor, entry in enumerate(self, self.first))

    def after(self, cursor: int) -> Journal:
        """The entries behind `cursor`."""
        skipped = max(0, cursor + 1 - self.first)
        return Journal(self[skipped:], self.first + min(skipped, len(self)))
