"""Interrupts code of a workflow that does not come to an await: it would hold up every other run of the process.

What counts is the processor time of the thread, where the system tells it: on a machine that was paused, or that has
too much to do, code that comes to its awaits must not look like code that does not. Elsewhere it counts its own looks.
Code at the prompt of a debugger is left alone. A call into C that does not return cannot be interrupted;
then the lease is lost, and the takeovers are counted, see `kernel.takeovers`.
"""

from __future__ import annotations

import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from types import FrameType

from holdfast.engine.code.lines import line_of
from holdfast.engine.code.turns import HERE, ThreadTurn

LOOKS = 4
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")})


class Watchdog:
    """Watches the thread that makes it. One look every quarter of `seconds`; with 0 there is none."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._turn: ThreadTurn = HERE.turn
        self._stopped = threading.Event()

    def start(self) -> None:
        if self._seconds:
            threading.Thread(target=self._watch, name="holdfast-watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        turn, interval = self._turn, self._seconds / LOOKS
        used_seconds = _processor_time_of(turn.thread_id)
        seen, looks, since = 0, 0, used_seconds()
        while not self._stopped.wait(interval):
            steps = turn.steps
            if not turn.is_inside or steps != seen:
                seen, looks, since = steps, 0, used_seconds()
                continue
            looks += 1
            # The first look comes up to an interval late, so one interval less is asked for.
            if looks >= LOOKS and used_seconds() - since >= self._seconds - interval:
                looks, since = 0, used_seconds()
                frame = sys._current_frames().get(turn.thread_id)  # noqa: SLF001 - there is no other way
                if frame is not None and not _is_debugged(frame):
                    turn.interrupt(steps, _place(frame))


def _processor_time_of(thread_id: int) -> Callable[[], float]:
    """Tells how many seconds the thread has executed; where that cannot be told, how long it has been there."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    clock = time.pthread_getcpuclockid(thread_id)

    def used_seconds() -> float:
        return time.clock_gettime(clock)

    return used_seconds


def _is_debugged(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(("bdb", "pdb", "pydevd", "_pydevd")):
            return True
        frame = frame.f_back
    return False


def _place(frame: FrameType | None) -> str:
    """The innermost line that is the user's own, and not of Python's library."""
    innermost = frame
    while frame is not None:
        path = frame.f_code.co_filename
        if (line := line_of(frame)) and not path.startswith(_LIBRARIES):
            return line
        frame = frame.f_back
    return "" if innermost is None else f"{innermost.f_code.co_filename}:{innermost.f_lineno}"
