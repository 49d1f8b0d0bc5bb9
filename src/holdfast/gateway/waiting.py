"""Requests that wait for a run: how long, and what for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct

from holdfast.client import Run
from holdfast.errors import TimedOut
from holdfast.gateway.endpoints import Asked, Settings
from holdfast.gateway.problems import Malformed
from holdfast.gateway.wait_limit import AT_ONCE_SECONDS
from holdfast.kernel.units import milliseconds

T = TypeVar("T")

Wait = Annotated[
    str,
    Meta(
        description="How long the answer may wait for the end of the run: 30s, 1500ms, or a number of seconds.",
        pattern=r"^[0-9]{1,9}(\.[0-9]{1,9})?( ?(ms|s|m))?$",
        examples=["30s"],
    ),
]


class WaitQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """For requests that may wait."""

    wait: Wait | None = None


def seconds_of(wait: str | None, settings: Settings, *, otherwise: float = 0.0) -> float:
    """How long to wait. Raises `Malformed` if that is longer than this gateway lets anybody wait."""
    if wait is None:
        return otherwise
    seconds = milliseconds(float(wait) if wait[-1].isdigit() else wait) / 1000
    if seconds > settings.wait_seconds_max:
        raise Malformed(
            f"wait={wait} is too long",
            hint=f"Wait {settings.wait_seconds_max:g} s at most, and ask again: nothing is lost between.",
        )
    return seconds


def place(asked: Asked[Any, Any], seconds: float) -> AbstractContextManager[None]:
    """A place to wait for so long, if it takes one. Raises `TooBusy`, so take it before anything is done."""
    return asked.house.lobby.place() if seconds else nullcontext()


async def within(asked: Asked[Any, Any], seconds: float, work: Coroutine[Any, Any, T]) -> asyncio.Task[T] | None:
    """The task of `work` if it is done in time, and as long as the caller and the gateway are there."""
    return await asked.house.lobby.first_of(work, seconds=seconds, gone=asked.sent.until_gone)


async def settled(asked: Asked[Any, Any], seconds: float, run: Run[Any]) -> Run[Any]:
    """The run once it has ended or is blocked; as it is, if that takes too long."""
    if run.is_settled or not seconds:
        return run
    at_once = min(seconds, AT_ONCE_SECONDS)
    with suppress(TimedOut):  # most have ended by then, and need no task that waits for them
        return await run.settled(timeout=at_once)
    done = await within(asked, seconds - at_once, run.settled()) if seconds > at_once else None
    return await run.refresh() if done is None else done.result()
