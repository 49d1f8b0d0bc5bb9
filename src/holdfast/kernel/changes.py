"""A Change: one decision, ready to be committed.

Rules
- A Change has a guard, what must still hold, and what to write. A store checks the guard and writes in one
  atomic unit, or writes nothing and answers `Refused` with the run that stands in the way.
- A Change has an id. Offered again after a lost reply it answers as the first time, and writes nothing more.
- Changes are independent of each other: many may share a transaction, each is answered for itself.
- Instants in a Change are by the store's clock (`Store.now_ms`); expiry of leases is decided by the store alone.

What a store does beyond checking and writing is fixed here, so that every store does the same:
- A message for a run raises its unread count; an unowned waiting run with unread messages may be claimed at once.
- A message is received once: by its run, whose inbox remembers its id, and within its scope if it has one. A change
  whose message has been received before answers `Committed` with the run that received it, and writes nothing.
- A run ends over an empty inbox: a change that ends it and leaves a message unread is refused. A message that a
  successor takes over leaves the inbox with it; if there can be none, since the run has lost its key, it stays unread.
- A message is read once: one that `read` names, and that has been read meanwhile, is not counted a second time.
- A token belongs to one live run. The token of a run that has ended is free. An admission that opens hooks gets the
  tokens that are free.
- When a run ends, each of its watchers gets a message with the outcome, and a copy of the blob if the output is
  large. One who starts watching a run that has already ended gets it at once.
- A lease that is missing counts as expired: what its owner still holds may be rescued.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
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
SETTLED = ENDED | {Status.BLOCKED}  # nothing more happens unless a person acts


class Run(Struct, frozen=True, gc=False):
    """A run's row: everything about it but its payloads and its journal.

    `(epoch, nonce)` is the fence. `wake_ms` says from when it may be claimed (never, if None); `length` is the
    number of journal entries so far; `unread` the number of messages not yet recorded, which the store alone counts;
    `holds_key` whether its key is still its own. `waits` says what it waits for, since it was let go in order; it is
    None while somebody may have something under way for it.
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
    version: str = ""  # of the code that admitted it
    attributes: bytes = b""
    markers: bytes = b""
    waits: bytes | None = None
    input: Value | None = None  # as the journal's first entry has it

    @property
    def fence(self) -> Fenced:
        """The guard that holds as long as nobody else has taken this run."""
        return Fenced(self.id, self.epoch, self.nonce)


class KeyFree(Struct, frozen=True, gc=False):
    """No live run holds the key of the run to be admitted."""


class KeyHeldBy(Struct, frozen=True, gc=False):
    """The key is held by this run, at this fence if one is given. The change takes it over: the holder lets go."""

    run_id: str
    fence: Fenced | None = None


class Fenced(Struct, frozen=True, gc=False):
    """The run is still at this fence."""

    run_id: str
    epoch: int
    nonce: str


class Known(Struct, frozen=True, gc=False):
    """The run exists, in whatever state."""

    run_id: str


class Alive(Struct, frozen=True, gc=False):
    """The run exists and has not ended; with `holds_key`, its key is still its own."""

    run_id: str
    holds_key: bool = False


class TokenFree(Struct, frozen=True, gc=False):
    """No other live run holds the token, and the run that wants it is still at its fence."""

    fence: Fenced
    namespace: str
    token: str


class TokenHeldBy(Struct, frozen=True, gc=False):
    """The token is held by this run, which has not ended."""

    run_id: str
    namespace: str
    token: str


Guard = KeyFree | KeyHeldBy | Fenced | Known | Alive | TokenFree | TokenHeldBy


class Blob(Struct, frozen=True, gc=False):
    """A large value, stored beside the journal under its digest."""

    digest: str
    data: bytes


class Beat(Struct, frozen=True, gc=False):
    """What the last heartbeat of a step said."""

    step: str
    details: bytes


class Watcher(Struct, frozen=True, gc=False):
    """A parent's wish to be told how a run ended.

    `epoch` is that of the parent when it asks about a run that may have ended already. It is not kept: it makes the
    message about that end another one than those that an earlier life of the parent has read (it was cancelled then,
    or failed, and had no use for it).
    """

    run_id: str
    step: str
    epoch: int = 0


class _Message(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="what", tag=str.lower):
    id: str


class Outcome(_Message, frozen=True):
    """How a watched run ended."""

    step: str
    from_run: str
    status: Status
    output: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class Signal(_Message, frozen=True):
    """A payload for a hook. `by_key` says that it was sent to whoever owns the key, not to this very run."""

    hook: str
    payload: Raw
    by_key: bool = False


class CancelRequest(_Message, frozen=True, tag="cancel"):
    """Somebody wants the run cancelled, and its cleanup ended by the deadline."""

    deadline_ms: int
    reason: str = ""


class KeyTaken(_Message, frozen=True, tag="key_taken"):
    """The run has lost its key, and shall record it."""

    reason: str = ""


Message = Outcome | Signal | CancelRequest | KeyTaken


class Envelope(Struct, frozen=True, gc=False):
    """A message and whom it is for. `scope` is where its id counts beyond the run: a key or a token.

    Within its scope it has been received before, too, if a message with the id `formerly` has.
    """

    run_id: str
    message: Message
    scope: str = ""
    formerly: str = ""


class HookOpen(Struct, frozen=True, gc=False):
    """A hook that others may know: by its token, or by the shape that its payloads must have."""

    name: str
    token: str | None = None
    schema: bytes | None = None


class Shown(Struct, frozen=True, gc=False):
    """What a run shows to those who look for it, in full."""

    attributes: bytes
    markers: bytes


class Change(Struct, frozen=True, gc=False):
    """One decision: a guard and what to write.

    `run` is the row as it shall be; an admission inserts it, everything else updates it. `entries` follow the
    journal's present end; with `anew` they replace it. `read` names the messages that these entries record. `shown`
    is there if attributes or markers have changed. `opens` and `closes` are hooks of the run. With `takes_key` the
    run of the guard loses its key. `then` admits a successor in the same unit, as long as the run has its key and
    there is a message for it: it `inherits` those of its envelopes that this run has received, and the unread ones
    that `moves` names.
    """

    id: str
    guard: Guard
    run: Run | None = None
    entries: tuple[Entry, ...] = ()
    blobs: tuple[Blob, ...] = ()
    beats: tuple[Beat, ...] = ()
    watcher: Watcher | None = None
    read: tuple[str, ...] = ()
    envelopes: tuple[Envelope, ...] = ()
    shown: Shown | None = None
    opens: tuple[HookOpen, ...] = ()
    closes: tuple[HookOpen, ...] = ()
    anew: bool = False
    takes_key: bool = False
    then: Change | None = None
    moves: tuple[str, ...] = ()
    inherits: str = ""


class Committed(Struct, frozen=True, gc=False):
    """The change is durable. `told` are the runs that got a message by it.

    `run` is the row as it is now. Of a run that its owner moves it is the row as the owner offered it: what others do
    to it meanwhile (unread messages, a key that was taken) shows in the next read.
    """

    run: Run | None
    told: tuple[str, ...] = ()


class Refused(Struct, frozen=True, gc=False):
    """The guard did not hold and nothing was written. `current` is the run that stands in the way, if any."""

    current: Run | None


Answer = Committed | Refused


def outcome_message(run: Run, watcher: Watcher) -> Outcome:
    """What `watcher` is told about the end of `run`."""
    return outcome(run.id, run.epoch, run.status, output=run.output, error=run.error, watcher=watcher)


def outcome(
    run_id: str, epoch: int, status: Status, *, output: bytes | None, error: bytes | None, watcher: Watcher
) -> Outcome:
    """What `watcher` is told about the end of a run. Its id makes a repetition harmless."""
    life = f"{epoch}.{watcher.epoch}" if watcher.epoch else f"{epoch}"
    return Outcome(
        f"{run_id}/{life}/{watcher.step}",
        watcher.step,
        run_id,
        status,
        UNSET if output is None else Raw(output),
        UNSET if error is None else Raw(error),
    )


def blob_of(message: Message) -> str | None:
    """The digest of the blob that holds the message's value; a store copies it to the run that is told."""
    if not isinstance(message, Outcome) or message.output is UNSET:
        return None
    return _decode_value(message.output).blob or None


def with_key_released(holder: Run) -> Run:
    """`holder` after a successor has taken over its key.

    The epoch of a run that has ended grows: a retry decided before must not land. A live one keeps its owner.
    """
    ended = holder.finished_ms is not None
    return replace(holder, holds_key=False, epoch=holder.epoch + 1 if ended else holder.epoch)
