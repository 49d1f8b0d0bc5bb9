"""What a scenario has seen: values only. The checker and the proofs judge by nothing else.

All instants are milliseconds of this machine's wall clock, which Redis on the same machine reads too.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from holdfast.kernel.journal import Entry
from holdfast.kernel.times import EPOCH, NO_TIME, Instant, Millis

FaultKind = Literal["kill", "stop", "continue", "terminate", "start", "forget"]
STALE = "stale write refused"  # as lines of the log
TAKEN_BACK = "end refused over unread messages"
Said = Literal["rescued", "overtaken", "lease lost", "stale", "taken back", "elected", "deposed"]


class EffectCall(Struct, frozen=True):
    """A line of the ledger: an effect was called, and kept waiting for `hold_ms`.

    The lines are in the order in which the world saw them.
    """

    key: str
    run: str
    step: str
    order: str
    attempt: int
    pid: int
    at_ms: Instant = EPOCH
    hold_ms: Millis = NO_TIME


class InjectedFault(Struct, frozen=True, kw_only=True):
    """Something that was done to a process on purpose. `pid` is the one that it was done to."""

    at_ms: Instant
    deed: FaultKind
    part: str
    role: str
    pid: int
    scenario: str = ""


class AcceptedStart(Struct, frozen=True, kw_only=True):
    """A start that succeeded, after as many tries as it took.

    `asked_at_ms` is when the last try was sent, `first_asked_at_ms` when the first one was.
    """

    order: str
    run: str
    created: bool
    request: str
    gateway: str
    tries: int
    at_ms: Instant
    asked_at_ms: Instant = field(default=EPOCH, name="asked_ms")
    first_asked_at_ms: Instant = field(default=EPOCH, name="first_asked_ms")


class FailedCall(Struct, frozen=True):
    """A client call that failed for good, though it was repeated as clients do."""

    order: str
    verb: str
    why: str


class OtherOrder(Struct, frozen=True, kw_only=True):
    """A run of another workflow than the errand, as it was ordered.

    `delay_ms` after its start it may begin. `again`: its key may have had several runs, one after the other.
    """

    workflow: str
    key: str
    delay_ms: Millis = NO_TIME
    again: bool = False


class SentWord(Struct, frozen=True, kw_only=True):
    """A signal that was accepted: the `number`-th of its sender, to the run or runs of an order."""

    order: str
    hook: str
    word: str
    sender: str
    number: int
    asked_at_ms: Instant = field(default=EPOCH, name="asked_ms")
    at_ms: Instant = EPOCH


class Heard(Struct, frozen=True):
    """What one reader of a run's events was told: the cursors as they came, over how many connections."""

    run: str
    cursors: tuple[int, ...]
    connections: int


class Searched(Struct, frozen=True):
    """A search when everything was quiet: what it asked for, the runs that it should find, and those that it found."""

    what: str
    wanted: tuple[str, ...]
    found: tuple[str, ...]


class KeyUse(Struct, frozen=True, kw_only=True):
    """A request with an API key that was revoked before. `after_ms` is how long before it was sent."""

    gateway: str
    after_ms: Millis
    accepted: bool


class DutySeen(Struct, frozen=True):
    """What a scheduler has said about a duty: whether it leads it, and how often it was elected and deposed so far."""

    at_ms: Instant
    pid: int
    duty: str
    leads: bool
    elections: int


class Final(Struct, frozen=True):
    """A run as it was found when everything was quiet again."""

    id: str
    workflow: str
    key: str
    status: str
    journal: tuple[Entry, ...] = ()
    result: str = ""


class LogNotice(Struct, frozen=True):
    """What a replica has said in its log about runs and duties that changed hands.

    `age_ms` is that of a lost lease: how long before it was last renewed. `stale` are writes that the store refused,
    and ends are taken back that it refused since there was a message to be read.
    """

    at_ms: Instant
    said: Said
    pid: int
    runs: tuple[str, ...] = ()
    age_ms: Millis = NO_TIME
    duty: str = ""
    term: int = 0


class Evidence(Struct, frozen=True, kw_only=True):
    """All that one scenario has seen.

    `lease_ms` is that of the workers: one that runs at all learns within it that it has lost what it held. `before`
    holds runs that had ended before something happened that must not change them any more.
    """

    lease_ms: Millis
    orders: tuple[str, ...]
    others: tuple[OtherOrder, ...] = ()
    accepted_starts: tuple[AcceptedStart, ...] = ()
    failed: tuple[FailedCall, ...] = ()
    calls: tuple[EffectCall, ...] = ()
    finals: tuple[Final, ...] = ()
    before: tuple[Final, ...] = ()
    faults: tuple[InjectedFault, ...] = ()
    notices: tuple[LogNotice, ...] = ()
    sent: tuple[SentWord, ...] = ()
    heard: tuple[Heard, ...] = ()
    searched: tuple[Searched, ...] = ()
    key_uses: tuple[KeyUse, ...] = ()
    sights: tuple[DutySeen, ...] = ()


class Violation(Struct, frozen=True):
    """Something that must never be."""

    kind: str
    about: str
    detail: str
