"""A run's row: where it stands, who holds it, what it shows. What may become of it is in `transitions`."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from holdfast.kernel.journal import Value
from holdfast.kernel.times import Instant, Millis


class Status(StrEnum):
    """Where a run stands."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    BLOCKED = "blocked"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


# By names of their own: Python 3.11 looks up members of an enum the slow way, and each run asks for these many times.
PENDING, RUNNING, COMPLETED = Status.PENDING, Status.RUNNING, Status.COMPLETED
ENDED = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})
NOT_BEGUN = b'[{"kind":"no_worker"}]'  # what a run waits for that was claimed, and given back before it ever began
SETTLED = ENDED | {Status.BLOCKED}  # nothing more happens unless a person acts


class Fenced(Struct, frozen=True, gc=False):
    """The run is still at this fence."""

    run_id: str
    epoch: int
    nonce: str


class Run(Struct, frozen=True, gc=False):
    """A run's row: everything about it but its payloads and its journal.

    `(epoch, nonce)` is the fence. `wake_at_ms` says from when it may be claimed (never, if None); `length` is the
    number of journal entries so far; `unread` the number of messages not yet recorded, which the store alone counts;
    `holds_key` whether its key is still its own. `waits` says what it waits for, since it was let go in order, or
    given back before anything of it was executed; it is None while something may be under way for it. `lane` is where
    it goes one after the other with others, if it does; a blocked one that has stepped `aside` has no place there.
    """

    id: str
    namespace: str
    workflow: str
    key: str | None
    queue: str
    priority: int
    digest: str
    request_id: str
    retention_ms: Millis
    created_at_ms: Instant = field(name="created_ms")
    status: Status = Status.PENDING
    epoch: int = 0
    nonce: str = ""
    owner: str | None = None
    wake_at_ms: Instant | None = field(default=None, name="wake_ms")
    length: int = 0
    unread: int = 0
    holds_key: bool = True
    started_at_ms: Instant | None = field(default=None, name="started_ms")
    finished_at_ms: Instant | None = field(default=None, name="finished_ms")
    expires_at_ms: Instant | None = field(default=None, name="expires_ms")
    output: bytes | None = None  # encoded `Value`
    error: bytes | None = None  # encoded `Failure`
    change_id: str = ""
    version: str = ""  # of the code that admitted it
    attributes: bytes = b""
    markers: bytes = b""
    waits: bytes | None = None
    lane: str = ""
    aside: bool = False
    input: Value | None = None  # as the journal's first entry has it

    @property
    def fence(self) -> Fenced:
        """The guard that holds as long as no other worker has taken this run."""
        return Fenced(self.id, self.epoch, self.nonce)


def with_key_released(holder: Run) -> Run:
    """`holder` after a successor has taken over its key.

    The epoch of a run that has ended grows: a retry decided before must not land. A live one keeps its owner.
    """
    ended = holder.finished_at_ms is not None
    return replace(holder, holds_key=False, epoch=holder.epoch + 1 if ended else holder.epoch)
