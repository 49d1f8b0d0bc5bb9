"""What a scenario has seen: values only. The checker and the proofs judge by nothing else.

All instants are milliseconds of this machine's wall clock, which Redis on the same machine reads too.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from holdfast.kernel.journal import Entry

Deed = Literal["kill", "stop", "continue", "terminate", "start"]
Said = Literal["rescued", "overtaken", "lease lost"]


class Call(Struct, frozen=True):
    """A line of the ledger: an effect was called. The lines are in the order in which the world saw them."""

    key: str
    run: str
    step: str
    order: str
    attempt: int
    pid: int
    at_ms: int = 0


class Fault(Struct, frozen=True, kw_only=True):
    """Something that was done to a process on purpose. `pid` is the one that it was done to."""

    at_ms: int
    deed: Deed
    part: str
    role: str
    pid: int
    scenario: str = ""


class Answered(Struct, frozen=True, kw_only=True):
    """A start that was answered, after as many tries as it took."""

    order: str
    run: str
    created: bool
    request: str
    gateway: str
    tries: int
    at_ms: int


class Failed(Struct, frozen=True):
    """A client call that failed for good, though it was repeated as clients do."""

    order: str
    verb: str
    why: str


class Final(Struct, frozen=True):
    """A run as it was found when everything was quiet again."""

    id: str
    workflow: str
    key: str
    status: str
    journal: tuple[Entry, ...] = ()
    result: str = ""


class Notice(Struct, frozen=True):
    """What a replica has said in its log about runs that changed hands."""

    at_ms: int
    said: Said
    pid: int
    runs: tuple[str, ...] = ()


class Evidence(Struct, frozen=True, kw_only=True):
    """All that one scenario has seen.

    `lease_ms` is that of the workers: one that runs at all learns within it that it has lost what it held. `before`
    holds runs that had ended before something happened that must not change them any more.
    """

    lease_ms: int
    orders: tuple[str, ...]
    answers: tuple[Answered, ...] = ()
    failed: tuple[Failed, ...] = ()
    calls: tuple[Call, ...] = ()
    finals: tuple[Final, ...] = ()
    before: tuple[Final, ...] = ()
    faults: tuple[Fault, ...] = ()
    notices: tuple[Notice, ...] = ()


class Violation(Struct, frozen=True):
    """Something that must never be."""

    kind: str
    about: str
    detail: str
