"""Drives a Machine without store, clock or tasks: the test decides what is delivered, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Raw

from holdfast.adapters.payloads import JsonCodec
from holdfast.engine.failures import described
from holdfast.engine.machine import CodeRaised, CodeReturned, Command, Machine
from holdfast.kernel.journal import Attempted, Elapsed, Entry, GaveUp, Joined, Performed, Spawned, Value
from holdfast.pack import Pack, Workflow
from holdfast.workflow import Current
from tests.builders import NOW_MS

CODEC = JsonCodec()


class Play:
    """One machine and the journal that it has been given so far. Time moves by a millisecond per entry."""

    def __init__(self, workflow: Workflow[..., Any], *args: Any, run_id: str = "run-1", **kwargs: Any) -> None:
        self.workflow = workflow
        self.arguments = workflow.signature.bind(args, kwargs)
        self.run_id = run_id
        self.journal: list[Entry] = []
        self.begun: list[Command] = []
        self.now_ms = NOW_MS
        self.machine = Machine(workflow, Current(run_id, "key-1", workflow.name), codec=CODEC, blobs={})
        self.machine.start(CODEC.encode(self.arguments, what="the input"), at_ms=NOW_MS)
        self._begin()

    # -- what the world does

    def perform(self, step: str, value: object = None) -> Play:
        """The effect of this step returned."""
        return self._deliver(Performed(self._now(), step, self._command(step).intent, 1, _value(value)))

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
        due_ms = self.machine.timers[step].due_ms
        self.now_ms = max(self.now_ms, due_ms)
        return self._deliver(Elapsed(self._now(), step, due_ms))

    def spawned(self, step: str, run_id: str) -> Play:
        """The child of this step was admitted."""
        return self._deliver(Spawned(self._now(), step, self._command(step).intent, run_id))

    def joined(self, step: str, value: object = None, *, error: Exception | None = None) -> Play:
        """The child of this step ended."""
        run_id = self._command(step).child_id
        if error is not None:
            return self._deliver(Joined(self._now(), step, run_id, error=described(error, CODEC)))
        return self._deliver(Joined(self._now(), step, run_id, _value(value)))

    # -- what the code does

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
        assert isinstance(outcome, CodeReturned), f"the code waits for {self.waits_for}"
        return outcome.value

    def again(self, journal: Iterable[Entry] | None = None, *, code: Workflow[..., Any] | None = None) -> Play:
        """Another machine, in another life: replays `journal` (all of this one's), by `code` if it has changed."""
        play = Play(code or self.workflow, run_id=self.run_id, **self.arguments)
        for entry in self.journal if journal is None else journal:
            play._deliver(entry)
        return play

    def evict(self) -> None:
        self.machine.evict()

    def _deliver(self, entry: Entry) -> Play:
        self.machine.apply(entry, len(self.journal) + 1)
        self.journal.append(entry)
        self._begin()
        return self

    def _begin(self) -> None:
        self.begun += self.machine.take_fresh()

    def _command(self, step: str) -> Command:
        assert step in self.machine.open, f"the code waits for {self.waits_for}, not for {step}"
        return self.machine.open[step]

    def _now(self) -> int:
        self.now_ms += 1
        return self.now_ms


def workflow_of(fn: Callable[..., Any]) -> Workflow[..., Any]:
    """`fn` as a workflow of a pack of its own."""
    return Pack("shop").workflow(fn)


def _value(value: object) -> Value:
    return Value(Raw(CODEC.encode(value, what="the value")))
