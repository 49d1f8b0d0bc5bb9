"""A Change: one decision, ready to be committed.

Rules
- A Change has a guard, what must still hold, and what to write. A store checks the guard and writes in one
  atomic unit, or writes nothing and returns `Refused` with the run that stands in the way.
- A Change has an id. Offered again after a lost reply it has the result of the first time, and writes nothing more.
- Changes are independent of each other: many may share a transaction, each is answered for itself.
- Instants in a Change are by the store's clock (`Store.now_ms`); expiry of leases is decided by the store alone.

What a store does beyond checking and writing is fixed here, so that every store does the same:
- A message for a run raises its unread count; an unowned waiting run with unread messages may be claimed at once.
- A message is received once: by its run, whose inbox remembers its id, and within its scope if it has one. A change
  whose message has been received before returns `Committed` with the run that received it, and writes nothing.
- A run ends over an empty inbox: a change that ends it and leaves a message unread is refused. A message that a
  successor takes over leaves the inbox with it; if there can be none, since the run has lost its key, it stays unread.
- A message is read once: one that `read` names, and that has been read meanwhile, is not counted a second time.
- A token belongs to one live run. The token of a run that has ended is free. An admission that opens hooks gets the
  tokens that are free.
- When a run ends, each of its watchers gets a message with the outcome, and a copy of the blob if the output is
  large. One who starts watching a run that has already ended gets it at once.
- A lease that is missing counts as expired: what its owner still holds may be rescued.
- A run with a lane enters it in the change that says so, and leaves it in the one that ends it, or by which it
  steps aside. Those that become active by that are told, in the same unit. What a place is, and which run is next, is
  in `lanes`.
- An admission with `takes` takes from that rate, and with `shares` its run gets a tag, if it admits the run: one that
  is refused, or has been made before, changes neither. What they say is in `throttles` and in `fairness`.
- What a change brings as `outs` and `audits` is kept in the unit that writes it, in order, and once. A change that
  writes a run, or sends a message to one by its id, may have them; see `KEEPING`.
"""

from __future__ import annotations

from msgspec import Struct

from holdfast.kernel.audits import Audit
from holdfast.kernel.journal import Entry
from holdfast.kernel.lanes import Entering, NoRoom
from holdfast.kernel.messages import Envelope, Watcher
from holdfast.kernel.outs import Out
from holdfast.kernel.rates import Taking
from holdfast.kernel.runs import Fenced, Run


class KeyFree(Struct, frozen=True, gc=False):
    """No live run holds the key of the run to be admitted."""


class KeyHeldBy(Struct, frozen=True, gc=False):
    """The key is held by this run, at this fence if one is given. The change takes it over: the holder lets go."""

    run_id: str
    fence: Fenced | None = None


class HolderOf(Struct, frozen=True, gc=False):
    """A look at the holder of a key, by a start that expects one: it is cheaper than to offer a run.

    It never holds. It is refused because of the holder; because of None if there is none, or if the run of the start is
    there already: then the start has to be offered whole.
    """

    run_id: str
    namespace: str
    workflow: str
    key: str


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


class HandedOver(Struct, frozen=True, gc=False):
    """The run is still at this fence; the change gives it another holder, and writes whose it is from then on."""

    fence: Fenced


class NotBegun(Struct, frozen=True, gc=False):
    """The run has not begun, holds its key, and is still at this fence; the change gives it another input.

    If it is parked, what the change says about its wake-up counts from when it becomes active.
    """

    fence: Fenced


class Gathering(Struct, frozen=True, gc=False):
    """The run has not begun and holds its key, and its inbox has room: for `size` messages, and for so many bytes.

    With the last message that there is room for, the run may be claimed at once.
    """

    run_id: str
    size: int
    bytes_max: int


Guard = (
    KeyFree
    | KeyHeldBy
    | HolderOf
    | Fenced
    | HandedOver
    | Known
    | Alive
    | TokenFree
    | TokenHeldBy
    | NotBegun
    | Gathering
)


KEEPING = (KeyFree, KeyHeldBy, Fenced, HandedOver, Alive)  # guards of changes that may bring outs and audits


class Blob(Struct, frozen=True, gc=False):
    """A large value, stored beside the journal under its digest."""

    digest: str
    data: bytes


class Beat(Struct, frozen=True, gc=False):
    """What the last heartbeat of a step said."""

    step: str
    details: bytes


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
    journal's present end; with `replaces_journal` they replace it. `read` names the messages that these entries
    record. `shown` is there if attributes or markers have changed. `opens` and `closes` are hooks of the run. With
    `takes_key` the run of the guard loses its key. `then` admits a successor in the same unit, as long as the run
    has its key and there is a message for it: it `inherits` those of its envelopes that this run has received, and
    the unread ones that `moves` names. With `enters` the run gets a place in a lane, unless it has one. With `takes` it
    goes when that rate lets it go, with `shares` in the turn of that share. `outs` and `audits` are kept with it.
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
    replaces_journal: bool = False
    takes_key: bool = False
    then: Change | None = None
    moves: tuple[str, ...] = ()
    inherits: str = ""
    enters: Entering | None = None
    takes: Taking | None = None
    shares: str = ""
    outs: tuple[Out, ...] = ()
    audits: tuple[Audit, ...] = ()


class Committed(Struct, frozen=True, gc=False):
    """The change is durable. `told` are the runs that got a message by it, or became active in their lane.

    `run` is the row as it is now. Of a run that its owner moves it is the row as the owner offered it: what others do
    to it meanwhile (unread messages, a key that was taken) shows in the next read.
    """

    run: Run | None
    told: tuple[str, ...] = ()


class Refused(Struct, frozen=True, gc=False):
    """The guard did not hold and nothing was written. `current` is the run that stands in the way, if any.

    With `no_room` it is the lane that stands in the way, and `current` is the first run there.
    """

    current: Run | None
    no_room: NoRoom = ""


Answer = Committed | Refused
