"""What Holdfast warns of: Python warnings, so that `-W`, `warnings.filterwarnings` and pytest treat them as others.

    HoldfastWarning
    ├── CallNeverAwaited      a workflow called an effect or a workflow, and did not await it
    ├── HookNotOpen           a signal was sent to a hook that the run does not wait for, while it waits for others
    └── NoWorker              a result is awaited of a run that no live worker executes

A warning that a filter turns into an error is raised where the caller can see it. `CallNeverAwaited` comes from a
worker: there it blocks the run, as `Holdfast(strict=True)` does.
"""

from __future__ import annotations

__all__ = [
    "CallNeverAwaited",
    "HoldfastWarning",
    "HookNotOpen",
    "NoWorker",
]


class HoldfastWarning(UserWarning):
    """The root: a filter for it holds for everything that Holdfast warns of."""


class CallNeverAwaited(HoldfastWarning, RuntimeWarning):
    """A workflow called an effect or a workflow, and did not await it: nothing was performed."""


class HookNotOpen(HoldfastWarning):
    """A signal was sent to a hook that the run does not wait for, while it waits for others: perhaps misspelt."""


class NoWorker(HoldfastWarning):
    """The result of a run is awaited, and no live worker executes its workflow."""
