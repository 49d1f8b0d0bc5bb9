"""Time, as a machine tells it. Only the store turns it into the instants that decide anything."""

from __future__ import annotations

from typing import Protocol

from holdfast.kernel.times import Instant, Steady


class Clock(Protocol):
    """A machine's clocks."""

    def wall_ms(self) -> Instant:
        """Milliseconds since 1970 by the wall clock, which people and NTP may move."""
        ...

    def steady_ms(self) -> Steady:
        """Milliseconds since the machine started, suspended time included. Nothing moves it."""
        ...

    def boot_id(self) -> str:
        """Names this start of the machine: steady instants compare only within one."""
        ...

    async def pause(self, seconds: float) -> None:
        """Wait that long."""
        ...
