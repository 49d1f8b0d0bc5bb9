"""The paces at which tests let a Holdfast work."""

from __future__ import annotations

from holdfast.engine.pace import Pace

# Without safety polls: a wake-up that is not pushed is then no delay of seconds, but a test that hangs.
PUSHED_ONLY = Pace(wake_poll_seconds=3600.0, waiters_poll_seconds=3600.0, tasks_poll_seconds=3600.0)
