"""What comes back to a run in memory, and what one activation has to record of it."""

from __future__ import annotations

from msgspec import Struct

from holdfast.kernel import steps, transitions
from holdfast.kernel.changes import Blob, Change, HookOpen, Shown
from holdfast.kernel.documents import Document
from holdfast.kernel.journal import Entry
from holdfast.kernel.messages import Message
from holdfast.kernel.runs import Run


class Broken(Struct, frozen=True):
    """Work for a step has failed for a reason that is none of its outcomes: a fault of ours, or of the store."""

    error: BaseException


class HeldBack(Struct, frozen=True, gc=False):
    """A breaker or a limit holds an effect back: it goes on waiting, and the run may need no slot any more."""


class Passed(Struct, frozen=True, gc=False):
    """A breaker and a limit let an effect begin: no outcome, but the next thing to be done for its step."""


HELD_BACK, PASSED = HeldBack(), Passed()


class Completion(Struct, frozen=True, gc=False):
    """Something has happened to a step. `blobs` are its large values, `task` is the remote task that it comes from."""

    step: str
    event: steps.Event | Broken | HeldBack | Passed
    blobs: tuple[Blob, ...] = ()
    took_ms: float | None = None
    task: Document | None = None


Arrival = Completion | Message


class ActivationRecord(Struct, gc=False):
    """What one activation has to record."""

    entries: list[Entry] = []
    blobs: tuple[Blob, ...] = ()
    read: tuple[str, ...] = ()
    heard: tuple[Document, ...] = ()  # tasks whose outcomes are in it
    shown: Shown | None = None
    opens: tuple[HookOpen, ...] = ()
    closes: tuple[HookOpen, ...] = ()

    @property
    def is_worth_a_commit(self) -> bool:
        return bool(self.entries or self.opens or self.closes)

    def as_progress(self, run: Run) -> Change:
        """The change that makes it durable, of a run that goes on."""
        entries = self.entries
        if len(entries) == 1 and not (self.blobs or self.read or self.shown or self.opens or self.closes):
            return transitions.step(run, entries[0])
        return transitions.progress(run, self.frozen())

    def frozen(self) -> transitions.Recorded:
        return transitions.Recorded(tuple(self.entries), self.blobs, self.read, self.shown, self.opens, self.closes)


class NeedsPerson(Exception):
    """The run cannot go on without a person."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
