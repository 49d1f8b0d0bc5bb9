"""How much a world may compute, and how proving is stopped: worlds are lived in one go, with no loop in between.

    what happens                      what is done
    ────────────────────────────────  ──────────────────────────────────────────────────────────────────────────
    a world computes for too long     it is interrupted; `WorldOverran` says at which line
    worlds never come to rest         `WorldOverran`, as soon as they have used as much processor time together
    SIGINT in a world                 it is interrupted, and `ProvingStopped` raised
    SIGINT between two worlds         `ProvingStopped` is raised before the next one

Code that is interrupted may go on all the same, with `except BaseException`. Then it is interrupted again, and if it
still goes on, every 100 microseconds: soon it is met where it is on its way back into its `try`.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import sysconfig
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from types import FrameType
from typing import Any, Protocol

import holdfast
from holdfast.prove.schedules import Schedule
from holdfast.prove.worlds.outcomes import WorldOutcome

SECONDS_MAX = 10.0  # of the processor, for one world; most take some hundredths
AGAIN_SECONDS = 0.25
PATIENCE = 4  # interruptions, before they come fast
HURRY_SECONDS = 0.0001
CLOSES_MAX = 100  # each interrupted one has ended a coroutine more
_IGNORED: deque[Any] = deque(maxlen=0)  # its `append` is no Python: no interruption comes in it
_FOREIGN = (
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    str(Path(signal.__file__).resolve().parent),
    str(PurePath(holdfast.__file__).parent),
    "<",
)


class WorldOverran(Exception):
    """A world has computed for too long, or worlds do not come to rest."""

    def __init__(self, words: str, schedule: Schedule) -> None:
        super().__init__(words)
        self.words = words
        self.schedule = schedule


class ProvingStopped(Exception):
    """It was interrupted by SIGINT."""


class _Cut(KeyboardInterrupt):
    """Raised into a world that is interrupted. Loops pass on a `KeyboardInterrupt`, and nothing else that is raised."""


class LivesWorlds(Protocol):
    """A world, as far as limits need it."""

    def live(self) -> WorldOutcome: ...
    def close(self) -> None: ...


class WorldLimits:
    """Lives worlds, in the main thread, as long as their limits allow it."""

    def __init__(self, seconds_max: float = SECONDS_MAX) -> None:
        self._seconds_max = seconds_max
        self._is_inside = False
        self._is_stopped = False
        self._cuts = 0
        self._line = ""
        self._alarm: tuple[Any, tuple[float, float]] | None = None  # what SIGALRM is for otherwise
        self._restless_seconds = 0.0  # of the processor, in worlds that were given up

    def begin_case(self) -> None:
        """What worlds of other cases have used does not count from now on."""
        self._restless_seconds = 0.0

    @contextmanager
    def in_force(self) -> Generator[None]:
        """Until the end of the block, interruptions are handled here. Nothing is limited outside of the main thread."""
        if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
            yield
            return
        before = [(number, signal.signal(number, handler)) for number, handler in self._handlers()]
        try:
            self._is_stopped = self._is_stopped or _is_task_cancelled()
            self.check()
            yield
            self.check()
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    def check(self) -> None:
        """Raises `ProvingStopped` if SIGINT has come."""
        if self._is_stopped:
            raise ProvingStopped

    def live(self, world: LivesWorlds, schedule: Schedule) -> WorldOutcome:
        """Live a world from beginning to end. Raises `WorldOverran` or `ProvingStopped`."""
        self.check()
        began = time.process_time()
        outcome: list[WorldOutcome] = []
        is_cut = self._guarded(lambda: outcome.append(world.live()), self._seconds_max)
        line = self._line
        for _ in range(CLOSES_MAX if is_cut else 0):
            if not self._guarded(world.close, AGAIN_SECONDS):
                break
        self.check()
        where = f" ({line})" if line else ""
        if is_cut or not outcome:
            raise WorldOverran(
                f"it computes for too long: more than {self._seconds_max:g} s of the processor in one world{where}",
                schedule,
            )
        if not outcome[0].is_over:
            self._restless_seconds += time.process_time() - began
            if self._restless_seconds > self._seconds_max:
                raise WorldOverran("it never comes to rest: it is always busy", schedule)
        return outcome[0]

    def _guarded(self, work: Callable[[], object], seconds: float) -> bool:
        """Whether the work was interrupted."""
        self._cuts, self._line = 0, ""
        hook = sys.unraisablehook
        try:
            self._is_inside = True
            _set_timer(seconds)
            work()
        except _Cut:
            self._is_inside = False
        finally:
            self._is_inside = False
            _set_timer(0.0)
            self._stop_hurry()
            sys.unraisablehook = hook
        return self._cuts > 0

    def _stop_hurry(self) -> None:
        """Give the alarm back to what had it."""
        if self._alarm is not None:
            (handler, timer), self._alarm = self._alarm, None
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, *timer)

    def _handlers(self) -> list[tuple[signal.Signals, Any]]:
        return [(signal.SIGINT, self._on_interrupt), (signal.SIGVTALRM, self._on_timer)]

    def _on_interrupt(self, _: int, frame: FrameType | None) -> None:
        self._is_stopped = True
        if self._is_inside:
            _set_timer(AGAIN_SECONDS)
            self._cut(frame)

    def _on_timer(self, _: int, frame: FrameType | None) -> None:
        if self._is_inside:
            self._cut(frame)

    def _cut(self, frame: FrameType | None) -> None:
        self._cuts += 1
        sys.unraisablehook = _IGNORED.append  # it may come where a coroutine is collected, which cannot pass it on
        self._line = self._line or _place(frame)
        if self._cuts == PATIENCE:
            self._alarm = signal.signal(signal.SIGALRM, self._on_timer), signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.setitimer(signal.ITIMER_REAL, HURRY_SECONDS, HURRY_SECONDS)
        raise _Cut


def _is_task_cancelled() -> bool:
    """Whether SIGINT has come before: then asyncio cancels the task, which learns of it when it next waits."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs
        return False
    return task is not None and task.cancelling() > 0


def _set_timer(seconds: float) -> None:
    with suppress(AttributeError):
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds, AGAIN_SECONDS if seconds else 0.0)


def _place(frame: FrameType | None) -> str:
    """The innermost line that is the user's own."""
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(_FOREIGN):
            return f"{PurePath(path).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
