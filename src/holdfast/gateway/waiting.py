"""Requests that wait for a run: how long, and what for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct

from holdfast.client import Run
from holdfast.errors import TimedOut
from holdfast.gateway.endpoints import ApiRequest, GatewaySettings
from holdfast.gateway.problems import Malformed
from holdfast.gateway.wait_limit import GRACE_SECONDS
from holdfast.kernel.units import milliseconds

T = TypeVar("T")

Wait = Annotated[
    str,
    Meta(
        description="How long the response may wait for the end of the run: 30s, 1500ms, or a number of seconds.",
        pattern=r"^[0-9]{1,9}(\.[0-9]{1,9})?( ?(ms|s|m))?$",
        examples=["30s"],
    ),
]


class WaitQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """For requests that may wait."""

    wait: Wait | None = None


def seconds_of(wait: str | None, settings: GatewaySettings, *, otherwise: float = 0.0) -> float:
    """How long to wait. Raises `Malformed` if that is longer than this gateway lets a request wait."""
    if wait is None:
        return otherwise
    seconds = _seconds(wait)
    if seconds > settings.wait_seconds_max:
        raise Malformed(
            f"wait={wait} is too long",
            hint=f"Wait {settings.wait_seconds_max:g} s at most, and ask again: nothing is lost between.",
        )
    return seconds


@lru_cache(maxsize=256)
def _seconds(wait: str) -> float:
    """The same few are asked for again and again. How long one can be is limited by its pattern."""
    return milliseconds(float(wait) if wait[-1].isdigit() else wait) / 1000


def slot(request: ApiRequest[Any, Any], seconds: float) -> AbstractContextManager[None]:
    """A slot to wait in for so long, if the request waits. Raises `TooBusy`, so enter it before anything is done."""
    return request.context.wait_limit.slot() if seconds else nullcontext()


async def within(
    request: ApiRequest[Any, Any],
    seconds: float,
    work: Coroutine[Any, Any, T],
    *,
    grace_seconds: float = GRACE_SECONDS,
) -> asyncio.Task[T] | None:
    """The task of `work` if it is done in time, and as long as the caller and the gateway are there."""
    return await request.context.wait_limit.first_of(
        work, seconds=seconds, gone=request.sent.until_gone, grace_seconds=grace_seconds
    )


async def wait_until_settled(request: ApiRequest[Any, Any], seconds: float, run: Run[Any]) -> Run[Any]:
    """The run once it has ended or is blocked; as it is, if that takes too long."""
    if run.is_settled or not seconds:
        return run
    grace = min(seconds, GRACE_SECONDS)
    try:
        return await run.wait(timeout=grace)  # most have ended by then, and need no task that waits for them
    except TimedOut:
        pass
    if seconds > grace:
        done = await within(request, seconds - grace, run.wait(), grace_seconds=0.0)  # the grace is over
        if done is not None:
            return done.result()
    return await run.refresh()
