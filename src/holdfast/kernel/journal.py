"""The journal: the ordered, append-only record of what a run has done.

Entries are past participles, because only what has happened is recorded:

    started     the run's input
    intended    a `once` effect is about to be called
    attempted   an attempt of an effect failed and will be repeated
    performed   an effect returned                          → delivers a value to the code
    gave_up     an effect failed for good                   → delivers an exception
    elapsed     a timer reached its due time                → delivers
    spawned     a child run was admitted (or found)         → delivers to `spawn`
    joined      a child's outcome arrived                   → delivers a value or an exception
    completed, failed, cancelled                            how the run ended
    blocked     the run cannot go on without a person; says why
    retried     a person asked to try again; says which entries no longer count

Every entry of a step carries its intent (name, key, input digest, source line) as computed before the call.
The position of an entry is its place in the run's journal; entries are delivered in that order, always.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import UNSET, Raw, Struct, UnsetType


class Value(Struct, frozen=True, gc=False, omit_defaults=True):
    """An encoded value: inline, or kept beside the journal in a blob that is loaded only when asked for."""

    json: Raw | UnsetType = UNSET
    blob: str = ""
    size: int = 0

    def __repr__(self) -> str:
        return f"<{self.size:,} bytes in blob {self.blob}>" if self.json is UNSET else f"<{bytes(self.json).decode()}>"


class Failure(Struct, frozen=True, gc=False, omit_defaults=True):
    """An exception as data: enough to rebuild it where its class is known, and to explain it where not."""

    type: str
    message: str
    args: Raw | UnsetType = UNSET
    state: Raw | UnsetType = UNSET  # its attributes
    line: str = ""
    step: str = ""
    members: tuple[Failure, ...] = ()  # of an exception group


class Intent(Struct, frozen=True, gc=False, omit_defaults=True):
    """What the code asked for, fixed before anything was done about it."""

    kind: str  # "effect", "child" or "spawn"
    name: str
    key: str = ""
    digest: str = ""
    line: str = ""

    def same_as(self, other: Intent) -> bool:
        """Whether both ask for the same thing; the source line may move."""
        return (self.kind, self.name, self.key, self.digest) == (other.kind, other.name, other.key, other.digest)


class _Entry(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="what", tag=str.lower):
    at_ms: int

    @property
    def what(self) -> str:
        """What happened, in a word: `performed`, `gave_up`, ..."""
        return str(self.__struct_config__.tag)


class Started(_Entry, frozen=True):
    input: Value


class Intended(_Entry, frozen=True):
    step: str
    intent: Intent
    attempt: int


class Attempted(_Entry, frozen=True):
    step: str
    intent: Intent
    attempt: int
    error: Failure
    retry_at_ms: int


class Performed(_Entry, frozen=True):
    step: str
    intent: Intent
    attempt: int
    value: Value


class GaveUp(_Entry, frozen=True, tag="gave_up"):
    step: str
    intent: Intent
    attempt: int
    error: Failure


class Elapsed(_Entry, frozen=True):
    step: str
    due_ms: int


class Spawned(_Entry, frozen=True):
    step: str
    intent: Intent
    run_id: str
    key: str = ""


class Joined(_Entry, frozen=True):
    step: str
    run_id: str
    value: Value | None = None
    error: Failure | None = None


class Completed(_Entry, frozen=True):
    pass


class Failed(_Entry, frozen=True):
    error: Failure


class Cancelled(_Entry, frozen=True):
    pass


class Blocked(_Entry, frozen=True):
    code: str
    message: str


class Retried(_Entry, frozen=True):
    void: tuple[int, ...] = ()


Entry = (
    Started
    | Intended
    | Attempted
    | Performed
    | GaveUp
    | Elapsed
    | Spawned
    | Joined
    | Completed
    | Failed
    | Cancelled
    | Blocked
    | Retried
)


def void_positions(journal: tuple[Entry, ...]) -> set[int]:
    """The positions of entries that no longer count: a retry voids the failure that it is about to try again."""
    return {position for entry in journal if isinstance(entry, Retried) for position in entry.void}


class Recorded(NamedTuple):
    """An entry to be replayed. What was recorded after a failure that has since been voided is not `strict`.

    Such entries are what the code did about the failure (a notice, a clean-up). The next try may never ask for them;
    if it does, they have been done.
    """

    position: int
    entry: Entry
    strict: bool


def to_replay(journal: tuple[Entry, ...]) -> list[Recorded]:
    """The entries that count, in order, from the second on; the first is the input."""
    void = void_positions(journal)
    loose: set[int] = set()
    for end, entry in enumerate(journal):
        if isinstance(entry, Retried) and entry.void:
            loose.update(range(min(entry.void), end))
    return [
        Recorded(position, entry, position not in loose)
        for position, entry in enumerate(journal)
        if position and position not in void
    ]
