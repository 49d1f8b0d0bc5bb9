"""Tasks, futures and handles of a workflow's event loop: as asyncio's, but the same in every life of a run.

A task or a future hashes by its place in the run and not by its memory address, so that sets of them are iterated alike
on every replay.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

from msgspec import Struct


class WorkflowTask(asyncio.Task[Any]):
    """A task that hashes by its place in the run: sets of tasks (`asyncio.wait`) are iterated alike on replay."""

    # Given to it when it has been made. While it is being made, asyncio puts it into a set with the tasks of all other
    # runs; there it must not hash like the n-th task of each of them.
    order: int | None = None
    withholds: Callable[[WorkflowTask], bool]  # whether a cancellation is kept from the task
    context: contextvars.Context

    def cancel(self, msg: Any | None = None) -> bool:
        return True if self.withholds(self) else super().cancel(msg)

    def __hash__(self) -> int:
        return object.__hash__(self) if self.order is None else self.order


class WorkflowFuture(asyncio.Future[Any]):
    """A future that hashes by its place in the run, as `WorkflowTask` does."""

    def __init__(self, order: int, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._order = order

    def __hash__(self) -> int:
        return self._order


class Handle(Struct):
    """asyncio.Handle, without what only debugging needs: this is the innermost loop of every workflow."""

    _callback: Callable[..., Any]
    _args: tuple[Any, ...]
    _context: contextvars.Context
    _cancelled: bool = False

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled
