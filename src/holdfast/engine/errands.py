"""What is being done in the world for one run: effects, reconciliations, children. Each comes back as an arrival.

Rules
- An errand is begun only after the records it depends on are durable; whoever calls `begin` sees to that.
- No effect is begun on a lease that may be lost.
- A `once` effect that a process which has died since may have called is never called again: it is reconciled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.engine import events
from holdfast.engine.arrivals import Admitted, Arrival, Attempt, NotAdmitted, Reconciled, Watching
from holdfast.engine.desk import Desk
from holdfast.engine.heartbeats import AttemptScope, Heartbeats
from holdfast.engine.machine import Command
from holdfast.errors import InputMismatch, UnknownRun, UnknownWorkflow
from holdfast.kernel import retries
from holdfast.kernel.changes import Beat, Run, Watcher
from holdfast.pack import Effect


class Errands:
    """The errands of one run."""

    def __init__(self, desk: Desk, run: Run, beats: tuple[Beat, ...], arrive: Callable[[Arrival], None]) -> None:
        self.in_flight: dict[str, asyncio.Task[None]] = {}
        self._desk = desk
        self._run = run
        self._arrive = arrive
        self._heartbeats = Heartbeats(desk, run, beats)
        self._intended_here: set[str] = set()
        self._attempts: dict[str, AttemptScope] = {}

    def begin(self, command: Command) -> None:
        """Do what the code asked for, in a task of its own."""
        match command.intent.kind:
            case "effect":
                work = self._reconcile(command) if self.is_in_doubt(command) else self.attempt(command)
            case "join":
                work = self._watch(command)
            case "child" if command.child_id:
                work = self._watch(command)
            case _:
                work = self._admit(command)
        self.in_flight[command.step] = self._desk.loop.create_task(work)

    def drop(self, step: str) -> None:
        """Nobody waits for it any more."""
        if (scope := self._attempts.pop(step, None)) is not None:
            scope.dropped = True
        if (task := self.in_flight.pop(step, None)) is not None:
            task.cancel()

    def close(self) -> None:
        """The run is no longer here: drop everything, and whatever comes back all the same."""
        for step in (*self.in_flight, *self._attempts):
            self.drop(step)
        self._arrive = _nobody_waits

    def may_call(self, command: Command) -> None:
        """This very process has recorded the intent of a `once` effect, or knows that it never happened."""
        self._intended_here.add(command.step)

    def must_intend(self, command: Command) -> None:
        """The next attempt of a `once` effect needs an intent of its own."""
        self._intended_here.discard(command.step)

    def is_intended_here(self, command: Command) -> bool:
        return command.step in self._intended_here

    def is_in_doubt(self, command: Command) -> bool:
        """Whether a process that has died since may have called it."""
        return command.intended and command.step not in self._intended_here

    async def attempt(self, command: Command) -> None:
        """Perform one attempt of an effect."""
        effect = _effect_of(command)
        policy = self._desk.policy_of(effect)
        await self._desk.performer.turn(self._desk)
        scope = self._attempts[command.step] = AttemptScope(command, self._heartbeats)
        self._desk.emit(events.EffectBegan(self._run.id, command.step, scope.attempt))
        now_ms = self._desk.store.now_ms()
        limit_ms = retries.limit_ms(policy.retry, policy.timeout_ms, asked_ms=command.asked_ms, now_ms=now_ms)
        assert command.call is not None
        outcome = await self._desk.performer.attempt(effect, command.call.arguments, scope, limit_ms=limit_ms)
        self._attempts.pop(command.step, None)
        self._arrive(Attempt(command.step, outcome))

    async def _reconcile(self, command: Command) -> None:
        effect = _effect_of(command)
        policy = self._desk.policy_of(effect)
        assert policy.reconcile is not None
        outcome = await self._desk.performer.reconcile(effect, policy.reconcile, command.intent.key)
        self._arrive(Reconciled(command.step, outcome))

    def reconcile(self, command: Command) -> None:
        """Ask the world about an effect whose outcome is not known."""
        self.in_flight[command.step] = self._desk.loop.create_task(self._reconcile(command))

    async def _admit(self, command: Command) -> None:
        try:
            run = await self._desk.admit_child(self._run, command)
        except (InputMismatch, UnknownWorkflow) as error:
            self._arrive(NotAdmitted(command.step, error))
        else:
            self._arrive(Admitted(command.step, run))

    async def _watch(self, command: Command) -> None:
        if await self._desk.watch(command.child_id, Watcher(self._run.id, command.step)):
            self._arrive(Watching(command.step))
        else:
            self._arrive(NotAdmitted(command.step, UnknownRun(f"no run has the id {command.child_id}")))


def _nobody_waits(arrival: Arrival) -> None:
    del arrival


def _effect_of(command: Command) -> Effect[..., object]:
    assert command.call is not None
    effect = command.call.target
    assert isinstance(effect, Effect)
    return effect
