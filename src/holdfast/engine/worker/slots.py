"""The slots of a worker: how many runs are at work at a time.

A run that only waits has no slot. One that goes on takes a slot even if none is free, because it has come too far to be
sent away; until as many have ended, nothing else is begun.
"""

from __future__ import annotations

from collections.abc import Callable


class Slots:
    """Counts the runs at work against a limit."""

    def __init__(self, limit: int, *, on_room: Callable[[], None]) -> None:
        self.taken = 0
        self.is_closed = False  # whether nothing more is begun: the worker stops
        self._limit = limit
        self._on_room = on_room

    @property
    def free(self) -> int:
        """How many runs may be begun now."""
        return 0 if self.is_closed else max(0, self._limit - self.taken)

    @property
    def has_room(self) -> bool:
        """Whether a run may be begun now."""
        return not self.is_closed and self.taken < self._limit

    def busy(self) -> None:
        """One more run is at work."""
        self.taken += 1

    def quiet(self) -> None:
        """A run has ended, or only waits from now on."""
        was_full = self.taken >= self._limit
        self.taken -= 1
        # Only then may a run have been left for lack of room.
        if was_full:
            self._on_room()

    def close(self) -> None:
        """Begin nothing more."""
        self.is_closed = True
