"""Drives a Machine without store, clock or tasks: the test decides what is delivered, and in which order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import UNSET, Raw, field

from holdfast.adapters.payloads import JsonCodec
from holdfast.engine.code.commands import CodeCancelled, CodeContinued, CodeRaised, CodeReturned, Command
from holdfast.engine.code.machine import Machine
from holdfast.engine.code.replay import replay
from holdfast.engine.failures import described
from holdfast.errors import RunCancelled
from holdfast.kernel import attributes as shown, transitions
from holdfast.kernel.attributes import Scalar
from holdfast.kernel.cancels import UNDO
from holdfast.kernel.journal import (
    Attempted,
    CancelAsked,
    Cancelled,
    Closed,
    Continued,
    Dropped,
    Elapsed,
    Entry,
    Failed,
    GaveUp,
    Ignored,
    Joined,
    Late,
    Marked,
    Note,
    Opened,
    Other,
    Patched,
    Performed,
    Received,
    Spawned,
    Started,
    Stopped,
    Tagged,
    Value,
    original_input,
)
from holdfast.kernel.replay import noted
from holdfast.kernel.runs import Status
from holdfast.pack import Pack, Workflow
from holdfast.workflow import Current
from tests.builders import NOW_MS, a_run

CODEC = JsonCodec()
DEADLINE_MS = NOW_MS + 30_000
PLAYS: list[Play] = []  # those to be let go at the end of the test, as the engine does with every run


class _Watched(Machine, weakref=True):
    """Keeps every command that the code ever asked for, also those that were done before anybody looked."""

    begun: list[Command] = field(default_factory=list)

    def starting(self, first: Started | Continued, *, at_ms: int) -> Iterator[None]:
        self.begun = []
        yield from super().starting(first, at_ms=at_ms)
        self.begun += self.pending.take_fresh()

    def apply(self, entry: Entry, position: int, *, strict: bool = True) -> None:
        super().apply(entry, position, strict=strict)
        self.begun += self.pending.take_fresh()

    def applying(self, entry: Entry, position: int, *, strict: bool = True) -> Iterator[None]:
        yield from super().applying(entry, position, strict=strict)
        self.begun += self.pending.take_fresh()


class Play:
    """One machine and the journal that it has been given so far. Time moves by a millisecond per entry.

    `first` is the input; `journal` is what follows it, with the notes of the code in their places.
    """

    def __init__(
        self,
        workflow: Workflow[..., Any],
        *args: Any,
        run_id: str = "run-1",
        attributes: Mapping[str, Scalar] | None = None,
        **kwargs: Any,
    ) -> None:
        seeds = UNSET if attributes is None else Raw(shown.encode(attributes))
        self._live(workflow, (Started(NOW_MS, value_of(workflow.signature.bind(args, kwargs)), seeds),), run_id)

    @classmethod
    def of(cls, workflow: Workflow[..., Any], journal: Iterable[Entry], *, run_id: str = "run-1") -> Play:
        """A life that begins with this journal, replayed as the engine does it."""
        play = cls.__new__(cls)
        play._live(workflow, tuple(journal), run_id)
        return play

    def _live(self, workflow: Workflow[..., Any], journal: tuple[Entry, ...], run_id: str) -> None:
        first = journal[0]
        assert isinstance(first, Started | Continued)
        self.workflow = workflow
        self.run_id = run_id
        self.first = first
        self.journal = list(journal[1:])
        self.now_ms = max(entry.at_ms for entry in journal)
        self._ids = itertools.count(len(journal))
        current = Current(run_id, "key-1", workflow.name)
        self.machine = _Watched(workflow, current, codec=CODEC, blobs={}, noted=noted(journal))
        replay(self.machine, a_run(run_id, length=len(journal)), journal)
        self.journal += self.machine.notes.take()
        PLAYS.append(self)

    # -- what the world does

    def perform(self, step: str, value: object = None) -> Play:
        """The effect of this step returned."""
        return self._deliver(Performed(self._now(), step, self._command(step).intent, 1, value_of(value)))

    def give_up(self, step: str, error: Exception) -> Play:
        """The effect of this step failed for good."""
        return self._deliver(GaveUp(self._now(), step, self._command(step).intent, 1, described(error, CODEC)))

    def attempt(self, step: str, error: Exception, *, delay_ms: int) -> Play:
        """An attempt of this step failed and will be repeated."""
        now_ms, command = self._now(), self._command(step)
        failure = described(error, CODEC)
        return self._deliver(Attempted(now_ms, step, command.intent, command.failures + 1, failure, now_ms + delay_ms))

    def elapse(self, step: str) -> Play:
        """The timer of this step came due."""
        assert step in self.machine.timers, f"the code waits for {self.waits_for}, not for {step}"
        due_at_ms = self.machine.timers[step].due_at_ms
        self.now_ms = max(self.now_ms, due_at_ms)
        return self._deliver(Elapsed(self._now(), step, due_at_ms))

    def spawned(self, step: str, run_id: str, *, created: bool = True) -> Play:
        """The child of this step was admitted, or found."""
        command = self._command(step)
        entry = Spawned(self._now(), step, command.intent, run_id, created=created, detached=command.detached)
        return self._deliver(entry)

    def joined(self, step: str, value: object = None, *, error: Exception | None = None) -> Play:
        """The child of this step ended."""
        run_id = self._command(step).child_id
        if error is not None:
            return self._deliver(Joined(self._now(), step, run_id, error=described(error, CODEC)))
        return self._deliver(Joined(self._now(), step, run_id, value_of(value)))

    def signal(self, hook: str, payload: object = None) -> Play:
        """A payload arrived for this hook."""
        return self._deliver(Received(self._now(), hook, f"signal-{next(self._ids)}", value_of(payload)))

    def claimed(self, step: str, *, by: str | None = None) -> Play:
        """The token of this hook was claimed, or is held `by` another run."""
        holder = None if by is None else Other(by, "shop.other", "key-2")
        return self._deliver(Opened(self._now(), step, self._command(step).intent, holder))

    def cancel(self, reason: str = "", *, pausing: bool = False) -> Play:
        """Somebody asked for the cancellation of the run."""
        return self._deliver(CancelAsked(self._now(), DEADLINE_MS, reason, pausing))

    def dropped(self) -> list[str]:
        """The steps that the code stopped waiting for since the last time: all were under way, and this is noted."""
        commands = self.machine.pending.take_dropped()
        for command in commands:
            if command.touches_the_world:
                self._deliver(Dropped(self._now(), command.step, command.intent))
        return [command.step for command in commands]

    def late(self, step: str, value: object = None, *, error: Exception | None = None, run_id: str = "") -> Play:
        """What was dropped came to its end all the same: it returned, failed, or admitted a child."""
        intent = next(command.intent for command in self.begun if command.step == step)
        failure = None if error is None else described(error, CODEC)
        result = None if error is not None or run_id else value_of(value)
        return self._deliver(Late(self._now(), step, intent, 1, result, failure, run_id))

    def stopped(self) -> Play:
        """The code has ended after its cancellation, and nothing is under way."""
        assert self.machine.ended is not None, f"the code waits for {self.waits_for}"
        return self._deliver(Stopped(self._now()))

    def failed(self) -> Play:
        """The code has failed, nothing is under way, and its workflow wants to be undone."""
        outcome = self.machine.outcome
        assert isinstance(outcome, CodeRaised), f"the code waits for {self.waits_for}"
        self.machine.fail_by_unwinding()
        self.dropped()
        error = described(outcome.error, CODEC)
        return self._deliver(Stopped(self._now(), error=error, deadline_at_ms=DEADLINE_MS))

    def child_stopped(self, step: str) -> Play:
        """The child that was to be stopped has been cancelled."""
        return self.joined(step, error=RunCancelled(self._command(step).child_id))

    # -- what the code does

    @property
    def begun(self) -> list[Command]:
        """Every command asked for so far, in the order in which the code asked."""
        return self.machine.begun

    @property
    def waits_for(self) -> list[str]:
        """The steps that the code waits for, timers included, in the order in which it asked."""
        return [*self.machine.open, *self.machine.timers]

    @property
    def steps(self) -> list[str]:
        """Every step asked for so far but timers, in the order in which the code asked."""
        return [command.step for command in self.begun]

    @property
    def result(self) -> Any:
        """What the code returned; raises what it raised."""
        outcome = self.machine.outcome
        if isinstance(outcome, CodeRaised):
            raise outcome.error
        assert isinstance(outcome, CodeReturned), f"the code waits for {self.waits_for}; outcome {outcome}"
        return outcome.value

    @property
    def is_cancelled(self) -> bool:
        """Whether the run has ended in its cancellation."""
        return isinstance(self.machine.outcome, CodeCancelled)

    @property
    def notes(self) -> list[Note]:
        """The notes in the journal."""
        return [entry for entry in self.journal if isinstance(entry, Note)]

    # -- other lives

    def again(self, journal: Iterable[Entry] | None = None, *, code: Workflow[..., Any] | None = None) -> Play:
        """Another machine, in another life: replays `journal` (all of this one's), by `code` if it has changed."""
        entries = self.journal if journal is None else journal
        return Play.of(code or self.workflow, [self.first, *entries], run_id=self.run_id)

    def prefixes(self, *, since: int = 0) -> Iterable[Play]:
        """A life for each prefix of this journal that has at least `since` entries."""
        for length in range(since, len(self.journal) + 1):
            yield self.again(self.journal[:length])

    def go_on_as(self, other: Play) -> Play:
        """What happened in `other` after the point that this one has reached happens here too."""
        for entry in other.journal[len(self.journal) :]:
            if not _is_made_by_the_machine(entry):
                self._deliver(entry)
        return self

    def retried(self, *, code: Workflow[..., Any] | None = None) -> Play:
        """The run, which has failed, after `run.retry()`: replayed by what counts of its journal, by `code` if new."""
        assert isinstance(self.machine.outcome, CodeRaised)
        error = described(self.machine.outcome.error, CODEC)
        journal = (self.first, *self.journal, Failed(self.now_ms, error))
        change = transitions.retry(a_run(status=Status.FAILED, length=len(journal)), journal, now_ms=self.now_ms)
        return Play.of(code or self.workflow, journal + change.entries, run_id=self.run_id)

    def resumed(self) -> Play:
        """The run, which was cancelled, after `run.resume()`."""
        assert self.is_cancelled
        journal = (self.first, *self.journal, Cancelled(self.now_ms))
        change = transitions.resume(a_run(status=Status.CANCELLED, length=len(journal)), journal, now_ms=self.now_ms)
        return Play.of(self.workflow, journal + change.entries, run_id=self.run_id)

    def anew(self) -> Play:
        """The next generation of a run that continues as new, as the engine begins it."""
        outcome = self.machine.outcome
        assert isinstance(outcome, CodeContinued), outcome
        generation = self.first.generation + 1 if isinstance(self.first, Continued) else 1
        first = Continued(
            self._now(),
            value_of(outcome.call.arguments),
            generation,
            original_input(self.first),
            self.machine.left.children(),
            self.machine.notes.attributes_now(),
        )
        return Play.of(self.workflow, [first, *self.machine.inbox.untaken()], run_id=self.run_id)

    def evict(self) -> None:
        if self in PLAYS:
            PLAYS.remove(self)
        self.machine.evict()

    def _deliver(self, entry: Entry) -> Play:
        self.machine.apply(entry, len(self.journal) + 1)
        self.journal += [entry, *self.machine.notes.take()]
        return self

    def _command(self, step: str) -> Command:
        assert step in self.machine.open, f"the code waits for {self.waits_for}, not for {step}"
        return self.machine.open[step]

    def _now(self) -> int:
        self.now_ms += 1
        return self.now_ms


def _is_made_by_the_machine(entry: Entry) -> bool:
    """Whether it is a note of what the code did, or could not do, rather than something that happened in the world."""
    if isinstance(entry, Late):
        return entry.step.startswith(UNDO)
    return isinstance(entry, Marked | Tagged | Closed | Patched | Ignored)


def workflow_of(fn: Callable[..., Any]) -> Workflow[..., Any]:
    """`fn` as a workflow of a pack of its own."""
    return Pack("shop").workflow(fn)


def value_of(value: object) -> Value:
    """A value as a journal holds it."""
    return Value(Raw(CODEC.encode(value, what="the value")))


def assert_same_from_every_prefix(whole: Play, *, since: int = 0) -> None:
    """Wherever the process dies, the next one goes on as if it had not."""
    outcome = whole.machine.outcome
    for life in whole.prefixes(since=since):
        life.go_on_as(whole)
        assert life.journal == whole.journal
        assert life.steps == whole.steps
        assert life.waits_for == whole.waits_for
        assert life.machine.waits() == whole.machine.waits()
        assert life.machine.outcome == outcome
