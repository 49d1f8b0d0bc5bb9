"""Attends to duties: each does a bounded bit of work per `tick` and says how long it may sleep.

A duty that one process does for all is ticked only where it is led, see `leaders`. Its first tick comes with the
election, the next ones at the duty's own pace: how long a lease lasts or when it is renewed does not matter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from holdfast.engine.alarms import Alarm
from holdfast.engine.pace import Pace
from holdfast.errors import HoldfastError
from holdfast.events import DutyFailed, Emit


class Duty(Protocol):
    """Something that has to be done now and then."""

    async def tick(self) -> float:
        """Do a bounded bit of work; returns the seconds until the next one."""
        ...


def name_of(duty: Duty) -> str:
    """What a duty is called in leases, logs and metrics."""
    return type(duty).__name__.lower()


class Periodic:
    """Ticks one duty forever; `nudge` makes the next tick come at once. `allowed` returns when it may be ticked."""

    def __init__(
        self, duty: Duty, *, emit: Emit, pace: Pace, allowed: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._duty = duty
        self._emit = emit
        self._pace = pace
        self._allowed = allowed
        self._nudged = Alarm()

    def nudge(self) -> None:
        self._nudged.set()

    async def attend(self) -> None:
        while True:
            if self._allowed is not None:
                await self._allowed()
            self._nudged.clear()
            try:
                delay = await self._duty.tick()
            except HoldfastError as error:
                self._emit(DutyFailed(name_of(self._duty), str(error)))
                delay = self._pace.duty_trouble_pause_seconds
            await self._nudged.wait(delay)
