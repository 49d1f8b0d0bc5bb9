"""The format of a history: what clients, the world, the store and the nemesis saw, one record each.

    record              who writes it                       what the checker needs it for
    ──────────────────  ──────────────────────────────────  ────────────────────────────────────────────────────
    HistoryHead         the recorder, first                 lease, slack of the clock, time to drain
    OperationCalled     a client, before it sends           what was asked for, and from when on it may happen
    OperationReturned   a client, when it knows             what it was told; `unknown` if it never heard
    EffectObserved      the world, when an effect is called and when the call ends
    FaultApplied        the nemesis, before it does it      what explains a repeated call
    StoreWrite          a store model, as it decides        what was accepted under which fence
    RunMoved            a store model, or a log             which fence holds from then on
    LeaseChanged        a store model, or a log             who could know that it holds nothing any more
    LaneSeen            a store model, after a change       who goes after whom in a lane, and how many at once
    LeaderActed         a host                              terms of leaders
    MessageDelivered    a store or a bus model              what reached a run's inbox, a notice that was heard
    FinalRun            the reader, when all is quiet       a row and its journal
    FinalKey            the reader, when all is quiet       what a key holds
    SometimesCount      the recorder, last                  how often something worth testing came to pass

Rules
- Records are in the order in which they happened. `at_ms` is one clock for all of them, virtual or real; it never goes
  back by more than `HistoryHead.slack_ms`.
- A host is one life of one process: started again it has another name.
- A live history has no `StoreWrite`. A rule that needs records which a history does not have finds nothing.
- Fields that do not apply are left out. Readers ignore fields that they do not know, so fields may be added.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from holdfast.kernel.journal import Entry
from holdfast.kernel.times import EPOCH, NO_TIME, Instant, Millis
from holdfast.kernel.waits import Wait

FORMAT = 1

Verb = Literal[
    "start",  # `replaces`, `hook` and `join` make it a supersede, a signal-or-start, a start that joins nothing
    "find",  # which run holds the key?
    "get",
    "result",
    "signal",
    "cancel",
    "resume",
    "retry",
    "retry_now",
    "decide",
    "fork",
    "release",
]
OperationOutcome = Literal["ok", "refused", "unknown"]
WriteOutcome = Literal["accepted", "refused", "repeated"]
FaultName = Literal[
    "killed",
    "paused",
    "continued",
    "ended",  # in order
    "started",
    "forgot",  # the store lost the writes `lost`; of live stores, some
    "reply lost",  # the write `lost` was applied, and its sender never heard
    "write lost",  # the write `lost` was not applied, and its sender never heard
    "write late",  # the write `lost` arrives later, whatever becomes of its sender
    "notice lost",
    "notice doubled",
    "notice late",
    "clock stepped",
    "store slow",
    "store down",
    "store up",
    "healed",  # no more faults from here on
]


class _Record(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="record", tag=True):
    at_ms: Instant = EPOCH


class HistoryHead(_Record, frozen=True, kw_only=True, omit_defaults=False):
    """What the history was recorded from.

    `slack_ms` is by how much the clocks of writers and of the recorder may differ: none in a simulation. `drain_ms` is
    the time within which all that is due must have ended once everything has healed; zero if nothing is promised.
    """

    source: str
    lease_ms: Millis
    slack_ms: Millis = NO_TIME
    drain_ms: Millis = NO_TIME
    seed: int | None = None
    commit: str = ""
    format: int = FORMAT


class OperationCalled(_Record, frozen=True, kw_only=True):
    """A client is about to ask. `op` names the operation: the same one, however often its sending is tried.

    For a start `input` is anything that is equal if and only if the inputs are, and `request` its request id if the
    client chose one. A signal has `message`, its id as the journal will show it (see `kernel.hooks`), or `dedupe` with
    `hook`; `sender` and `number` say which of a sender's signals it is, if these are to be received in order.
    """

    op: str
    client: str
    verb: Verb
    namespace: str = "default"
    workflow: str = ""
    key: str = ""
    run: str = ""
    input: str = ""
    request: str = ""
    replaces: str = ""
    join: bool = True
    hook: str = ""
    dedupe: str = ""
    message: str = ""
    sender: str = ""
    number: int = 0
    delay_ms: Millis = NO_TIME
    arguments: str = ""  # for people


class ReceiptSeen(Struct, frozen=True, omit_defaults=True):
    """A receipt as it was returned: the keys of the effects that were begun, by what became of them."""

    outcome: str
    performed: tuple[str, ...] = ()
    undone: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class OperationReturned(_Record, frozen=True, kw_only=True):
    """What a client was told. `unknown`: it gave up, or lost the reply; the operation may still take effect.

    `run` is the run that was returned, or that stood in the way of a start that was refused; empty if there was none.
    """

    op: str
    outcome: OperationOutcome
    run: str = ""
    created: bool | None = None
    status: str = ""
    error: str = ""  # the code of the error
    result: str = ""
    receipt: ReceiptSeen | None = None


class EffectObserved(_Record, frozen=True, kw_only=True):
    """A call of an effect as the world saw it.

    There is a record of its end only if it came to one; `returned` says whether it returned or raised. `step` is as the
    journal names it: a world that does not know it leaves it out, and the journal's record of the key tells it.
    """

    host: str
    run: str
    key: str
    phase: Literal["began", "ended"]
    step: str = ""
    attempt: int = 1
    namespace: str = "default"
    epoch: int | None = None
    undo: bool = False
    returned: bool = True


class FaultApplied(_Record, frozen=True, kw_only=True):
    """Something was done on purpose. `host` is the one it was done to, empty if it concerns the store or all of them.

    `lost` are the ids of the writes that it concerns, `runs` the runs whose rows have gone back, if that is known.
    """

    fault: FaultName
    host: str = ""
    lost: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    detail: str = ""


class FenceSeen(Struct, frozen=True):
    epoch: int
    nonce: str


class SentMessage(Struct, frozen=True):
    """A message that a write sends to a run. `what`: signal, cancel, outcome or key_taken."""

    run: str
    id: str
    what: str


class StoreWrite(_Record, frozen=True, kw_only=True):
    """A Change as the store decided it; `write` is its id. A change with a successor is two of these, in that order.

    `presented` is the fence that its guard names, if it names one. `fence`, `status`, `holds_key` and `length` are the
    row of `run` afterwards, as the store has it and not as the sender offered it. `took_key_from` is the run that has
    lost its key by it. `admits`: the run is new. `repeated`: it had been accepted before, and nothing was written.
    """

    host: str
    write: str
    run: str
    outcome: WriteOutcome
    admits: bool = False
    namespace: str = "default"
    workflow: str = ""
    key: str = ""
    presented: FenceSeen | None = None
    fence: FenceSeen | None = None
    status: str = ""
    holds_key: bool = False
    length_before: int | None = None
    length: int | None = None
    replaces_journal: bool = False
    entries: tuple[Entry, ...] = ()
    read: tuple[str, ...] = ()
    messages: tuple[SentMessage, ...] = ()
    took_key_from: str = ""


class RunMoved(_Record, frozen=True, kw_only=True):
    """The store gave a run to a host, took it from one, or removed it, by a verb of its own.

    `fence` holds from then on.
    """

    how: Literal["claimed", "rescued", "left", "pruned"]
    run: str
    host: str = ""
    fence: FenceSeen | None = None


class LeaseChanged(_Record, frozen=True, kw_only=True):
    """The lease of a host. `lost`: the host was told, or found out, that it had lost it, or the run `run`."""

    how: Literal["joined", "renewed", "lapsed", "lost", "left"]
    host: str
    run: str = ""


class PlaceSeen(Struct, frozen=True):
    """A run in a lane."""

    run: str
    number: int
    priority: int = 0


class LaneSeen(_Record, frozen=True, kw_only=True):
    """A lane after a change that has moved something in it."""

    lane: str
    namespace: str = "default"
    width: int = 1
    paused: bool = False
    active: tuple[PlaceSeen, ...] = ()
    parked: tuple[PlaceSeen, ...] = ()


class LeaderActed(_Record, frozen=True, kw_only=True):
    how: Literal["elected", "deposed", "acted"]
    host: str
    duty: str
    term: int = 0


class MessageDelivered(_Record, frozen=True, kw_only=True):
    """A message was put into the inbox of a run, or a notice was heard by a host."""

    what: Literal["message", "notice"]
    run: str = ""
    id: str = ""
    host: str = ""


class FinalRun(_Record, frozen=True, kw_only=True):
    """A run when everything is quiet. `due`: it is not at rest; it could be claimed now, or a host holds it.

    `parked`: it waits for its turn in its lane. The journal is the present generation's; `length` counts the entries of
    all of them. `waits` is what the row says that a waiting run waits for.
    """

    run: str
    workflow: str
    status: str
    namespace: str = "default"
    key: str = ""
    holds_key: bool = False
    due: bool = False
    unread: int = 0
    length: int = 0
    retention_ms: Millis | None = None
    waits: tuple[Wait, ...] = ()
    lane: str = ""
    parked: bool = False
    journal: tuple[Entry, ...] = ()
    result: str = ""
    receipt: ReceiptSeen | None = None


class FinalKey(_Record, frozen=True, kw_only=True):
    """What a key holds when everything is quiet; `run` is empty if nothing."""

    workflow: str
    key: str
    namespace: str = "default"
    run: str = ""


class SometimesCount(_Record, frozen=True, kw_only=True):
    label: str
    count: int


Record: TypeAlias = (
    HistoryHead
    | OperationCalled
    | OperationReturned
    | EffectObserved
    | FaultApplied
    | StoreWrite
    | RunMoved
    | LeaseChanged
    | LaneSeen
    | LeaderActed
    | MessageDelivered
    | FinalRun
    | FinalKey
    | SometimesCount
)


class HistoryViolation(Struct, frozen=True):
    """Something that must never be. `invariant` is its number in the checker's table."""

    invariant: str
    kind: str
    about: str
    detail: str
