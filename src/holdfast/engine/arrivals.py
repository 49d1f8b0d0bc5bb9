"""What comes back to a run in memory, and what one activation has to record of it."""

from __future__ import annotations

from msgspec import Struct

from holdfast.engine.machine import Command
from holdfast.engine.performer import AttemptOutcome
from holdfast.errors import UnknownOutcome
from holdfast.kernel import runs
from holdfast.kernel.changes import Blob, Message, Run
from holdfast.kernel.journal import Entry


class Attempt(Struct, frozen=True):
    """An attempt of an effect has ended."""

    step: str
    outcome: AttemptOutcome


class Reconciled(Struct, frozen=True):
    """The world was asked about a `once` effect of unknown outcome."""

    step: str
    outcome: AttemptOutcome


class Admitted(Struct, frozen=True):
    """A child run exists."""

    step: str
    run: Run


class NotAdmitted(Struct, frozen=True):
    """A child run cannot exist, or cannot be found."""

    step: str
    error: Exception


class Watching(Struct, frozen=True):
    """The end of another run will be told as a message."""

    step: str


Arrival = Attempt | Reconciled | Admitted | NotAdmitted | Watching | Message


class Record:
    """What one activation has to record."""

    __slots__ = ("blobs", "entries", "read")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.blobs: list[Blob] = []
        self.read: list[str] = []

    def frozen(self) -> runs.Recorded:
        return runs.Recorded(tuple(self.entries), tuple(self.blobs), tuple(self.read))


class Stuck(Exception):
    """The run cannot go on without a person."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def unknown_outcome(command: Command, why: str) -> Stuck:
    """A `once` effect was begun, and nobody knows whether it happened."""
    return Stuck(
        UnknownOutcome.code,
        f"effect {command.intent.name} ({command.step}, key {command.intent.key!r}) was begun and {why}; "
        "whether it happened is not known",
    )
