"""Which thread executes code of a workflow at this moment, so that code which never returns can be interrupted.

The thread that executes counts each callback of a workflow's loop in its `ThreadTurn`; a watchdog in another thread
looks at the count now and then. An exception for another thread comes whenever that thread gets to it, perhaps when it
has left the code. So the two shake hands:

    the watchdog, with the lock                         the thread, when it leaves the code
    ─────────────────────────────────────────────────   ───────────────────────────────────────────────────────
    1. says that it is about to interrupt               1. says that it is outside
    2. looks whether the thread is still inside         2. looks whether an interruption may be on its way, and if so
    3. interrupts                                          takes the lock, and waits for it

Whichever comes first, nothing arrives behind the second line on the right. To be sure that something comes, the thread
interrupts itself: of two, one is left. It must not take an interruption back instead. Python would believe from then on
that one is to come, and look for it after every call; with a debugger or a coverage tool it would do nothing else.
"""

from __future__ import annotations

import threading


class HeldUp(BaseException):
    """Raised into code that keeps its process from everything else."""


class ThreadTurn:
    """What one thread executes."""

    def __init__(self) -> None:
        self.thread_id = threading.get_ident()
        self.steps = 0  # callbacks of workflows that this thread has begun
        self.is_inside = False  # whether it is in one
        self.is_firing = False
        self._line = ""  # at which it was interrupted
        self._lock = threading.Lock()

    def interrupt(self, steps: int, line: str) -> None:
        """Interrupt the code, from another thread, if it still is at this callback."""
        with self._lock:
            self._line = ""
            self.is_firing = True
            if self.is_inside and self.steps == steps:
                self._line = line
                _raise_in(self.thread_id, HeldUp)

    def settle(self) -> str:
        """Let an interruption come that is on its way; the line, if there was one. Called by the thread itself."""
        is_last = False
        while True:
            try:
                with self._lock:
                    self.is_firing = False
                    is_last = (
                        True  # the watchdog is not in the middle of an interruption, and begins none: this is outside
                    )
                    _raise_in(self.thread_id, HeldUp)
                while True:
                    pass  # it comes here at the latest
            except HeldUp:
                if is_last:
                    return self._line


class _Here(threading.local):
    """The turn of this thread."""

    def __init__(self) -> None:
        self.turn = ThreadTurn()


def _raise_in(thread_id: int, error: type[BaseException]) -> None:
    """Have the thread raise this when it gets to it, and nothing else that it has not got to."""
    import ctypes  # noqa: PLC0415 - few processes ever need it, and each would take longer to start

    interrupt = ctypes.pythonapi.PyThreadState_SetAsyncExc
    interrupt.argtypes = (ctypes.c_ulong, ctypes.py_object)
    interrupt(thread_id, error)


HERE = _Here()
