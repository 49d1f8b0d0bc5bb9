"""What the code of a run waits for: its open steps and timers, and which of them is due next.

open      steps that the code waits for, by id
timers    steps that are timers, by id
fresh     those asked for since the engine last looked
dropped   those that the code no longer waits for (a timeout, a lost race, a cancellation)
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any

from msgspec import Struct

from holdfast.engine.code.commands import Command
from holdfast.engine.code.loop import Timer
from holdfast.engine.code.shields import Shield
from holdfast.kernel.journal import Intent
from holdfast.kernel.replay import TIMER
from holdfast.kernel.times import Instant
from holdfast.kernel.waits import Wait


class Pending(Struct):
    """The open steps and timers of one run."""

    open: dict[str, Command] = {}
    timers: dict[str, Timer] = {}
    fresh: list[Command] = []
    dropped: list[Command] = []
    _due: list[tuple[Instant, int, str]] = []
    _dues_set: int = 0

    # -- steps

    def add(self, command: Command) -> None:
        self.open[command.step] = command
        self.fresh.append(command)

    def close(self, step: str) -> Command:
        """It has come to its end."""
        return self.open.pop(step)

    def drop(self, step: str) -> None:
        """The code does not wait for it any more."""
        command = self.open.pop(step, None)
        if command is not None:
            self.dropped.append(command)

    def drop_everything(self) -> None:
        for step in list(self.open):
            self.drop(step)
        for timer in list(self.timers.values()):
            self.cancel_timer(timer)

    def take_fresh(self) -> list[Command]:
        """The steps asked for since the last time, as far as the code still waits for them."""
        if not self.fresh:
            return []
        fresh, self.fresh = self.fresh, []
        return [command for command in fresh if command.step in self.open]

    def take_dropped(self) -> list[Command]:
        """The steps that the code has stopped waiting for since the last time."""
        dropped, self.dropped = self.dropped, []
        return dropped

    # -- what an entry must match, timers included

    def get(self, step: str) -> Intent | None:
        """What the code asks for under this id, if it waits for that."""
        command = self.open.get(step)
        if command is not None:
            return command.intent
        return TIMER if step in self.timers else None

    def items(self) -> Iterator[tuple[str, Intent]]:
        """All that the code waits for, by id."""
        yield from ((step, command.intent) for step, command in self.open.items())
        yield from ((step, TIMER) for step in self.timers)

    # -- timers and retries

    def set_timer(self, timer: Timer) -> None:
        self.timers[timer.step] = timer
        self._set_due(timer.due_at_ms, timer.step)

    def cancel_timer(self, timer: Timer) -> None:
        self.timers.pop(timer.step, None)

    def elapse(self, step: str) -> Timer:
        """The timer of this step, which has come due."""
        return self.timers.pop(step)

    def retry_at(self, step: str, due_at_ms: Instant) -> None:
        """The effect of this step is to be tried again."""
        self.open[step].retry_at_ms = due_at_ms
        self._set_due(due_at_ms, step)

    def _set_due(self, due_at_ms: Instant, step: str) -> None:
        self._dues_set += 1  # of two that are due together, the one that was asked for first comes first
        heappush(self._due, (due_at_ms, self._dues_set, step))

    @property
    def has_dues(self) -> bool:
        """Whether a timer or a retry may come due."""
        return bool(self._due)

    def next_due_at_ms(self) -> Instant | None:
        """When the first timer or retry is due."""
        while self._due:
            due_at_ms, _, step = self._due[0]
            timer, command = self.timers.get(step), self.open.get(step)
            if timer is not None or (command is not None and command.retry_at_ms == due_at_ms):
                return due_at_ms
            heappop(self._due)  # cancelled, dropped or done meanwhile
        return None

    def take_due(self, now_ms: Instant) -> Timer | Command | None:
        """The first timer that has elapsed, or effect that is to be tried again, by `now_ms`; each is returned once."""
        due_at_ms = self.next_due_at_ms()
        if due_at_ms is None or due_at_ms > now_ms:
            return None
        _, _, step = heappop(self._due)
        if step in self.timers:
            return self.timers[step]
        command = self.open[step]
        command.retry_at_ms = command.held = None
        return command

    def waits(self) -> list[Wait]:
        """What the code waits for, in words that are stored with a run that is let go."""
        waits = [Wait("timer", timer.step, timer.due_at_ms, timer.step) for timer in self.timers.values()]
        for command in self.open.values():
            if command.child_id:
                waits.append(Wait("child", command.child_id, step=command.step))
            elif command.held is not None:
                waits.append(command.held)
            elif command.retry_at_ms is not None:
                name, error = command.intent.name, command.last_error
                waits.append(Wait("retry", name, command.retry_at_ms, command.step, error=error))
        return waits


class StepFuture(asyncio.Future[Any]):
    """What the code awaits. Cancelling it says that the code does not wait for the step any more."""

    __slots__ = ("pending", "shield", "step")

    pending: Pending
    step: str
    shield: Shield | None  # of the code that waits: the step may be asked for in any task of the run

    def is_shielded(self) -> bool:
        return self.shield is not None and self.shield.holds

    def cancel(self, msg: Any | None = None) -> bool:
        cancelled = super().cancel(msg)
        if cancelled:
            self.pending.drop(self.step)
        return cancelled
