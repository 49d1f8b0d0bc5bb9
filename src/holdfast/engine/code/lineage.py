"""Which task of a run is being executed: carried by the context of each task, so that steps are numbered per task."""

from __future__ import annotations

import contextvars
from typing import NoReturn

from holdfast.errors import UsageError
from holdfast.kernel.replay import TaskLineage


class _Nowhere(TaskLineage):
    """The lineage of code that runs outside the activations of its run: it has no steps and makes no tasks."""

    def child(self) -> NoReturn:
        raise outside_of_its_run()

    def step(self, name: str) -> NoReturn:
        del name
        raise outside_of_its_run()


def outside_of_its_run() -> UsageError:
    return UsageError(
        "code of a workflow was executed outside of its run, as by the garbage collector",
        hint="Leave generators in order: `async with contextlib.aclosing(...)`, or read them to their end.",
    )


_NOWHERE = _Nowhere()
LINEAGE: contextvars.ContextVar[TaskLineage] = contextvars.ContextVar("holdfast_lineage", default=_NOWHERE)
