"""Requests that wait: long polls and streams. So many may wait at once, and none holds up the closing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

from holdfast.errors import TooBusy

T = TypeVar("T")
GRACE_SECONDS = 0.5  # most work is done within this time, and needs no task that listens for a caller who hangs up


class Slot:
    """The right of one request to wait, for the length of a `with`."""

    __slots__ = ("_wait_limit",)

    def __init__(self, wait_limit: WaitLimit) -> None:
        self._wait_limit = wait_limit

    def __enter__(self) -> None:
        if self._wait_limit.taken >= self._wait_limit.slots:
            raise TooBusy(f"{self._wait_limit.taken} requests wait here already")
        self._wait_limit.taken += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait_limit.taken -= 1


class WaitLimit:
    """How many requests may wait at once; and when the gateway closes, none does."""

    def __init__(self, slots: int) -> None:
        self.closing = asyncio.Event()
        self.slots = slots
        self.taken = 0

    def slot(self) -> Slot:
        """A slot to wait in. Entering it raises `TooBusy` if all are taken."""
        return Slot(self)

    async def first_of(
        self,
        work: Coroutine[Any, Any, T],
        *,
        seconds: float,
        gone: Callable[[], Coroutine[Any, Any, None]],
        grace_seconds: float = GRACE_SECONDS,
    ) -> asyncio.Task[T] | None:
        """The task of `work` once it is done; None if the time is up, the caller `gone`, or the gateway closing.

        Only after `grace_seconds` is it worth two more tasks to notice that the caller has hung up. A request that has
        waited so long already passes 0.
        """
        working = asyncio.create_task(work)
        try:
            grace = 0.0 if self.closing.is_set() else min(grace_seconds, seconds)
            await asyncio.wait([working], timeout=grace)
            if not working.done():
                await self._longer(working, seconds=seconds - grace, gone=gone)
            return working if working.done() else None
        finally:
            if not working.done():
                await _cancel(working)

    async def _longer(
        self, working: asyncio.Task[Any], *, seconds: float, gone: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        others = [asyncio.create_task(self.closing.wait()), asyncio.create_task(gone())]
        try:
            await asyncio.wait([working, *others], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel(*others)

    def close(self) -> None:
        """Let no request wait any longer: those that do get a response as things are."""
        self.closing.set()


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
