"""The threads of sync effects, with hand-driven calls: who gets one, who is replaced, and what is counted."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.engine.pace import Pace
from holdfast.engine.runs.threads import DaemonThreads, Job, NotEntered
from holdfast.kernel.retries import Begin, GiveUp

PATIENCE_SECONDS = 30.0


def may_enter() -> Begin:
    return Begin(None)


async def eventually(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.fixture
def threads() -> Any:
    made = DaemonThreads(2, name="test-effect", pace=Pace())
    yield made
    made.close()


@pytest.mark.parametrize("verdict", [None, GiveUp()], ids=["not now", "never"])
async def test_a_call_that_may_not_be_entered_is_not(threads: DaemonThreads, verdict: GiveUp | None) -> None:
    called: list[str] = []
    job = threads.call(lambda: called.append("called"), lambda: verdict)
    with pytest.raises(NotEntered):
        await job.done
    assert called == []


async def test_whether_it_may_be_entered_is_asked_in_the_thread_that_would_call_it(threads: DaemonThreads) -> None:
    asked: list[int] = []

    def ask() -> Begin:
        asked.append(threading.get_ident())
        return Begin(30_000)

    assert await threads.call(threading.get_ident, ask).done == asked[-1] != threading.get_ident()


async def test_its_time_counts_from_when_it_is_entered(threads: DaemonThreads) -> None:
    entered, released = threading.Event(), threading.Event()

    def ask() -> Begin:
        assert entered.wait(PATIENCE_SECONDS)
        return Begin(1)

    job = threads.call(lambda: released.wait(PATIENCE_SECONDS), ask)
    await asyncio.sleep(0.05)  # fifty times as long as it may take: nothing happens, that is the point
    assert not job.overdue.done()
    entered.set()
    await asyncio.wait_for(job.overdue, PATIENCE_SECONDS)
    assert job.limit_ms == 1
    released.set()
    assert await job.done


async def test_a_call_that_was_withdrawn_in_time_is_never_made(threads: DaemonThreads) -> None:
    released, called = threading.Event(), list[int]()
    busy = [threads.call(lambda: released.wait(PATIENCE_SECONDS), may_enter) for _ in range(2)]
    waiting = threads.call(lambda: called.append(1), may_enter)
    assert not threads.give_up(waiting)
    released.set()
    await asyncio.gather(*(job.done for job in busy))
    with pytest.raises(NotEntered):
        await waiting.done
    assert called == []


@pytest.mark.parametrize("error", [StopIteration(1), GeneratorExit()], ids=lambda error: type(error).__name__)
async def test_what_a_future_cannot_carry_is_carried_in_another_error(
    threads: DaemonThreads, error: BaseException
) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(RuntimeError, match=type(error).__name__) as caught:
        await threads.call(fail, may_enter).done
    assert caught.value.__cause__ is error


async def test_a_thread_that_is_given_up_is_replaced_until_there_are_too_many() -> None:
    threads = DaemonThreads(2, name="test-effect", pace=Pace(given_up_threads_max=3))
    released = threading.Event()
    hung: list[Job] = []
    for n in range(5):
        assert not threads.are_used_up
        began = threading.Event()

        def hang(began: threading.Event = began) -> None:
            began.set()
            released.wait(PATIENCE_SECONDS)

        hung.append(threads.call(hang, may_enter))
        await eventually(began.is_set)
        assert threads.give_up(hung[-1])
        assert not threads.give_up(hung[-1])  # only once
        assert threads.given_up == n + 1
    assert threads.are_used_up
    free = asyncio.ensure_future(threads.until_free())
    await asyncio.sleep(0)
    assert not free.done()
    released.set()
    await asyncio.wait_for(free, PATIENCE_SECONDS)
    await eventually(lambda: threads.given_up == 0)
    assert await threads.call(lambda: "done", may_enter).done == "done"
    threads.close()


async def test_whatever_is_called_withdrawn_and_given_up_the_counts_come_out_even(threads: DaemonThreads) -> None:
    """At random, with two at work at a time, as the performer sees to it."""
    chance = random.Random(7)
    for _ in range(300):
        gate = threading.Event()
        jobs = [threads.call(lambda gate=gate: gate.wait(PATIENCE_SECONDS), may_enter) for _ in range(2)]
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        for job in jobs:
            if chance.random() < 0.5:
                threads.give_up(job)
                job.done.cancel()
        gate.set()
        await asyncio.gather(*(job.done for job in jobs), return_exceptions=True)
    await eventually(lambda: not threads._at_work)
    assert threads.given_up == 0
    assert 0 <= threads._threads <= 4
    assert await asyncio.gather(*(threads.call(lambda n=n: n, may_enter).done for n in range(2))) == [0, 1]
