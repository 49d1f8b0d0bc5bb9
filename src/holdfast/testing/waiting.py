"""Waiting for what no event tells: on a condition, with a deadline, and never for a fixed time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from holdfast.adapters.machine import SystemClock

T = TypeVar("T")
# A deadline only bounds how long a failing test takes. So it is generous: a busy machine is no failure.
PATIENCE_SECONDS = 30.0
LOOK_SECONDS = 0.005


async def eventually(
    condition: Callable[[], Awaitable[T] | T], *, within: float = PATIENCE_SECONDS, what: str = "the condition"
) -> T:
    """Return the first true value of `condition`, which may be async.

    Raises `TimeoutError`, which names `what` was waited for, if there is none `within` that many seconds. Where an
    event tells what happened, wait on that instead: `EventRecorder.until`.
    """
    clock = SystemClock()
    try:
        async with asyncio.timeout(within):
            while True:
                found = condition()
                value = await found if inspect.isawaitable(found) else cast("T", found)
                if value:
                    return value
                await clock.pause(LOOK_SECONDS)
    except TimeoutError as error:
        raise TimeoutError(f"waited {within:g} s for {what}") from error
