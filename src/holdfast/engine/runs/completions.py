"""What comes back to a run in memory, and what one activation has to record of it."""

from __future__ import annotations

from msgspec import Struct

from holdfast.engine.code.commands import Command
from holdfast.engine.runs.performer import AttemptOutcome
from holdfast.errors import UnknownOutcome
from holdfast.kernel import transitions
from holdfast.kernel.changes import Blob, HookOpen, Shown
from holdfast.kernel.documents import Document
from holdfast.kernel.journal import Entry
from holdfast.kernel.messages import Message
from holdfast.kernel.runs import Run


class Attempt(Struct, frozen=True):
    """An attempt of an effect has ended."""

    step: str
    outcome: AttemptOutcome
    took_ms: float


class Reconciled(Struct, frozen=True):
    """The world was asked about a `once` effect of unknown outcome."""

    step: str
    outcome: AttemptOutcome


class Admitted(Struct, frozen=True):
    """A child run exists."""

    step: str
    run: Run
    created: bool


class NotAdmitted(Struct, frozen=True):
    """A child run cannot exist, or cannot be found."""

    step: str
    error: Exception


class Watching(Struct, frozen=True):
    """The end of another run will be told as a message."""

    step: str


class TokenClaimed(Struct, frozen=True):
    """A hook has its token, or another run holds it."""

    step: str
    holder: Run | None


class Interrupted(Struct, frozen=True):
    """It was dropped and has let go: if it had begun, nobody knows what it has done."""

    step: str
    begun: bool


class Expired(Struct, frozen=True):
    """The deadline of an effect was over before an attempt could begin."""

    step: str


class Broken(Struct, frozen=True):
    """An errand has failed for a reason that is none of its outcomes: a fault of ours, or of the store."""

    step: str
    error: BaseException


class Again(Struct, frozen=True):
    """Something that was recorded in a change which came too late: it is to be recorded once more."""

    step: str
    entry: Entry


Errand = Attempt | Reconciled | Admitted | NotAdmitted | Watching | TokenClaimed | Interrupted | Expired | Broken
Arrival = Errand | Again | Message


class Record:
    """What one activation has to record."""

    __slots__ = ("blobs", "closes", "entries", "heard", "opens", "read", "shown")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.blobs: list[Blob] = []
        self.read: list[str] = []
        self.heard: tuple[Document, ...] = ()  # tasks whose outcomes are in it
        self.shown: Shown | None = None
        self.opens: tuple[HookOpen, ...] = ()
        self.closes: tuple[HookOpen, ...] = ()

    @property
    def is_worth_a_commit(self) -> bool:
        """Messages alone are not: the next commit takes them along."""
        return bool(self.entries or self.opens or self.closes)

    def frozen(self) -> transitions.Recorded:
        return transitions.Recorded(
            tuple(self.entries), tuple(self.blobs), tuple(self.read), self.shown, self.opens, self.closes
        )


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
