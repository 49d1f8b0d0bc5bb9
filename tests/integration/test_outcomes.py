"""How a run may end, and what its callers are told (C8)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import (
    HoldfastError,
    Pack,
    Retry,
    RunCancelled,
    RunError,
    RunFailed,
    TimedOut,
    UnknownRun,
    current,
    sleep,
    timeout,
)
from holdfast.events import EffectBegan, RunEnded
from holdfast.kernel.journal import Cancelled, Completed, Failed
from tests.integration.conftest import Holding, Home, eventually, heard


class Rejected(Exception):
    """The domain says no."""


def _pack() -> tuple[Pack, dict[str, object]]:
    pack = Pack("p")

    @pack.effect(timeout="20ms", retry=Retry(attempts=1))
    async def never() -> None:
        await asyncio.Event().wait()

    @pack.workflow
    async def timed_out() -> None:
        await never()

    @pack.workflow
    async def cancelled() -> None:
        raise asyncio.CancelledError

    @pack.workflow
    async def rejected() -> None:
        raise Rejected("not you")

    @pack.workflow
    async def out_of_time() -> None:
        async with timeout("20ms"):
            await sleep("1h")

    return pack, {
        "timed_out": timed_out,
        "cancelled": cancelled,
        "rejected": rejected,
        "out_of_time": out_of_time,
    }


async def test_timeout_cancellation_and_rejection_are_three_outcomes_with_three_types(home: Home) -> None:
    """C8."""
    pack, flows = _pack()
    async with home.holdfast(pack) as hf:
        runs = {name: (await hf.start(flow())).run for name, flow in flows.items()}  # pyright: ignore[reportCallIssue]
        with pytest.raises(RunFailed) as timed_out:
            await runs["timed_out"].result(timeout=30)
        with pytest.raises(RunCancelled) as cancelled:
            await runs["cancelled"].result(timeout=30)
        with pytest.raises(RunFailed) as rejected:
            await runs["rejected"].result(timeout=30)
        with pytest.raises(RunFailed) as out_of_time:
            await runs["out_of_time"].result(timeout=30)
        statuses = {name: (await run.refresh()).status for name, run in runs.items()}
        ends = {name: type((await run.journal())[-1]) for name, run in runs.items()}
    assert type(timed_out.value.__cause__) is TimedOut
    assert type(rejected.value.__cause__) is Rejected
    assert isinstance(out_of_time.value.__cause__, TimeoutError)
    assert cancelled.value.run_id == runs["cancelled"].id
    assert not isinstance(cancelled.value, RunFailed)
    assert statuses == {"timed_out": "failed", "cancelled": "cancelled", "rejected": "failed", "out_of_time": "failed"}
    assert ends == {"timed_out": Failed, "cancelled": Cancelled, "rejected": Failed, "out_of_time": Failed}
    assert (timed_out.value.error_type, rejected.value.error_message) == ("holdfast.errors.TimedOut", "not you")
    for caught in (timed_out, cancelled, rejected):
        assert isinstance(caught.value, RunError)


async def test_a_caller_that_runs_out_of_time_is_told_apart_from_a_run_that_did(home: Home) -> None:
    """C8: the run goes on; asking again later is all there is to do."""
    holding = Holding()
    async with home.holdfast(holding.pack) as hf:
        run = (await hf.start(holding.work(7))).run
        with pytest.raises(TimedOut) as caught:
            await run.result(timeout="30ms")
        assert isinstance(caught.value, TimeoutError)
        assert isinstance(caught.value, HoldfastError)
        assert not isinstance(caught.value, RunError)
        assert run.id in caught.value.message
        assert (await run.refresh()).status == "running"
        holding.gate.set()
        assert await run.result(timeout=30) == 7


async def test_whoever_stops_waiting_harms_neither_the_run_nor_other_waiters(home: Home) -> None:
    holding = Holding()
    async with home.holdfast(holding.pack) as hf:
        run = (await hf.start(holding.work(7))).run
        waiting = [asyncio.create_task(run.result(timeout=30)) for _ in range(10)]
        await heard(hf).until(EffectBegan)
        for task in waiting[:5]:
            task.cancel()
        holding.gate.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results[:5]] == [asyncio.CancelledError] * 5
        assert results[5:] == [7] * 5


async def test_the_snapshot_shows_the_run_as_it_was(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow(key="k:{n}", retention="1h", queue="slow")
    async def work(n: int) -> str:
        return current().run_id

    async with home.holdfast(pack) as hf:
        started = (await hf.start(work(1), priority=4)).run
        assert await started.result(timeout=30) == started.id
        run = await hf.get(started.id)
        assert (run.workflow, run.key, run.status, run.priority, run.queue) == ("p.work", "k:1", "completed", 4, "slow")
        assert started.status == "running"  # a snapshot does not change
        assert await run.input() == {"n": 1}
        assert run.finished_at is not None
        assert run.expires_at is not None
        assert run.expires_at - run.finished_at == timedelta(hours=1)
        assert run.created_at.tzinfo is UTC
        assert abs(run.created_at - datetime.now(UTC)) < timedelta(hours=1)
        assert isinstance((await run.journal())[-1], Completed)
        assert run == await run.refresh()
        assert run.id in repr(run)


async def test_what_nobody_knows_is_unknown(home: Home) -> None:
    pack, _ = _pack()
    async with home.holdfast(pack) as hf:
        for ask in (hf.get("nobody"), hf.find("rejected", "nobody")):
            with pytest.raises(UnknownRun) as caught:
                await ask
            assert caught.value.hint


async def test_the_end_is_told_to_whoever_asks_in_that_very_moment(home: Home) -> None:
    """`result()` asked while the last commit is on its way must not wait for a later look."""
    pack = Pack("p")

    @pack.workflow
    async def work(n: int) -> int:
        return n

    async with home.holdfast(pack) as hf:
        seen = heard(hf)
        asked: list[asyncio.Task[int]] = []
        runs = {}
        for n in range(50):
            run = (await hf.start(work(n))).run
            runs[run.id] = run
            for _ in range(n % 7):
                await asyncio.sleep(0)
            asked.append(asyncio.create_task(run.result()))
        await seen.until(RunEnded, count=50)
        await eventually(lambda: all(task.done() for task in asked) or _breathe())
        assert [task.result() for task in asked] == list(range(50))
        assert hf._replica._waiters._waiting == {}


async def _breathe() -> bool:
    await asyncio.sleep(0)
    return False
