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
    received    a signal arrived                            → delivers a payload to a hook
    opened      a hook's token was claimed, or is taken     → delivers
    cancel_asked  a cancellation was asked for              → cancels the code
    stopped     the code has ended after that, or has failed  → begins to undo
    completed, failed, cancelled                            how the run ended
    blocked     the run cannot go on without a person; says why
    retried     a person asked to try again, or a worker with other code did; says which entries no longer count
    resumed     a person asked to go on after a cancellation, which no longer counts
    continued   the run began again, with another input; its journal begins here

Notes deliver nothing. They say what the code did besides:

    marked, tagged   it reached a marker; it set attributes
    closed           it closed a hook
    patched          it took the new way at a `patched(name)`
    ignored          a payload did not fit the hook's type, and was passed over
    dropped          it stopped waiting for an effect that may have been under way
    late             such an effect came to its end all the same, or such a child was admitted
    forked           up to here the journal is that of another run
    key_released     a person released the key, or a successor took it

What came of an attempt carries how long it took, unless it began when the code asked for it.
The first entry of an effect carries its arguments, where the workflow or the installation says so. Replay ignores them.
Every entry of a step carries its intent (name, key, input digest, source line) as computed before the call.
The position of an entry is its place in the run's journal; entries are delivered in that order, always.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, NamedTuple

from msgspec import UNSET, Raw, Struct, UnsetType, field

from holdfast.errors import TimedOut
from holdfast.kernel.times import NO_TIME, Instant, Millis
from holdfast.kernel.units import utc_of, utc_or_none

TIMED_OUT = f"{TimedOut.__module__}.{TimedOut.__qualname__}"  # as a failure names it


class Value(Struct, frozen=True, gc=False, omit_defaults=True):
    """An encoded value: inline, or kept beside the journal in a blob that is loaded only when asked for."""

    json: Raw | UnsetType = UNSET
    blob: str = ""
    size: int = 0
    sealed: str = ""  # the id of the key that opens it; empty if it is open

    def __repr__(self) -> str:
        if self.sealed:
            return f"<sealed under key {self.sealed}>"
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
    traceback: str = ""  # the user's frames, outermost first; earlier versions recorded none


IntentKind = Literal["effect", "undo", "child", "spawn", "join", "stop", "hook", "timer"]


class Intent(Struct, frozen=True, gc=False, omit_defaults=True):
    """What the code asked for, fixed before anything was done about it."""

    kind: IntentKind
    name: str
    key: str = ""
    digest: str = ""  # of the arguments, less those that have their default value
    line: str = ""
    defaults: dict[str, str] = {}  # of an effect: a digest of each default value that was left out of the digest

    def same_as(self, other: Intent) -> bool:
        """Whether both ask for the same thing; the source line may move, and defaults may come and change."""
        return (self.kind, self.name, self.key, self.digest) == (other.kind, other.name, other.key, other.digest)

    def changed_defaults(self, other: Intent) -> list[str]:
        """The parameters that both leave to their defaults, and whose default values are not the same in both.

        Whatever only one of the two knows does not count: parameters with defaults may be added and removed. Earlier
        versions recorded none.
        """
        return [name for name, was in self.defaults.items() if other.defaults.get(name, was) != was]


class Other(Struct, frozen=True, gc=False, omit_defaults=True):
    """Another run, as a journal names it."""

    run_id: str
    workflow: str
    key: str = ""


class _Entry(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="what", tag=str.lower):
    at_ms: Instant

    @property
    def at(self) -> datetime:
        """When it happened, by the store's clock."""
        return utc_of(self.at_ms)

    @property
    def what(self) -> str:
        """What happened, in a word: `performed`, `gave_up`, ..."""
        return str(self.__struct_config__.tag)


class StepEntry(_Entry, frozen=True):
    """An entry of a step: of something that the code asked for, or that it noted."""

    step: str


class IntentEntry(StepEntry, frozen=True):
    """An entry of a step that says what the code asked for."""

    intent: Intent


class EffectEntry(IntentEntry, frozen=True, kw_only=True):
    """An entry of an effect. `input` has its arguments by name, where they are recorded: in the first of its step."""

    input: Value | None = None


class Started(_Entry, frozen=True):
    input: Value
    attributes: Raw | UnsetType = UNSET  # those it was started with


class Continued(_Entry, frozen=True):
    input: Value
    generation: int
    original: Value  # the input of the very first generation
    children: tuple[Other, ...] = ()  # runs that earlier generations have started, and that are still its own
    attributes: Raw | UnsetType = UNSET


class ByHand(Struct, frozen=True, gc=False, omit_defaults=True):
    """A person has said what came of a step in doubt: who, and why they know.

    With `retry_now`, the person has asked that the next attempt begins at once, see `retry_requests`.
    """

    by: str = ""
    reason: str = ""
    retry_now: bool = False


class Intended(EffectEntry, frozen=True):
    attempt: int


class AttemptEntry(EffectEntry, frozen=True, kw_only=True):
    """An entry of what came of an attempt of an effect.

    `took_ms` is how long the attempt took, if it did not begin when the code asked for it: no worker was there, there
    was no room, an earlier attempt had failed. Otherwise it is left out: the entry before tells when it began.
    """

    took_ms: Millis = NO_TIME

    @property
    def began_at_ms(self) -> Instant | None:
        """As `began_at`."""
        return self.at_ms - self.took_ms if self.took_ms else None

    @property
    def began_at(self) -> datetime | None:
        """When the attempt began; None if that was when the code asked for it."""
        return utc_or_none(self.began_at_ms)


class Attempted(AttemptEntry, frozen=True):
    attempt: int
    error: Failure
    retry_at_ms: Instant
    by_hand: ByHand | None = None

    @property
    def retry_at(self) -> datetime:
        """When the next attempt begins."""
        return utc_of(self.retry_at_ms)


class Performed(AttemptEntry, frozen=True):
    attempt: int
    value: Value
    by_hand: ByHand | None = None


class GaveUp(AttemptEntry, frozen=True, tag="gave_up"):
    attempt: int
    error: Failure
    by_hand: ByHand | None = None


class Elapsed(StepEntry, frozen=True):
    due_at_ms: Instant = field(name="due_ms")


class Spawned(IntentEntry, frozen=True):
    run_id: str
    key: str = ""
    created: bool = True  # False: the key was taken, and this is the run that holds it
    detached: bool = False


class Joined(StepEntry, frozen=True):
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
    bulk: str = ""  # the bulk run that did it
    reason: str = ""  # why it was not a person who asked for it


class Received(_Entry, frozen=True):
    hook: str
    id: str
    value: Value
    by_key: bool = False
    left: bool = False  # recorded with the end of the run: the code had ended, and has not seen it


class Opened(IntentEntry, frozen=True):
    holder: Other | None = None  # the live run that has the token, if it is not this one


class CancelAsked(_Entry, frozen=True, tag="cancel_asked"):
    deadline_at_ms: Instant = field(name="deadline_ms")
    reason: str = ""
    pausing: bool = False  # the code is not told: it stands still, and may be resumed
    error: Failure | None = None  # what the run fails with instead of being cancelled: it has taken too long


class Stopped(_Entry, frozen=True):
    """`by_deadline`: cleanup was cut short. `unsure`: what was under way is not known. `paused`: it may be resumed.

    `error`: no cancellation was asked for; the code has failed with it, and what it did is undone before the run fails,
    until the deadline.
    """

    by_deadline: bool = False
    unsure: bool = False
    paused: bool = False
    error: Failure | None = None
    deadline_at_ms: Instant | None = field(default=None, name="deadline_ms")
    kept: bool = False  # the run has taken too long, and what it did is not undone


class Resumed(_Entry, frozen=True):
    void: tuple[int, ...] = ()
    bulk: str = ""  # the bulk run that did it


class Marked(StepEntry, frozen=True):
    marker: str


class Tagged(StepEntry, frozen=True):
    attributes: Raw


class Closed(StepEntry, frozen=True):
    hook: str


class Patched(_Entry, frozen=True):
    name: str


class Ignored(_Entry, frozen=True):
    hook: str
    id: str
    why: str


class Dropped(EffectEntry, frozen=True):
    pass


class Late(EffectEntry, frozen=True):
    """Of an effect its value or its failure; of a child that was still admitted, its run id."""

    attempt: int
    value: Value | None = None
    error: Failure | None = None
    run_id: str = ""


class Forked(_Entry, frozen=True):
    from_run: str
    origin: str  # the run whose id seeds chance and default keys of the copied part
    before: str  # the step from which on the runs differ
    beside: bool = False  # the source kept its key: what was copied is its own work, and not the fork's to undo


class KeyReleased(_Entry, frozen=True, tag="key_released"):
    reason: str = ""


Entry = (
    Started
    | Continued
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
    | Received
    | Opened
    | CancelAsked
    | Stopped
    | Resumed
    | Marked
    | Tagged
    | Closed
    | Patched
    | Ignored
    | Dropped
    | Late
    | Forked
    | KeyReleased
)
Note = Marked | Tagged | Closed | Patched | Ignored | Dropped | Late | Forked | KeyReleased


def step_of(entry: Entry) -> str:
    """The step that the entry belongs to; empty if it belongs to none."""
    return entry.step if isinstance(entry, StepEntry) else ""


def void_positions(journal: tuple[Entry, ...]) -> set[int]:
    """The positions of entries that no longer count: what a retry tries again, what a resumption takes back."""
    return {position for entry in journal if isinstance(entry, Retried | Resumed) for position in entry.void}


class ReplayedEntry(NamedTuple):
    """An entry to be replayed. What was recorded after a failure that has since been voided is not `strict`.

    Such entries are what the code did about the failure (a notice, a clean-up). The next try may never ask for them;
    if it does, they have been done.
    """

    position: int
    entry: Entry
    strict: bool


def to_replay(journal: tuple[Entry, ...], *, first: int = 0) -> list[ReplayedEntry]:
    """The entries that count, in order, after the first, which is the input; `first` is its position."""
    void = void_positions(journal)
    loose: set[int] = set()
    for end, entry in enumerate(journal, first):
        if isinstance(entry, Retried) and entry.void:
            loose.update(range(min(entry.void), end))
    counting: list[ReplayedEntry] = []
    for position, entry in enumerate(journal, first):
        if position == first:
            continue
        if position not in void:
            counting.append(ReplayedEntry(position, entry, position not in loose))
        if isinstance(entry, Late) and (outcome := _if_asked_again(entry)) is not None:
            counting.append(ReplayedEntry(position, outcome, strict=False))
    return counting


def _if_asked_again(late: Late) -> Performed | Attempted | None:
    """What came of an effect though the code had stopped waiting for it, as the code gets it if it waits again.

    It does if what made it stop is taken back: a cancellation that is resumed, a failure that is retried. The effect
    was performed then, and must not be performed again; or its attempt failed, and the next one follows.
    """
    if late.value is not None:
        return Performed(late.at_ms, late.step, late.intent, late.attempt, late.value)
    if late.error is not None and late.error.type != TIMED_OUT:  # a call that timed out may have performed it
        return Attempted(late.at_ms, late.step, late.intent, late.attempt, late.error, late.at_ms)
    return None


def input_of(journal: tuple[Entry, ...]) -> Started | Continued:
    """The entry that a journal begins with."""
    first = journal[0]
    assert isinstance(first, Started | Continued), first
    return first


def original_input(first: Started | Continued) -> Value:
    """The input with which a run was started, before it continued as new."""
    return first.original if isinstance(first, Continued) else first.input
