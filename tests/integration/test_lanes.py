"""Lanes: one after the other, in the order of the starts; what is seen of them, and what a person sets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import (
    Holdfast,
    Pack,
    Retry,
    Run,
    UsageError,
    continue_as_new,
    hook,
    sleep,
    spawn,
)
from holdfast.errors import LaneBusy, LaneFull, RunTimedOut, UnknownLane, WaitsForItself
from holdfast.events import LaneSet, RunBlocked, RunParked
from tests.integration.conftest import Home, eventually, heard, worker_of

LANE = "account:ada"


class Works:
    """Workflows whose effects note in a ledger that they begin, and wait for a permit to end."""

    def __init__(self) -> None:
        self.pack = pack = Pack("p")
        self.began: list[str] = []
        self.at_once = self.most_at_once = 0
        self.permits = asyncio.Semaphore(0)

        @pack.effect(retry=Retry(attempts=1))
        async def write(name: str) -> str:
            self.began.append(name)
            self.at_once += 1
            self.most_at_once = max(self.at_once, self.most_at_once)
            await self.permits.acquire()
            self.at_once -= 1
            if name == "bad":
                raise ValueError(name)
            return name

        @pack.workflow(key="{name}", lane="account:{account}")
        async def settle(name: str, account: str = "ada") -> str:
            return await write(name)

        @pack.workflow(lane="account:{account}", width=2, lane_max=1)
        async def narrow(name: str, account: str) -> str:
            return await write(name)

        @pack.workflow
        async def free(name: str) -> str:
            return await write(name)

        @pack.workflow
        async def nap(name: str) -> str:
            await sleep("50ms")
            return await write(name)

        @pack.workflow
        async def ask(name: str) -> Any:
            return await hook("go")

        @pack.workflow(lane="x", on_blocked="step_aside")
        async def polite() -> None:
            await asyncio.Event().wait()

        @pack.workflow(lane="x")
        async def stubborn() -> None:
            await asyncio.Event().wait()

        @pack.workflow(lane=LANE)
        async def rounds(left: int) -> str:
            await write(f"round-{left}")
            if left:
                continue_as_new(rounds(left - 1))
            return "done"

        @pack.workflow
        async def parent(child: str) -> str:
            match child:
                case "awaited":
                    return await settle("child")
                case "named":
                    return await (await spawn(free("child"), lane=LANE)).result()
                case "detached":
                    await spawn(settle("child"), detached=True)
                    return "left"
                case "grandchild":
                    return await parent("named")
                case "full":
                    return await narrow("child", "ada")
                case _:
                    await spawn(free("child"), lane=LANE, width=int(child))
                    return "spawned"

        self.nap = nap
        self.settle, self.narrow, self.free, self.ask, self.parent = settle, narrow, free, ask, parent
        self.rounds, self.polite, self.stubborn = rounds, polite, stubborn

    def permit(self, count: int = 1) -> None:
        for _ in range(count):
            self.permits.release()


@pytest.fixture
def works() -> Works:
    return Works()


async def started(hf: Holdfast, works: Works, *names: str, **options: Any) -> list[Run[str]]:
    return [(await hf.start(works.settle(name), **options)).run for name in names]


# -- order


async def test_runs_of_a_lane_begin_one_after_the_other_in_the_order_of_their_starts(home: Home, works: Works):
    async with home.holdfast(works.pack) as hf:
        runs = await started(hf, works, "a", "b", "c", "d")
        await eventually(lambda: works.began == ["a"])
        works.permit(4)
        assert [await run.result(30) for run in runs] == ["a", "b", "c", "d"]
    assert works.began == ["a", "b", "c", "d"]
    assert works.most_at_once == 1


async def test_as_many_as_the_lane_is_wide_are_active_and_a_higher_priority_goes_first(home: Home, works: Works):
    async with home.holdfast(works.pack) as hf:
        await hf.set_lane("x", width=2)
        for name, priority in (("a", 0), ("b", 0), ("c", 0), ("d", 5)):
            await hf.start(works.free(name), lane="x", priority=priority)
        await eventually(lambda: len(works.began) == 2)
        works.permit(2)
        await eventually(lambda: len(works.began) == 4)
        works.permit(2)
        await eventually(lambda: works.at_once == 0)
    assert sorted(works.began[:2]) == ["a", "b"]
    assert sorted(works.began[2:]) == ["c", "d"]
    assert works.most_at_once == 2


async def test_of_those_that_wait_a_higher_priority_goes_first(home: Home, works: Works):
    async with home.holdfast(works.pack) as hf:
        for name, priority in (("a", 0), ("b", 0), ("c", 0), ("d", 5)):
            await hf.start(works.free(name), lane="x", priority=priority)
        works.permit(4)
        await eventually(lambda: len(works.began) == 4)
    assert works.began == ["a", "d", "b", "c"]


async def test_a_run_that_sleeps_keeps_its_place(home: Home, works: Works):
    home.paced(idle_ms=1)
    works.permit(2)
    async with home.holdfast(works.pack) as hf:
        await hf.start(works.nap("a"), lane=LANE)
        [second] = await started(hf, works, "b")
        assert second.status == "pending"
        await second.result(30)
    assert works.began == ["a", "b"]


async def test_another_replica_takes_the_next_one_over(home: Home, works: Works):
    if type(home).__name__ == "MemoryHome":
        pytest.skip("there is one process")
    async with home.holdfast(works.pack, concurrency=1) as one, home.holdfast(works.pack, concurrency=1) as two:
        for number in range(6):
            await (one, two)[number % 2].start(works.settle(f"n-{number}"))
        works.permit(6)
        await eventually(lambda: len(works.began) == 6)
        await eventually(lambda: works.at_once == 0)
    assert works.began == [f"n-{number}" for number in range(6)]
    assert works.most_at_once == 1


async def test_a_delayed_run_whose_turn_it_is_begins_when_it_is_due(home: Home, works: Works):
    async with home.holdfast(works.pack) as hf:
        first, _ = await hf.start(works.ask("a"), lane="x")
        later, _ = await hf.start(works.free("b"), lane="x", delay="200ms")
        await first.signal("go")
        await first.result(30)
        works.permit()
        assert await later.result(30) == "b"  # no safety poll is due within the test


# -- what goes on in the lane of a run


async def test_a_retry_and_a_fork_queue_behind_those_that_are_there(home: Home, works: Works):
    async with home.holdfast(works.pack) as hf:
        works.permit()
        bad, _ = await hf.start(works.settle("bad"))
        await bad.wait(30)
        await started(hf, works, "a")
        again = await bad.retry()
        assert (again.lane, again.status) == (LANE, "pending")
        assert [str(wait).partition(" ahead")[0] for wait in again.waiting_on] == [f"lane {LANE!r}: 1"]
        works.permit(2)
        await again.wait(30)
        assert works.began == ["bad", "a", "bad"]
        await started(hf, works, "b")
        forked = await bad.fork("write#1", key="other")
        assert (forked.lane, forked.status) == (LANE, "pending")
        works.permit(2)
        await forked.wait(30)
    assert works.began == ["bad", "a", "bad", "b", "bad"]


async def test_a_run_that_continues_as_new_keeps_its_place(home: Home, works: Works):
    async with home.holdfast(works.pack) as hf:
        run, _ = await hf.start(works.rounds(2))
        await started(hf, works, "b")
        works.permit(4)
        assert await run.result(30) == "done"
        await eventually(lambda: len(works.began) == 4)
    assert works.began == ["round-2", "round-1", "round-0", "b"]


@pytest.mark.parametrize("steps_aside", [True, False])
async def test_a_blocked_run_keeps_its_place_unless_it_steps_aside(home: Home, works: Works, steps_aside: bool):
    async with home.holdfast(works.pack) as hf:
        blocked, _ = await hf.start(works.polite() if steps_aside else works.stubborn())
        await heard(hf).until(RunBlocked)
        behind, _ = await hf.start(works.free("b"), lane="x")
        if not steps_aside:
            assert behind.status == "pending"
            assert (await hf.lane("x")).active_runs == (blocked.id,)
            await blocked.cancel()
        works.permit()
        assert await behind.result(30) == "b"


async def test_a_parked_run_that_is_cancelled_ends_at_once_and_did_nothing(home: Home, works: Works):
    async with home.holdfast(works.pack) as hf:
        _, second, third = await started(hf, works, "a", "b", "c")
        receipt = await second.cancel("not needed")
        assert (receipt.outcome, receipt.reason, receipt.stopped) == ("no_effects", "not needed", False)
        assert [str(wait).partition(" ahead")[0] for wait in (await third.refresh()).waiting_on] == [
            f"lane {LANE!r}: 1"
        ]
        works.permit(2)
        await third.result(30)
    assert works.began == ["a", "c"]


async def test_a_signal_does_not_wake_a_run_whose_turn_has_not_come(home: Home, works: Works):
    async with home.holdfast(works.pack) as hf:
        await hf.start(works.free("a"), lane="x")
        asking, _ = await hf.start(works.ask("b"), lane="x")
        await asking.signal("go", "now")
        assert (await asking.refresh()).status == "pending"
        works.permit()
        assert await asking.result(30) == "now"


async def test_the_time_limit_of_a_run_counts_while_it_is_parked(home: Home, works: Works):
    async with home.holdfast(works.pack) as hf:
        await started(hf, works, "a")
        late, _ = await hf.start(works.settle("b"), timeout="10ms")
        with pytest.raises(RunTimedOut):
            await late.result(30)
        works.permit()
    assert "b" not in works.began


# -- starts that are refused


async def test_a_start_that_wants_a_free_lane_is_refused_because_of_the_first_run(home: Home, works: Works):
    async with home.holdfast(works.pack) as hf:
        [first] = await started(hf, works, "a")
        with pytest.raises(LaneBusy, match=f"lane '{LANE}' is not free: run {first.id}") as busy:
            await hf.start(works.settle("b"), if_free=True)
        assert busy.value.run.id == busy.value.run_id == first.id
        assert busy.value.run.status == "running"
        works.permit()
        await first.result(30)
        _, created = await hf.start(works.settle("b"), if_free=True)
        assert created, "the refused start has burnt no key"
        works.permit()


async def test_a_full_lane_refuses_and_takes_no_key(home: Home, works: Works):
    async with home.holdfast(works.pack) as hf:
        for name in ("a", "b", "c"):
            await hf.start(works.narrow(name, "bob"))
        with pytest.raises(LaneFull, match="lane 'account:bob' is full: 1 runs wait in it"):
            await hf.start(works.narrow("d", "bob"), key="k")
        assert (await hf.lane("account:bob")).parked == 1
        works.permit(3)
        await eventually(lambda: works.at_once == 0 and len(works.began) == 3)
        _, created = await hf.start(works.narrow("d", "bob"), key="k")
        assert created
        works.permit()


async def test_a_start_that_joins_asks_nothing_of_the_lane(home: Home, works: Works):
    async with home.holdfast(works.pack) as hf:
        [first] = await started(hf, works, "a")
        joined, created = await hf.start(works.settle("a"), lane="another", if_free=True)
        assert (joined.id, joined.lane, created) == (first.id, LANE, False)
        works.permit()


@pytest.mark.parametrize("options", [{"lane": ""}, {"lane": "x" * 256}, {"lane": "x", "width": 0}, {"width": 1}])
async def test_a_lane_that_cannot_be_is_refused_before_anything_is_stored(
    home: Home, works: Works, options: dict[str, Any]
):
    async with home.holdfast(works.pack) as hf:
        with pytest.raises(UsageError):
            await hf.start(works.free("a"), **options)
        assert [run async for run in hf.runs()] == []


async def test_names_of_lanes_may_be_any_text(home: Home, works: Works):
    async with home.holdfast(works.pack) as hf:
        for name in ("{a}.b", "a b/c", "ü", "a\x00b"):
            await hf.start(works.free(name), lane=name)
            assert (await hf.lane(name)).name == name
        works.permit(4)


# -- children


@pytest.mark.parametrize("child", ["awaited", "named", "grandchild", "1"])
async def test_a_child_that_would_wait_for_its_own_parent_is_refused(home: Home, works: Works, child: str):
    async with home.holdfast(works.pack) as hf:
        run, _ = await hf.start(works.parent(child), lane=LANE)
        failure = (await run.wait(30)).error
        assert failure is not None
        assert failure.type == "holdfast.errors.WaitsForItself"
        assert f"in lane {LANE!r} would wait until its parent" in failure.message
    assert works.began == []


@pytest.mark.parametrize("child", ["2", "detached"])
async def test_a_child_that_need_not_wait_for_its_parent_may_enter_the_lane_of_it(home: Home, works: Works, child: str):
    async with home.holdfast(works.pack) as hf:
        run, _ = await hf.start(works.parent(child), lane=LANE)
        works.permit()
        assert await run.result(30) in {"left", "spawned"}
        await eventually(lambda: works.began == ["child"] or child == "2")


async def test_a_child_in_another_lane_waits_for_its_turn_there(home: Home, works: Works):
    async with home.holdfast(works.pack) as hf:
        await started(hf, works, "a")
        run, _ = await hf.start(works.parent("awaited"))
        await eventually(lambda: works.began == ["a"])
        works.permit(2)
        assert await run.result(30) == "child"
    assert works.began == ["a", "child"]


async def test_a_child_that_finds_its_lane_full_raises_in_the_code_of_its_parent(home: Home, works: Works):
    async with home.holdfast(works.pack) as hf:
        for name in ("a", "b", "c"):
            await hf.start(works.narrow(name, "ada"))
        run, _ = await hf.start(works.parent("full"))
        failure = (await run.wait(30)).error
        assert failure is not None
        assert failure.type == "holdfast.errors.LaneFull"
        works.permit(3)


def test_what_waits_for_itself_is_a_mistake_of_the_caller():
    assert issubclass(WaitsForItself, UsageError)


# -- what is seen, and set


async def test_a_lane_shows_who_is_in_it(home: Home, works: Works):
    async with home.holdfast(works.pack) as hf:
        with pytest.raises(UnknownLane, match="'account:ada'"):
            await hf.lane(LANE)
        a, b, c = await started(hf, works, "a", "b", "c")
        lane = await hf.lane(LANE)
        assert (lane.name, lane.width, lane.active, lane.parked, lane.paused) == (LANE, 1, 1, 2, False)
        assert (lane.active_runs, lane.parked_runs) == ((a.id,), (b.id, c.id))
        assert lane.head is not None
        assert lane.head.id == a.id
        await hf.set_lane("other", width=3)
        assert [(each.name, each.width) async for each in hf.lanes()] == [(LANE, 1), ("other", 3)]
        page = await hf.lanes().page(limit=1)
        assert ([each.name for each in page.lanes], page.next) == ([LANE], LANE)
        assert [each.name for each in (await hf.lanes().page(after=page.next)).lanes] == ["other"]
        works.permit(3)


async def test_a_parked_run_says_who_is_ahead_of_it_and_its_story_too(home: Home, works: Works):
    async with home.holdfast(works.pack) as hf:
        a, _, c = await started(hf, works, "a", "b", "c")
        [wait] = c.waiting_on
        assert (wait.kind, wait.name) == ("lane", LANE)
        assert wait.place is not None
        assert (wait.place.ahead, wait.place.first, wait.place.paused) == (2, a.id, False)
        assert wait.place.since is not None
        await hf.set_lane(LANE, paused=True)
        story = await c.explain()
        assert str(story.waiting_on[0]).endswith(", and the lane is paused")
        found = {run.id: run async for run in hf.runs(status="pending")}
        assert found[c.id].waiting_on == story.waiting_on
        await hf.set_lane(LANE, paused=False)
        works.permit(3)


async def test_a_parked_run_that_no_worker_serves_says_that_too(home: Home, works: Works):
    async with home.holdfast(works.pack, worker=False) as hf:
        _, second = await started(hf, works, "a", "b")
        assert [wait.kind for wait in second.waiting_on] == ["lane", "no_worker"]


async def test_what_a_person_sets_counts_at_once(home: Home, works: Works):
    async with home.holdfast(works.pack) as hf:
        await hf.set_lane(LANE, paused=True)
        await started(hf, works, "a", "b", "c")
        assert [(await hf.lane(LANE)).active, works.began] == [0, []]
        lane = await hf.set_lane(LANE, width=2, paused=False, by="eve")
        assert (lane.active, lane.parked, lane.width) == (2, 1, 2)
        await eventually(lambda: sorted(works.began) == ["a", "b"])
        await hf.set_lane(LANE, width=1)
        works.permit()
        assert (await hf.lane(LANE)).width == 1
        works.permit(2)
        await eventually(lambda: len(works.began) == 3)
        assert [(event.width, event.by) for event in heard(hf).all(LaneSet)] == [(1, ""), (2, "eve"), (1, "")]
        audits = (await hf.runtime.store.audits(hf.namespace)).kept
        assert [(each.audit.actor, each.audit.subject) for each in audits] == [("", LANE), ("eve", LANE), ("", LANE)]
        assert len(heard(hf).all(RunParked)) == 3
        for mistake in ({}, {"width": 0}, {"paused": "yes"}):
            with pytest.raises(UsageError):
                await hf.set_lane(LANE, **mistake)  # pyright: ignore[reportArgumentType]


async def test_lanes_of_two_namespaces_do_not_meet(home: Home, works: Works):
    async with home.holdfast(works.pack) as hf:
        await started(hf, works, "a")
        other = hf.namespaced("other")
        await other.start(works.settle("a"), if_free=True)
        assert (await other.lane(LANE)).active == 1
        works.permit()


async def test_with_no_worker_of_their_own_callers_start_and_workers_keep_the_order(home: Home, works: Works):
    async with home.holdfast(works.pack, worker=False) as client, home.holdfast(works.pack) as worker:
        for name in ("a", "b", "c"):
            await client.start(works.settle(name))
        works.permit(3)
        await eventually(lambda: len(works.began) == 3)
        assert worker_of(worker) is not None
    assert works.began == ["a", "b", "c"]
