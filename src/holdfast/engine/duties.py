"""Attends to duties: each does a bounded bit of work per `tick` and says how long it may sleep."""

from __future__ import annotations

import asyncio
from typing import Protocol

from holdfast.engine.events import DutyFailed, Emit
from holdfast.errors import HoldfastError

TROUBLE_PAUSE_SECONDS = 0.5


class Duty(Protocol):
    """Something that has to be done now and then."""

    async def tick(self) -> float:
        """Do a bounded bit of work; answer the seconds until the next one."""
        ...


class Attendant:
    """Ticks one duty for ever; `nudge` makes the next tick come at once."""

    def __init__(self, duty: Duty, *, emit: Emit) -> None:
        self._duty = duty
        self._emit = emit
        self._nudged = asyncio.Event()

    def nudge(self) -> None:
        self._nudged.set()

    async def attend(self) -> None:
        while True:
            self._nudged.clear()
            try:
                delay = await self._duty.tick()
            except HoldfastError as error:
                self._emit(DutyFailed(type(self._duty).__name__.lower(), str(error)))
                delay = TROUBLE_PAUSE_SECONDS
            try:
                async with asyncio.timeout(delay):
                    await self._nudged.wait()
            except TimeoutError:
                continue
