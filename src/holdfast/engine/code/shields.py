"""Shields: blocks of a workflow in which a cancellation does not reach it, for a bounded time.

Rules
- The time counts from the cancellation, or from the start of the block if that is later. When it is over the block is
  cancelled like everything else.
- A cancellation of the run that comes while the block lasts is owed to it, also if it is passed on (by gather, a
  TaskGroup, an awaited task), and delivered when the outermost block has ended, at the next wait. Code that returns
  first has completed.
- Cancellations that come from within the block (a timeout inside it) are none of its business.
"""

from __future__ import annotations

import asyncio
import contextvars
from types import TracebackType

from msgspec import Struct

from holdfast.engine.code.loop import WorkflowLoop
from holdfast.engine.code.tasks import WorkflowTask
from holdfast.kernel.times import Millis

SHIELD: contextvars.ContextVar[Shield | None] = contextvars.ContextVar("holdfast_shield", default=None)


class Shield:
    """One block."""

    def __init__(self, loop: WorkflowLoop, limit_ms: Millis, shields: Shields) -> None:
        self.holds = False
        self._loop = loop
        self._limit_ms = limit_ms
        self._shields = shields
        self._task: WorkflowTask | None = None
        self._token: contextvars.Token[Shield | None] | None = None
        self._context: contextvars.Context | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._owes_a_cancellation = False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert isinstance(task, WorkflowTask)
        self._task = task
        if self._shields.cancelling:
            while task.cancelling():  # since 3.13 a TaskGroup that fails cancels its task again if it looks cancelled
                task.uncancel()
        self._token = SHIELD.set(self)
        # A copy, in which the timer can be set whether or not the task is running: it shares the task's lineage.
        self._context = contextvars.copy_context()
        self.holds = True
        self._shields.entered(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.holds = False
        self._shields.left(self)
        if self._timer is not None:
            self._timer.cancel()
        assert self._token is not None
        SHIELD.reset(self._token)
        if self._owes_a_cancellation and error is None:
            # Soon, not now: code that has nothing more to wait for may return what it has done.
            self._loop.call_soon(self._cancel_task)

    @property
    def withholds(self) -> bool:
        """Whether the run is being cancelled, and the block is not."""
        return self.holds and self._shields.cancelling

    def owe(self, task: WorkflowTask) -> None:
        """A cancellation of this task was withheld."""
        if task is self._task:
            self._owes_a_cancellation = True

    def cancelled(self, *, before: bool) -> None:
        """The run is being cancelled; `before` says that it was already when the block began."""
        assert self._context is not None
        self._owes_a_cancellation = not before
        when = self._loop.time() + self._limit_ms / 1000
        self._timer = self._context.run(self._loop.call_at, when, self._expire)

    def _expire(self) -> None:
        self.holds = False
        self._owes_a_cancellation = False
        self._cancel_task()

    def _cancel_task(self) -> None:
        assert self._task is not None
        if not holds_for(self._task):  # another block still holds: the next wait after it is refused
            self._task.cancel()


class _ForEver(Shield):
    """What the engine itself does in the loop of a cancelled run is not cancelled."""

    def __init__(self) -> None:  # pyright: ignore[reportMissingSuperCall] - it is never entered
        self.holds = True

    @property
    def withholds(self) -> bool:
        return True

    def owe(self, task: WorkflowTask) -> None:
        del task


_FOR_EVER = _ForEver()


def shield_for_ever(task: WorkflowTask) -> None:
    """No cancellation of the code reaches this task."""
    task.context.run(SHIELD.set, _FOR_EVER)


class Shields(Struct):
    """The blocks that the code is in at this moment."""

    cancelling: bool = False
    _held: list[Shield] = []

    def entered(self, shield: Shield) -> None:
        self._held.append(shield)
        if self.cancelling:
            shield.cancelled(before=True)

    def left(self, shield: Shield) -> None:
        self._held.remove(shield)

    def any_holds(self) -> bool:
        return any(shield.holds for shield in self._held)

    def cancel(self) -> None:
        """The run is being cancelled: the time of every block begins."""
        self.cancelling = True
        for shield in self._held:
            shield.cancelled(before=False)


def holds_here() -> bool:
    """Whether the code that is running is in a shield."""
    shield = SHIELD.get()
    return shield is not None and shield.holds


def holds_for(task: WorkflowTask) -> bool:
    """Whether this task is in a shield, or was created in one."""
    shield = task.context.get(SHIELD)
    return shield is not None and shield.holds


def withholds(task: WorkflowTask) -> bool:
    """Whether a cancellation from outside its shield is kept from this task; it is owed to it then."""
    shield = task.context.get(SHIELD)
    if shield is None or not shield.withholds or shield is SHIELD.get():
        return False
    shield.owe(task)
    return True
