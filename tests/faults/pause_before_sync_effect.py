"""Workflows in a process that pauses when it is about to enter its first sync effect, until a flag is raised.

Its thread has the effect in hand and has not entered it yet. That is a moment of microseconds, which no signal from
outside would hit.
"""

from __future__ import annotations

import threading
from typing import Any

from holdfast.engine.runs.threads import Job
from holdfast.pack import Pack
from tests.faults import ledger
from tests.faults.workflows_held_by_flags import flag, reconciled_trial

PAUSING = "tests.faults.pause_before_sync_effect:trial"
ENTER = "enter"

_take = Job.take
_paused = threading.Lock()


def _take_and_pause(job: Job) -> bool:
    taken = _take(job)
    if taken and threading.current_thread().name.startswith("holdfast-effect") and _paused.acquire(blocking=False):
        ledger.here().write(reached="entry")
        while not flag(ENTER).exists():
            pass  # without a pause: when the process goes on, this thread is among the first to
    return taken


def __getattr__(name: str) -> Pack:
    """The process that loads the pack is the one that pauses; a test that knows its name does not."""
    if name != "trial":
        raise AttributeError(name)
    pausing: Any = Job
    pausing.take = _take_and_pause
    return reconciled_trial
