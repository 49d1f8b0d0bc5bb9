"""The trials, in a process that is stopped when it is about to enter its first sync effect.

Its thread has the effect in hand and has not entered it yet. That is a moment of microseconds, which no signal from
outside would hit.
"""

from __future__ import annotations

import os
import signal
import threading
import time

from holdfast.engine.threads import Job
from tests.faults import ledger
from tests.faults.trials import reconciled_trial as trial

__all__ = ["trial"]
HESITATING = "tests.faults.hesitating:trial"
STOPPED_SECONDS = 0.5  # it stays stopped for longer than its lease

_take = Job.take
_stopped = threading.Lock()


def _take_and_stop(job: Job) -> bool:
    taken = _take(job)
    if taken and threading.current_thread().name.startswith("holdfast-effect") and _stopped.acquire(blocking=False):
        ledger.here().write(reached="entry")
        before = time.monotonic()
        os.kill(os.getpid(), signal.SIGSTOP)
        while (now := time.monotonic()) - before < STOPPED_SECONDS:  # the signal may reach another thread first
            before = now
    return taken


Job.take = _take_and_stop
