"""The tie between a supervisor and one of its processes: a pair of sockets, one end in each.

The process says over it that it is ready. The supervisor says nothing: that its end is closed tells the process that
the supervisor is gone, in whatever way, and the process stops. The system closes it even after SIGKILL. The kernel's
own means (PR_SET_PDEATHSIG) is bound to the thread that has started a child, and exists on Linux only.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from threading import Event, Thread
from typing import NamedTuple

from holdfast.kernel.supervision import SupervisionPolicy

VARIABLE = "_HOLDFAST_SUPERVISED"
READY = b"ready\n"
GRACE_SECONDS = SupervisionPolicy().grace_ms / 1000


class Lifeline(NamedTuple):
    """What a supervisor gives to a process that it starts: an end of the tie, and the sockets that it is to serve."""

    end: socket.socket
    sockets: tuple[socket.socket, ...]
    cut: Event  # set when the supervisor is gone

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What the process is to inherit."""
        return tuple(each.fileno() for each in (self.end, *self.sockets))

    @property
    def variable(self) -> dict[str, str]:
        """What tells the process about it."""
        return {VARIABLE: " ".join(map(str, self.descriptors))}

    def say_ready(self, url: str | None = None) -> None:  # noqa: ARG002 - the supervisor knows it
        """Tell the supervisor that this process is ready."""
        self.end.sendall(READY)


def inherited(*, grace_seconds: float = GRACE_SECONDS) -> Lifeline | None:
    """The lifeline to the supervisor of this process, which will not outlive it; None if this process has none.

    To be asked once, before code of the user is loaded.
    """
    words = os.environ.pop(VARIABLE, "")  # a process that an effect starts is not supervised ...
    if not words:
        return None
    end, *sockets = (socket.socket(fileno=int(word)) for word in words.split())
    for each in (end, *sockets):
        each.set_inheritable(False)  # ... and does not keep the port
    lifeline = Lifeline(end, tuple(sockets), Event())
    # A thread, since code of the user may hold up the event loop.
    Thread(target=_end_with, args=(lifeline, grace_seconds), name="lifeline", daemon=True).start()
    return lifeline


def _end_with(lifeline: Lifeline, grace_seconds: float) -> None:
    """Wait until the supervisor is gone, then stop this process: in order, or by force if that takes too long."""
    try:
        while lifeline.end.recv(64):
            pass
    except OSError:
        pass  # reset, which is an end as well
    lifeline.cut.set()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_seconds)
    os.kill(os.getpid(), signal.SIGKILL)
