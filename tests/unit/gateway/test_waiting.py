from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.errors import TimedOut
from holdfast.gateway import waiting
from holdfast.gateway.wait_limit import GRACE_SECONDS, WaitLimit


class Endless:
    """A run that goes on, and counts how often it was waited for."""

    is_settled = False

    async def wait(self, timeout: float | None = None) -> None:
        if timeout is not None:
            raise TimedOut("it goes on")
        await asyncio.Event().wait()

    async def refresh(self) -> Endless:
        return self


def a_request(gone: asyncio.Event) -> Any:
    return SimpleNamespace(context=SimpleNamespace(wait_limit=WaitLimit(1)), sent=SimpleNamespace(until_gone=gone.wait))


async def test_a_caller_who_hung_up_in_the_grace_is_noticed_as_soon_as_it_is_over():
    gone = asyncio.Event()
    gone.set()
    run = Endless()
    # The grace itself takes no time here: what is left must not begin with another one.
    async with asyncio.timeout(GRACE_SECONDS * 0.8):
        assert await waiting.wait_until_settled(a_request(gone), 30.0, cast("Any", run)) is run


@pytest.mark.parametrize("seconds", [0.01, GRACE_SECONDS])
async def test_a_wait_that_is_no_longer_than_the_grace_needs_no_task(seconds: float):
    run = Endless()
    assert await waiting.wait_until_settled(a_request(asyncio.Event()), seconds, cast("Any", run)) is run


async def test_work_that_is_done_within_the_grace_is_returned_before_the_caller_is_looked_for():
    async def gone() -> None:
        raise AssertionError

    async def work() -> str:
        return "done"

    done = await WaitLimit(1).first_of(work(), seconds=1.0, gone=gone)
    assert done is not None
    assert done.result() == "done"
