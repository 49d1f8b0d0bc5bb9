"""How far a campaign has come: a bar on a terminal, a line now and then where stderr goes anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

WIDTH = 30
BAR_SECONDS = 0.2  # between two looks of the bar
LINE_SECONDS = 10.0  # between two lines


class Progress:
    """Tells of seeds that are done, their rate, and how long the rest still takes."""

    def __init__(self, of: int, *, to: TextIO | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._of = of
        self._to = sys.stderr if to is None else to
        self._is_bar = self._to.isatty()
        self._now = now
        self._began = now()
        self._next = self._began + (0.0 if self._is_bar else LINE_SECONDS)

    def show(self, seeds: int, wrong: int) -> None:
        """So many seeds are done, and so many of them wrong."""
        now = self._now()
        if now >= self._next or (self._is_bar and seeds == self._of):
            self._next = now + (BAR_SECONDS if self._is_bar else LINE_SECONDS)
            self._write(self._line(seeds, wrong, now - self._began))

    def end(self) -> None:
        if self._is_bar:
            self._to.write("\n")

    def _write(self, line: str) -> None:
        self._to.write(f"\r{line}\x1b[K" if self._is_bar else f"{line}\n")
        self._to.flush()

    def _line(self, seeds: int, wrong: int, seconds: float) -> str:
        rate = seeds / max(seconds, 1e-9)
        left = _duration((self._of - seeds) / rate) if seeds else "unknown"
        done = round(WIDTH * seeds / max(self._of, 1))
        bar = f"[{'#' * done}{'.' * (WIDTH - done)}] " if self._is_bar else ""
        return f"{bar}{seeds:,} of {self._of:,} seeds, {rate:.1f}/s, {left} left, {wrong} wrong"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
