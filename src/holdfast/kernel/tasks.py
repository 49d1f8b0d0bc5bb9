"""Tasks: attempts of remote effects, put up for workers in other languages to claim. Each is one document.

    state       claimed by         heartbeat     completed, failed   dropped, or out of time
    ──────────  ─────────────────  ────────────  ──────────────────  ──────────────────────────────────────
    offered     any worker         refused       refused             withdrawn: no worker has begun it
    claimed     any, once its      lease begins  done                dropped: unwanted; out of time: withdrawn
                lease is over      again
    unwanted    no worker          not wanted    done                withdrawn, once its lease is over
    done        no worker          not wanted    the same result     stays
    withdrawn   no worker          not wanted    refused             stays

Rules
- A task is named by its run, step and attempt. The holder of the run after a crash offers the same task, and so joins
  it; only one that was withdrawn is put up again.
- A claim gets a fence: the version of the document that it made. What comes under another fence is refused, so a worker
  that slept while its lease ran out and another one claimed the task changes nothing.
- As long as no other worker has claimed it, a worker that is late still has its task.
- A lease that runs out uses up no attempt: the attempt is the task's, not the worker's.
- The timeout of an attempt counts from its last claim; waiting for a worker costs nothing but the retry's deadline.
- After that deadline it is neither put up nor claimed, also if the process that had put it up has died since.
- A task that must be performed once is claimed once: when the lease of its claim is over it is withdrawn, and the run
  has to find out what came of it. It is put up again only if no worker can have begun it.
- Dropping a task that was claimed leaves the worker the rest of its lease to say how it ended.
- The outcome is kept until the run has heard it, and a while longer: a worker may ask again after a lost reply. The
  input is not: it may be large, and the task is not performed any more.
- A task that cannot be read, a newer version's say, is set aside for a while, as it is: others are claimed meanwhile.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import assert_never

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from holdfast.errors import NotAllowedNow
from holdfast.kernel.documents import Document, Writing, next_version
from holdfast.kernel.ids import joined
from holdfast.kernel.journal import Entry, step_of, void_positions
from holdfast.kernel.times import Instant, Millis

KIND = "task/"
# Of a run that ended by force they are withdrawn by the next worker that would claim them.
OPEN_KEPT_MS = Millis(365 * 86_400_000)
DONE_KEPT_MS = Millis(30 * 86_400_000)
HEARD_KEPT_MS = Millis(3_600_000)
ASIDE_MS = Millis(60_000)

Json = str  # kept as text inside of text: a reader of a task need not go as deep as its values are nested


class _TaskState(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="is", tag=str.lower):
    pass


class Offered(_TaskState, frozen=True):
    """No worker has it. The fence is that of a claim that was withdrawn before; 0 if there was none."""

    fence: int = 0


class TaskClaimed(_TaskState, frozen=True, tag="claimed"):
    """A worker has it. `nonce` tells claims apart that two workers make at the same instant."""

    worker: str
    nonce: str
    fence: int
    lease_ms: Millis
    since_ms: Instant
    until_ms: Instant
    wanted: bool = True


class TaskReturned(Struct, frozen=True, gc=False, tag="returned", tag_field="how"):
    """What the worker says that the effect returned."""

    value: Json


class TaskRaised(Struct, frozen=True, gc=False, omit_defaults=True, tag="raised", tag_field="how"):
    """What the worker says went wrong. `retry` is its opinion whether trying again can help."""

    type: str
    message: str
    retry: bool = True
    retry_after_ms: Millis | None = None


TaskOutcome = TaskReturned | TaskRaised


class Done(_TaskState, frozen=True):
    """A worker has said how it ended."""

    worker: str
    fence: int
    outcome: TaskOutcome


class Withdrawn(_TaskState, frozen=True):
    """It is not wanted any more. The fence is that of its last claim; 0 if there was none."""

    fence: int = 0


TaskState = Offered | TaskClaimed | Done | Withdrawn


class Task(Struct, frozen=True, gc=False, omit_defaults=True):
    """One attempt of a remote effect. `details` are those of the last heartbeat, of whatever attempt."""

    run_id: str
    key: str
    attempt: int
    input: Json
    state: TaskState = Offered()
    details: Json | None = None
    once: bool = False
    traceparent: str = ""  # the span of the attempt, where there are traces
    deadline_at_ms: Instant | None = field(
        default=None, name="deadline_ms"
    )  # from when on the attempt must not begin any more


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Task).decode
_plain = msgspec.json.Decoder().decode
_sorted = msgspec.json.Encoder(order="deterministic").encode


class TaskPlace(Struct, frozen=True, gc=False):
    """Where a task is found."""

    namespace: str
    effect: str
    id: str

    @property
    def kind(self) -> str:
        return kind_of(self.effect)

    @property
    def name(self) -> str:
        """The task, as workers name it."""
        return f"{self.effect}.{self.id}"


def kind_of(effect: str) -> str:
    """The kind of the documents that are tasks of this effect."""
    return KIND + effect


def place_named(namespace: str, name: str) -> TaskPlace:
    effect, _, task_id = name.rpartition(".")
    return TaskPlace(namespace, effect, task_id)


def place_of(document: Document) -> TaskPlace:
    return TaskPlace(document.namespace, document.kind.removeprefix(KIND), document.id)


def task_of(document: Document) -> Task:
    return _decode(document.body)


def id_of(run_id: str, journal: tuple[Entry, ...], step: str, attempt: int, *, first: int) -> str:
    """Names an attempt: the same for every holder of the run; another one when the step is tried afresh.

    That is so after a retry or a resumption, which void the records of the step, and after the run continued as new;
    `first` is the position of the first entry.
    """
    voided = sum(step_of(journal[position - first]) == step for position in void_positions(journal))
    name = joined(run_id, str(first), str(voided), str(attempt), step)
    return blake2b(name.encode(), digest_size=16).hexdigest()


# -- the run's side


class NoOutcome(Struct, frozen=True, gc=False):
    """There will be no outcome. `begun` says whether a worker may have begun it, `dropped` that no code waits."""

    begun: bool
    dropped: bool


def offer(
    current: Document | None, place: TaskPlace, task: Task, *, in_doubt: bool, now_ms: Instant
) -> Writing | NoOutcome | None:
    """Put the task up, if that is to be done; None if it is out already, or must not be put up.

    `in_doubt` says that it must be performed once, and may have been put up before: then that is not done again, unless
    it was withdrawn before a worker claimed it. After its deadline it is not put up at all: it is lost.
    """
    is_over = _is_over(task.deadline_at_ms, now_ms)
    if current is None and not in_doubt and is_over:
        return NoOutcome(begun=False, dropped=False)
    if current is None:
        return None if in_doubt else Writing(_document(place, task, replaces=None, now_ms=now_ms))
    match task_of(current).state:
        case Withdrawn(fence=fence) if not (in_doubt and fence) and not is_over:
            return _writing(current, replace(task, state=Offered(fence)), now_ms=now_ms)
        case TaskClaimed(wanted=False) as claimed:
            return _moved(current, replace(claimed, wanted=True), now_ms=now_ms)
        case _:
            return None


class LookAgain(Struct, frozen=True, gc=False):
    """Look again when the task has changed, or then."""

    until_ms: Instant | None


def look(
    current: Document | None,
    *,
    wanted: bool,
    timeout_ms: Millis | None,
    deadline_at_ms: Instant | None,
    now_ms: Instant,
) -> TaskOutcome | LookAgain | NoOutcome | Writing:
    """What follows for the run that has offered the task and waits for its outcome."""
    if current is None:
        return NoOutcome(begun=True, dropped=not wanted)
    task = task_of(current)
    state = task.state
    match state:
        case Done(outcome=outcome):
            return outcome
        case Withdrawn(fence=fence):
            return NoOutcome(begun=bool(fence), dropped=not wanted)
        case Offered():
            return (
                LookAgain(deadline_at_ms)
                if wanted and not _is_over(deadline_at_ms, now_ms)
                else _withdrawn(current, now_ms)
            )
        case TaskClaimed() if wanted:
            over_at_ms = _earliest(deadline_at_ms, None if timeout_ms is None else state.since_ms + timeout_ms)
            over_at_ms = _earliest(over_at_ms, state.until_ms if task.once else None)
            return _withdrawn(current, now_ms) if _is_over(over_at_ms, now_ms) else LookAgain(over_at_ms)
        case TaskClaimed(until_ms=until_ms) if until_ms <= now_ms:
            return _withdrawn(current, now_ms)
        case TaskClaimed(wanted=True):
            return _moved(current, replace(state, wanted=False), now_ms=now_ms)
        case TaskClaimed(until_ms=until_ms):
            return LookAgain(until_ms)
        case _:  # pragma: no cover
            assert_never(state)


def heard(current: Document, *, now_ms: Instant) -> Writing:
    """The run knows the outcome: the task need not be kept for long."""
    writing = _writing(current, task_of(current), now_ms=now_ms)
    return replace(writing, document=replace(writing.document, expires_at_ms=now_ms + HEARD_KEPT_MS))


# -- the worker's side


class TaskClaim(Struct, frozen=True, gc=False):
    """Who claims, and for how long at first."""

    worker: str
    nonce: str
    lease_ms: Millis


def claim(current: Document, by: TaskClaim, *, run_lives: bool, now_ms: Instant) -> Writing | None:
    """The task given to a worker, or withdrawn because it is not wanted; None if another worker has it."""
    task = task_of(current)
    state = task.state
    match state:
        case Offered():
            pass
        case TaskClaimed() if state.until_ms <= now_ms:
            if task.once or not state.wanted:
                return _withdrawn(current, now_ms)
        case _:
            return None
    if not run_lives or _is_over(task.deadline_at_ms, now_ms):
        return _withdrawn(current, now_ms)
    fence = next_version(current.version, now_ms=now_ms)
    until_ms = now_ms + by.lease_ms
    return _moved(current, TaskClaimed(by.worker, by.nonce, fence, by.lease_ms, now_ms, until_ms), now_ms=now_ms)


def set_aside(current: Document, *, now_ms: Instant) -> Writing:
    """A task that cannot be read here: it is left as it is for a newer version, and holds up no other for a while."""
    version = next_version(current.version, now_ms=now_ms)
    return Writing(replace(current, version=version, due_at_ms=now_ms + ASIDE_MS), current.version)


class TaskBeat(Struct, frozen=True, gc=False):
    """The answer to a heartbeat, and what is to be stored for it to be true."""

    wanted: bool
    until_ms: Instant
    writing: Writing | None = None


def heartbeat(
    current: Document, *, fence: int, details: Json | None = None, run_lives: bool, now_ms: Instant
) -> TaskBeat:
    """A worker says that it goes on, and how far it has come. Raises `NotAllowedNow` if the task is not its own."""
    task = task_of(current)
    match task.state:
        case TaskClaimed(fence=own) as claimed if own == fence:
            if details is not None:
                task = replace(task, details=details)
            wanted = claimed.wanted and run_lives
            until_ms = now_ms + claimed.lease_ms if wanted else claimed.until_ms
            after = replace(task, state=replace(claimed, wanted=wanted, until_ms=until_ms))
            return TaskBeat(
                wanted, until_ms, None if after == task_of(current) else _writing(current, after, now_ms=now_ms)
            )
        case Done(fence=own) | Withdrawn(fence=own) if own == fence:
            return TaskBeat(wanted=False, until_ms=now_ms)
        case _:
            raise _not_its_own(current, fence)


def finish(current: Document, outcome: TaskOutcome, *, fence: int, now_ms: Instant) -> Writing | None:
    """A worker says how the task ended; None if it has said so before. Raises `NotAllowedNow`."""
    match task_of(current).state:
        case TaskClaimed(worker=worker, fence=own) if own == fence:
            return _moved(current, Done(worker, fence, outcome), now_ms=now_ms)
        case Done(fence=own, outcome=before) if own == fence:
            if _same(before, outcome):
                return None
            raise NotAllowedNow(
                f"task {place_of(current).name} has ended in another way already",
                hint="What was said first counts. Say once how a task ended.",
            )
        case Withdrawn(fence=own) if own == fence:
            raise NotAllowedNow(
                f"task {place_of(current).name} is not wanted any more: its run was cancelled, or did not wait longer",
                hint="Stop when a heartbeat says that it is not wanted; undo what was done, if it must not stay.",
            )
        case _:
            raise _not_its_own(current, fence)


# -- between


def _same(one: TaskOutcome, other: TaskOutcome) -> bool:
    if one == other:
        return True
    try:
        return (
            isinstance(one, TaskReturned)
            and isinstance(other, TaskReturned)
            and _normal(one.value) == _normal(other.value)
        )
    except RecursionError:
        return False


def _normal(value: Json) -> bytes:
    """The one way to write it. Python would call `true`, `1` and `1.0` equal."""
    return _sorted(_plain(value))


def _not_its_own(current: Document, fence: int) -> NotAllowedNow:
    return NotAllowedNow(
        f"fence {fence} is not that of the last claim of task {place_of(current).name}",
        hint="Its lease ran out and it was claimed again, or it never was yours. Drop it, and claim again.",
    )


def _withdrawn(current: Document, now_ms: Instant) -> Writing:
    return _moved(current, Withdrawn(task_of(current).state.fence), now_ms=now_ms)


def _moved(current: Document, state: TaskState, *, now_ms: Instant) -> Writing:
    task = replace(task_of(current), state=state)
    if isinstance(state, Done | Withdrawn):
        task = replace(task, input="")
    return _writing(current, task, now_ms=now_ms)


def _writing(current: Document, task: Task, *, now_ms: Instant) -> Writing:
    place, replaces = place_of(current), current.version
    return Writing(_document(place, task, replaces=replaces, now_ms=now_ms), replaces)


def _document(place: TaskPlace, task: Task, *, replaces: int | None, now_ms: Instant) -> Document:
    due_at_ms, kept_ms = _queue_of(task.state, now_ms)
    version = next_version(replaces, now_ms=now_ms)
    return Document(place.namespace, place.kind, place.id, version, _encode(task), due_at_ms, now_ms + kept_ms)


def _queue_of(state: TaskState, now_ms: Instant) -> tuple[Instant | None, Millis]:
    """From when it may be claimed, and how long it is kept."""
    match state:
        case Offered():
            return now_ms, OPEN_KEPT_MS
        case TaskClaimed(until_ms=until_ms):
            return until_ms, OPEN_KEPT_MS
        case Done():
            return None, DONE_KEPT_MS
        case Withdrawn():
            return None, HEARD_KEPT_MS
        case _:  # pragma: no cover
            assert_never(state)


def _is_over(over_at_ms: Instant | None, now_ms: Instant) -> bool:
    return over_at_ms is not None and over_at_ms <= now_ms


def _earliest(one_at_ms: Instant | None, other_at_ms: Instant | None) -> Instant | None:
    if one_at_ms is None or other_at_ms is None:
        return other_at_ms if one_at_ms is None else one_at_ms
    return min(one_at_ms, other_at_ms)
