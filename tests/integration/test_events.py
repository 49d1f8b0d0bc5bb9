"""Following a run entry by entry: live, from any cursor on, from any process; nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from holdfast import Pack, Retry, Run, UnknownRun, continue_as_new, hook, sleep
from holdfast.events import EffectBegan, RunBlocked, RunContinued, RunLetGo, RunsPruned
from holdfast.journal import RunEvent
from tests.integration.conftest import PATIENCE_SECONDS, Holding, Home, SqliteHome, eventually, heard, worker_of


class Steps:
    """A workflow that goes on by signals, and does something at each."""

    def __init__(self) -> None:
        self.pack = Pack("p")

        @self.pack.effect
        async def act(n: int) -> int:
            return n

        @self.pack.workflow(key="k:{count}")
        async def work(count: int) -> int:
            steps = hook("steps", type=int)
            done = 0
            for _ in range(count):
                done += await act(await steps)
            return done

        self.work = work


@pytest.fixture
def steps() -> Steps:
    return Steps()


async def _follow(run: Run[Any], after: int | None = None, *, count: int | None = None) -> list[RunEvent]:
    """The events behind the cursor: so many, or all until the run has ended."""
    seen: list[RunEvent] = []
    following: Any = run.events(after)
    async with asyncio.timeout(PATIENCE_SECONDS), contextlib.aclosing(following):
        event: RunEvent
        async for event in following:
            seen.append(event)
            if len(seen) == count:
                break
    return seen


async def test_the_events_of_a_run_are_its_journal_and_they_end_with_it(home: Home, steps: Steps) -> None:
    async with home.holdfast(steps.pack) as hf:
        run = (await hf.start(steps.work(3))).run
        following = asyncio.create_task(_follow(run))
        for n in range(3):
            await run.signal("steps", n)
        await run.result(timeout=30)
        events = await following
        assert [event.entry for event in events] == list(await run.journal())
        assert [event.cursor for event in events] == list(range(len(events)))
        assert events[-1].entry.what == "completed"
        assert await _follow(run) == events  # once more, after the end
        for event in events:
            assert await _follow(run, event.cursor) == events[event.cursor + 1 :]


async def test_each_event_is_told_as_soon_as_it_is_durable(home: Home, steps: Steps) -> None:
    """The next signal is sent only when the effect of the last one was told: nobody polls."""
    async with home.holdfast(steps.pack) as hf, home.holdfast(worker=False) as viewer:
        run = (await hf.start(steps.work(5))).run
        followers = [run.events(), (await viewer.get(run.id)).events()]
        for follower in followers:
            assert (await anext(follower)).entry.what == "started"
        for n in range(5):
            await run.signal("steps", n)
            for follower in followers:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    assert [(await anext(follower)).entry.what for _ in range(2)] == ["received", "performed"]
        for follower in followers:
            assert (await anext(follower)).entry.what == "completed"
            with pytest.raises(StopAsyncIteration):
                await anext(follower)


async def test_a_follower_in_another_process_goes_away_and_comes_back(sqlite_home: SqliteHome, steps: Steps) -> None:
    """Each time it is another Holdfast on the same file, which goes on behind the last cursor."""
    count = 12
    async with sqlite_home.holdfast(steps.pack) as hf:
        run = (await hf.start(steps.work(count))).run

        async def send() -> None:
            for n in range(count):
                await run.signal("steps", n)
                await eventually(lambda: len(seen) > 2 * n)  # noqa: B023 - awaited here

        seen: list[RunEvent] = []
        sending = asyncio.create_task(send())
        while not seen or seen[-1].entry.what != "completed":
            async with sqlite_home.holdfast(worker=False) as viewer:
                theirs = await viewer.get(run.id)
                seen += await _follow(theirs, seen[-1].cursor if seen else None, count=3)
        await sending
        assert [event.entry for event in seen] == list(await run.journal())
        assert [event.cursor for event in seen] == list(range(len(seen)))


async def test_many_follow_one_run_and_whoever_stops_harms_nobody(home: Home, steps: Steps) -> None:
    async with home.holdfast(steps.pack) as hf:
        run = (await hf.start(steps.work(4))).run
        following = [asyncio.create_task(_follow(run, count=None if n % 2 else 2)) for n in range(8)]
        gone = asyncio.create_task(_follow(run))
        await run.signal("steps", 0)
        await asyncio.wait_for(following[0], PATIENCE_SECONDS)
        gone.cancel()
        for n in range(1, 4):
            await run.signal("steps", n)
        told = await asyncio.gather(*following)
        journal = list(await run.journal())
        for n, events in enumerate(told):
            assert [event.entry for event in events] == (journal if n % 2 else journal[:2])
        with contextlib.suppress(asyncio.CancelledError):
            await gone
        assert hf._replica.subscriptions._following == {}


async def test_a_blocked_run_has_not_ended_and_its_followers_wait(home: Home) -> None:
    pack = Pack("p")
    gate = asyncio.Event()

    @pack.effect(safety="once", timeout="20ms", reconcile=lambda key: answers[key])
    async def act() -> str:
        await gate.wait()
        return "acted"

    answers: dict[str, str] = {}

    @pack.workflow
    async def work() -> str:
        return await act()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        following = asyncio.create_task(_follow(run))
        await heard(hf).until(RunBlocked)
        answers[f"{run.id}/act#1"] = "reconciled"
        run = await run.retry()
        assert await run.result(timeout=30) == "reconciled"
        events = await following
        assert [event.entry.what for event in events] == [
            "started",
            "intended",
            "blocked",
            "retried",
            "performed",
            "completed",
        ]


async def test_a_retried_run_is_followed_on_behind_its_failure(home: Home) -> None:
    pack = Pack("p")
    broken = True

    @pack.effect(retry=Retry(attempts=1))
    async def act() -> str:
        if broken:
            raise OSError("broken")
        return "mended"

    @pack.workflow
    async def work() -> str:
        return await act()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        first = await _follow(run)
        assert [event.entry.what for event in first] == ["started", "gave_up", "failed"]
        broken = False
        run = await run.retry()
        assert await run.result(timeout=30) == "mended"
        rest = await _follow(run, first[-1].cursor)
        assert [event.entry.what for event in rest] == ["retried", "performed", "completed"]


async def test_cursors_grow_over_new_beginnings(home: Home) -> None:
    """A follower who looks all the time sees each generation begin; one who comes late begins with the present one."""
    pack = Pack("p")

    @pack.workflow
    async def entity(n: int = 0) -> int:
        await hook("go")
        if n == 3:
            return n
        return continue_as_new(entity(n + 1))

    async with home.holdfast(pack) as hf:
        run = (await hf.start(entity())).run
        following = asyncio.create_task(_follow(run))
        for n in range(3):
            await run.signal("go")
            await heard(hf).until(RunContinued, count=n + 1)
            cursors = [event.cursor for event in await _follow(run, count=1)]
            assert cursors[0] > n
        await run.signal("go")
        assert await run.result(timeout=30) == 3
        events = await following
        cursors = [event.cursor for event in events]
        assert cursors == sorted(set(cursors))
        assert [event.entry.what for event in events if event.entry.what in {"started", "continued", "completed"}] == [
            "started",
            "continued",
            "continued",
            "continued",
            "completed",
        ]
        late = await _follow(run)
        assert [event.entry.what for event in late] == ["continued", "received", "completed"]
        assert late == events[-3:]


async def test_a_run_that_nobody_executes_can_be_followed(home: Home, steps: Steps) -> None:
    async with home.holdfast(steps.pack, worker=False) as client:
        run = (await client.start(steps.work(1))).run
        follower = run.events()
        assert (await anext(follower)).entry.what == "started"
        rest = asyncio.ensure_future(_all(follower))
        await run.signal("steps", 1)
        async with home.holdfast(steps.pack):
            assert [event.entry.what for event in await asyncio.wait_for(rest, PATIENCE_SECONDS)] == [
                "received",
                "performed",
                "completed",
            ]


async def _all(events: Any) -> list[RunEvent]:
    return [event async for event in events]


async def test_a_cancellation_is_told_like_everything_else(home: Home) -> None:
    holding = Holding()
    async with home.holdfast(holding.pack) as hf, home.holdfast(worker=False) as viewer:
        run = (await hf.start(holding.work())).run
        await heard(hf).until(EffectBegan)
        following = asyncio.create_task(_follow(await viewer.get(run.id)))
        await run.cancel("enough")
        events = await following
        assert [event.entry for event in events] == list(await run.journal())
        assert "cancel_asked" in [event.entry.what for event in events]
        assert events[-1].entry.what == "cancelled"


async def test_following_costs_a_waiting_run_nothing(home: Home) -> None:
    """It is let go all the same."""
    home.paced(idle_ms=10)
    pack = Pack("p")

    @pack.workflow
    async def work() -> None:
        await sleep("1d")

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        following = asyncio.create_task(_follow(run))
        await heard(hf).until(RunLetGo, run_id=run.id)
        await eventually(lambda: not worker_of(hf).held)
        await run.cancel()
        assert (await following)[-1].entry.what == "cancelled"


async def test_a_run_that_has_been_removed_cannot_be_followed(home: Home, steps: Steps) -> None:
    async with home.holdfast(steps.pack, worker=False) as client:
        run = (await client.start(steps.work(0), retention="1ms")).run
        async with home.holdfast(steps.pack):
            await run.result(timeout=30)
        async with home.holdfast() as pruner:
            await heard(pruner).until(RunsPruned)
        with pytest.raises(UnknownRun):
            await anext(run.events())
