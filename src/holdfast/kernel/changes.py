"""A Change: one decision, ready to be committed.

Rules
- A Change has a guard, what must still hold, and what to write. A store checks the guard and writes in one
  atomic unit, or writes nothing and answers `Refused` with the run that stands in the way.
- A Change has an id. Offered again after a lost reply it answers as the first time, and writes nothing more.
- Changes are independent of each other: many may share a transaction, each is answered for itself.
- Instants in a Change are by the store's clock (`Store.now_ms`); expiry of leases is decided by the store alone.

What a store does beyond checking and writing is fixed here, so that every store does the same:
- A message for a run raises its unread count; an unowned waiting run with unread messages may be claimed at once.
- When a run ends, each of its watchers gets a message with the outcome, and a copy of the blob if the output is
  large. One who starts watching a run that has already ended gets it at once.
- A lease that is missing counts as expired: what its owner still holds may be rescued.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.kernel.journal import Entry, Value

_decode_value = msgspec.json.Decoder(Value).decode


class Status(StrEnum):
    """Where a run stands."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    BLOCKED = "blocked"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})


class Run(Struct, frozen=True, gc=False):
    """A run's row: everything about it but its payloads and its journal.

    `(epoch, nonce)` is the fence. `wake_ms` says from when it may be claimed (never, if None); `length` is the
    number of journal entries; `unread` the number of messages not yet recorded, which the store alone counts;
    `holds_key` whether its key is still its own.
    """

    id: str
    namespace: str
    workflow: str
    key: str | None
    queue: str
    priority: int
    digest: str
    request_id: str
    retention_ms: int
    created_ms: int
    status: Status = Status.PENDING
    epoch: int = 0
    nonce: str = ""
    owner: str | None = None
    wake_ms: int | None = None
    length: int = 0
    unread: int = 0
    holds_key: bool = True
    started_ms: int | None = None
    finished_ms: int | None = None
    expires_ms: int | None = None
    output: bytes | None = None  # encoded `Value`
    error: bytes | None = None  # encoded `Failure`
    change_id: str = ""
    input: Value | None = None  # as the journal's first entry has it

    @property
    def fence(self) -> Fenced:
        """The guard that holds as long as nobody else has taken this run."""
        return Fenced(self.id, self.epoch, self.nonce)


class KeyFree(Struct, frozen=True, gc=False):
    """No live run holds the key of the run to be admitted."""


class KeyHeldBy(Struct, frozen=True, gc=False):
    """The key is held by this run, at this fence. The change takes it over: the holder lets go of the key."""

    run_id: str
    epoch: int
    nonce: str


class Fenced(Struct, frozen=True, gc=False):
    """The run is still at this fence."""

    run_id: str
    epoch: int
    nonce: str


class Known(Struct, frozen=True, gc=False):
    """The run exists, in whatever state."""

    run_id: str


Guard = KeyFree | KeyHeldBy | Fenced | Known


class Blob(Struct, frozen=True, gc=False):
    """A large value, stored beside the journal under its digest."""

    digest: str
    data: bytes


class Beat(Struct, frozen=True, gc=False):
    """What the last heartbeat of a step said."""

    step: str
    details: bytes


class Watcher(Struct, frozen=True, gc=False):
    """A parent's wish to be told how a run ended."""

    run_id: str
    step: str


class Message(Struct, frozen=True, gc=False):
    """Something for a run's one owner to record: how a child ended."""

    id: str
    step: str
    from_run: str
    status: Status
    output: bytes | None
    error: bytes | None


class Change(Struct, frozen=True, gc=False):
    """One decision: a guard and what to write.

    `run` is the row as it shall be; an admission inserts it, everything else updates it. `entries` follow the
    journal's present end. `read` names the messages that these entries record.
    """

    id: str
    guard: Guard
    run: Run | None = None
    entries: tuple[Entry, ...] = ()
    blobs: tuple[Blob, ...] = ()
    beats: tuple[Beat, ...] = ()
    watcher: Watcher | None = None
    read: tuple[str, ...] = ()


class Committed(Struct, frozen=True, gc=False):
    """The change is durable. `run` is the row as it is now; `told` are the runs that got a message by it."""

    run: Run | None
    told: tuple[str, ...] = ()


class Refused(Struct, frozen=True, gc=False):
    """The guard did not hold and nothing was written. `current` is the run that stands in the way, if any."""

    current: Run | None


Answer = Committed | Refused


def outcome_message(run: Run, watcher: Watcher) -> Message:
    """What `watcher` is told about the end of `run`. Its id makes a repetition harmless."""
    return Message(f"{run.id}/{run.epoch}/{watcher.step}", watcher.step, run.id, run.status, run.output, run.error)


def blob_of(message: Message) -> str | None:
    """The digest of the blob that holds the message's value; a store copies it to the run that is told."""
    if message.output is None:
        return None
    return _decode_value(message.output).blob or None


def with_key_released(holder: Run) -> Run:
    """`holder` after a successor has taken over its key. Its epoch grows: a retry decided before must not land."""
    return replace(holder, holds_key=False, epoch=holder.epoch + 1)
