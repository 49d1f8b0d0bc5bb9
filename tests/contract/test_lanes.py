"""Runs in a lane go one after the other, or a few at a time, in the order in which they came."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.kernel import lanes, transitions
from holdfast.kernel.changes import Change, Committed, Refused
from holdfast.kernel.lanes import Entering, Lane, LaneSetting, LaneStanding, LaneState
from holdfast.kernel.messages import SignalMessage
from holdfast.kernel.runs import Run, Status
from holdfast.ports.store import Finding, Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.redis import RedisStore
from holdfast.stores.redis.net.client import LuaSource, ScriptCall
from holdfast.stores.sqlite import SqliteStore
from tests.builders import FakeClock, a_hand, a_value
from tests.contract.conftest import Backend, RedisBackend
from tests.contract.helpers import (
    a_signal,
    admission,
    blockage,
    claim,
    committed,
    completion,
    failure,
    held,
    history,
    let_go,
    offer,
    retry,
    stop,
)

LANE = "account:7"


@pytest.fixture(params=["together", "apart"])
async def store(backend: Backend, request: pytest.FixtureRequest) -> Store:
    """A store with shards keeps runs without a key in the shard of their lane; apart, they may be in any."""
    if isinstance(backend, RedisBackend):
        backend.together = request.param == "together"
    return await backend.another()


def in_lane(store: Store, run_id: str, *, lane: str = LANE, width: int | None = 1, **fields: Any) -> Change:
    """The admission of a run without a key, unless one is given, into a lane."""
    entering = Entering(lane, width, fields.pop("parked_max", None), fields.pop("if_free", False))
    return admission(store, run_id, **{"key": None, **fields}, enters=entering)


async def enter(store: Store, run_id: str, **fields: Any) -> Run:
    return await committed(store, in_lane(store, run_id, **fields))


async def claimed(store: Store, owner: str = "w-1") -> list[str]:
    return sorted(run.id for run in await claim(store, owner))


async def run_of(store: Store, run_id: str) -> Run:
    [run] = await store.runs([run_id])
    return run


async def end(store: Store, run_id: str) -> tuple[str, ...]:
    """Let the run return; returns the runs that were told."""
    answer = await offer(store, completion(store, await run_of(store, run_id)))
    assert isinstance(answer, Committed), answer
    return answer.told


async def state(store: Store, lane: str = LANE) -> LaneState:
    found = await store.lane("default", lane)
    assert found is not None
    return found


async def test_the_first_may_be_claimed_and_the_others_are_parked(store: Store) -> None:
    for n in range(3):
        await enter(store, f"run-{n}")
    assert await claimed(store) == ["run-0"]
    assert await claimed(store) == []
    parked = await run_of(store, "run-1")
    assert (parked.status, parked.wake_at_ms, parked.owner, parked.lane) == (Status.PENDING, None, None, LANE)
    assert await store.next_wake_at_ms("default", ("shop.checkout",)) is None


async def test_the_commit_that_ends_one_lets_the_next_go(store: Store) -> None:
    for n in range(3):
        await enter(store, f"run-{n}")
    for n in range(3):
        assert await claimed(store) == [f"run-{n}"]
        assert await end(store, f"run-{n}") == ((f"run-{n + 1}",) if n < 2 else ())
    assert await claimed(store) == []
    found = await state(store)
    assert (found.active, found.parked) == (0, 0)


@pytest.mark.parametrize("how", ["completed", "failed", "stopped"])
async def test_however_it_ends(store: Store, how: str) -> None:
    await enter(store, "run-0", owner="w-1")
    await enter(store, "run-1")
    run = await run_of(store, "run-0")
    ends = {"completed": completion(store, run), "failed": failure(store, run), "stopped": await stop(store, run)}
    answer = await offer(store, ends[how])
    assert isinstance(answer, Committed)
    assert answer.told == ("run-1",)
    assert await claimed(store) == ["run-1"]


async def test_a_run_that_was_to_be_handed_over_at_once_is_parked_instead(store: Store) -> None:
    first = await enter(store, "run-0", owner="w-1")
    second = await enter(store, "run-1", owner="w-1")
    assert (first.status, first.owner, first.epoch) == (Status.RUNNING, "w-1", 1)
    assert (second.status, second.owner, second.epoch, second.nonce) == (Status.PENDING, None, 0, "")
    assert second.started_at_ms is None
    assert await end(store, "run-0") == ("run-1",)
    assert await claimed(store, "w-2") == ["run-1"]


async def test_it_is_active_while_it_sleeps_waits_and_is_blocked(store: Store, clock: FakeClock) -> None:
    await enter(store, "run-0", owner="w-1")
    await enter(store, "run-1")
    await committed(store, let_go(store, await run_of(store, "run-0"), wake_at_ms=store.now_ms() + 1000))
    assert await claimed(store) == []
    clock.advance(1000)
    assert await claimed(store) == ["run-0"]
    await committed(store, blockage(store, await run_of(store, "run-0")))
    assert await claimed(store) == []
    assert (await state(store)).first_active == ("run-0",)


async def test_a_blocked_run_that_is_retried_has_its_place_still(store: Store) -> None:
    await enter(store, "run-0", owner="w-1")
    await enter(store, "run-1")
    blocked = await committed(store, blockage(store, await run_of(store, "run-0")))
    await committed(store, await retry(store, blocked))
    assert await claimed(store) == ["run-0"]
    assert await end(store, "run-0") == ("run-1",)


async def test_a_failed_run_that_is_retried_goes_behind_the_others(store: Store) -> None:
    for n in range(3):
        await enter(store, f"run-{n}")
    await claimed(store)
    failed = await committed(store, failure(store, await run_of(store, "run-0")))
    again = await committed(store, await retry(store, failed))
    assert (again.status, again.wake_at_ms) == (Status.PENDING, None)
    order: list[str] = []
    while found := await claimed(store):
        order += found
        await end(store, found[0])
    assert order == ["run-1", "run-2", "run-0"]


async def test_a_failed_run_that_is_retried_alone_goes_on_at_once(store: Store) -> None:
    await enter(store, "run-0", owner="w-1")
    failed = await committed(store, failure(store, await run_of(store, "run-0")))
    again = await offer(store, await retry(store, failed))
    assert isinstance(again, Committed)
    assert again.run is not None
    assert again.run.wake_at_ms is not None
    assert again.told == ()
    assert await claimed(store) == ["run-0"]


async def test_a_parked_run_that_is_stopped_leaves_and_nobody_goes_in_its_place(store: Store) -> None:
    for n in range(3):
        await enter(store, f"run-{n}")
    assert await claimed(store) == ["run-0"]
    answer = await offer(store, await stop(store, await run_of(store, "run-1")))
    assert isinstance(answer, Committed)
    assert answer.told == ()
    assert await claimed(store) == []
    assert await end(store, "run-0") == ("run-2",)


async def test_a_higher_priority_goes_first_among_those_that_wait(store: Store) -> None:
    await enter(store, "run-0", owner="w-1")
    for n, priority in enumerate([0, 5, 5, -3], start=1):
        await enter(store, f"run-{n}", priority=priority)
    order = ["run-0"]
    while told := await end(store, order[-1]):
        order += told
        assert await claimed(store) == [*told]
    assert order == ["run-0", "run-2", "run-3", "run-1", "run-4"]


async def test_a_lane_that_is_wide_lets_several_go(store: Store) -> None:
    for n in range(5):
        await enter(store, f"run-{n}", width=3)
    assert await claimed(store) == ["run-0", "run-1", "run-2"]
    assert await end(store, "run-1") == ("run-3",)
    found = await state(store)
    assert (found.active, found.parked, found.lane.width) == (3, 1, 3)


async def test_lanes_do_not_know_each_other(store: Store) -> None:
    for n, lane in enumerate(["a", "b", "a", "{a}", "a{b}.\t:%"]):
        await enter(store, f"run-{n}", lane=lane)
    assert await claimed(store) == ["run-0", "run-1", "run-3", "run-4"]
    assert [found.lane.name for found in await store.lanes("default")] == ["a", "a{b}.\t:%", "b", "{a}"]
    assert [found.lane.name for found in await store.lanes("default", after="a", limit=2)] == ["a{b}.\t:%", "b"]
    assert await store.lanes("other") == []
    assert await store.lane("default", "c") is None


async def test_a_start_with_a_delay_keeps_it_when_it_becomes_active(store: Store, clock: FakeClock) -> None:
    await enter(store, "run-0", owner="w-1")
    await enter(store, "run-1", delay_ms=60_000)
    due_at_ms = store.now_ms() + 60_000
    assert await end(store, "run-0") == ("run-1",)
    assert (await run_of(store, "run-1")).wake_at_ms == due_at_ms
    assert await claimed(store) == []
    clock.advance(60_000)
    assert await claimed(store) == ["run-1"]


async def test_a_start_that_is_repeated_has_one_place(store: Store) -> None:
    await enter(store, "run-0", owner="w-1")
    change = in_lane(store, "run-1", key="order:1")
    first, again = await committed(store, change), await committed(store, change)
    assert first == again
    assert (await state(store)).parked == 1
    await end(store, "run-0")
    assert await claimed(store) == ["run-1"]
    await end(store, "run-1")
    assert (await committed(store, change)).status is Status.COMPLETED
    found = await state(store)
    assert (found.active, found.parked) == (0, 0)


async def test_an_end_that_is_repeated_lets_one_go(store: Store) -> None:
    for n in range(3):
        await enter(store, f"run-{n}")
    await claimed(store)
    change = completion(store, await run_of(store, "run-0"))
    await committed(store, change)
    await committed(store, change)
    assert await claimed(store) == ["run-1"]
    assert (await state(store)).active == 1


async def test_a_key_that_is_held_is_what_a_start_is_told_of_first(store: Store) -> None:
    await enter(store, "run-0", owner="w-1")
    await enter(store, "run-1", key="order:1")
    answer = await offer(store, in_lane(store, "run-2", key="order:1", parked_max=1))
    assert isinstance(answer, Refused)
    assert answer.current is not None
    assert (answer.current.id, answer.no_room) == ("run-1", "")
    assert (await state(store)).parked == 1


async def test_a_lane_that_is_full_refuses(store: Store) -> None:
    for n in range(3):
        await enter(store, f"run-{n}", parked_max=2)
    for key in (None, "order:1"):
        answer = await offer(store, in_lane(store, "run-3", key=key, parked_max=2))
        assert isinstance(answer, Refused)
        assert answer.current is not None
        assert (answer.current.id, answer.no_room) == ("run-0", "full")
    assert await store.runs(["run-3"]) == []
    assert await store.run_of_key("default", "shop.checkout", "order:1") is None
    await claimed(store)
    await end(store, "run-0")
    await enter(store, "run-3", parked_max=2)


async def test_a_start_that_wants_a_free_lane_is_refused_if_anyone_is_there(store: Store) -> None:
    await enter(store, "run-0", if_free=True)
    for key in (None, "order:1"):
        answer = await offer(store, in_lane(store, "run-1", key=key, if_free=True))
        assert isinstance(answer, Refused)
        assert answer.current is not None
        assert (answer.current.id, answer.no_room) == ("run-0", "busy")
    await claimed(store)
    await end(store, "run-0")
    await enter(store, "run-1", if_free=True)
    assert await claimed(store) == ["run-1"]


async def test_the_newest_width_that_is_declared_counts(store: Store) -> None:
    for n in range(4):
        await enter(store, f"run-{n}")
    assert await claimed(store) == ["run-0"]
    answer = await offer(store, in_lane(store, "run-4", width=3))
    assert isinstance(answer, Committed)
    assert sorted(answer.told) == ["run-1", "run-2"]
    assert await claimed(store) == ["run-1", "run-2"]
    await enter(store, "run-5", width=1)
    assert await end(store, "run-0") == ()
    assert await end(store, "run-1") == ()
    assert await end(store, "run-2") == ("run-3",)


async def test_a_width_that_was_set_by_hand_stays_until_another_is_declared(store: Store) -> None:
    for n in range(4):
        await enter(store, f"run-{n}")
    assert (await store.set_lane(LaneSetting("default", LANE, width=3))).active == 3
    assert await claimed(store) == ["run-0", "run-1", "run-2"]
    await enter(store, "run-4", width=1)
    await enter(store, "run-5", width=None)
    assert (await state(store)).lane.width == 3
    await enter(store, "run-6", width=2)
    assert (await state(store)).lane.width == 2


async def test_a_lane_that_is_paused_lets_nobody_go(store: Store) -> None:
    paused = await store.set_lane(LaneSetting("default", LANE, paused=True))
    assert (paused.lane.paused, paused.active, paused.parked) == (True, 0, 0)
    await enter(store, "run-0")
    await enter(store, "run-1", owner="w-1")
    assert await claimed(store) == []
    assert (await store.set_lane(LaneSetting("default", LANE, paused=False))).active == 1
    assert await claimed(store) == ["run-0"]


async def test_one_that_was_superseded_keeps_its_place_until_it_has_ended(store: Store) -> None:
    await enter(store, "run-0", key="order:1", owner="w-1")
    await enter(store, "run-1", key="order:1", replaces="run-0")
    assert await claimed(store) == []
    assert await store.run_of_key("default", "shop.checkout", "order:1") == await run_of(store, "run-1")
    told = {message.id for message in (await history(store, "run-0")).messages}
    stopping = await stop(store, await run_of(store, "run-0"), read=tuple(told))
    answer = await offer(store, stopping)
    assert isinstance(answer, Committed)
    assert answer.told == ("run-1",)
    assert await claimed(store) == ["run-1"]


async def test_a_successor_goes_behind_those_that_were_there_before(store: Store) -> None:
    await enter(store, "run-0", key="order:1", owner="w-1")
    await enter(store, "run-1")
    message = a_signal()
    await committed(store, _sent_to_key("run-0", message))
    run = await run_of(store, "run-0")
    [started] = (await history(store, "run-0")).journal
    change = transitions.decide(
        run, transitions.RunReturned(a_value("done"), started, unread=(message.id,)), now_ms=store.now_ms()
    )
    answer = await offer(store, change)
    assert isinstance(answer, Committed)
    assert "run-1" in answer.told
    assert await claimed(store) == ["run-1"]
    assert (await state(store)).parked == 1
    [successor] = (await state(store)).first_parked
    assert await end(store, "run-1") == (successor,)
    assert await claimed(store) == [successor]


def _sent_to_key(run_id: str, message: SignalMessage) -> Change:
    from holdfast.kernel import hooks

    return hooks.to_owner(run_id, message, scope=hooks.key_scope("default", "shop.checkout", "order:1"))


async def test_where_a_run_stands(store: Store) -> None:
    for n in range(3):
        await enter(store, f"run-{n}")
    await enter(store, "run-3", priority=1)
    standing = [await store.standing(await run_of(store, f"run-{n}")) for n in range(4)]
    assert standing == [
        LaneStanding(True),
        LaneStanding(False, 2, "run-0"),
        LaneStanding(False, 3, "run-0"),
        LaneStanding(False, 1, "run-0"),
    ]
    await claimed(store)
    await end(store, "run-0")
    assert await store.standing(await run_of(store, "run-0")) is None


async def test_a_lane_is_forgotten_when_nobody_has_used_it_for_a_while(store: Store, clock: FakeClock) -> None:
    await enter(store, "run-0", owner="w-1")
    await store.set_lane(LaneSetting("default", "by hand", width=4))
    clock.advance(lanes.IDLE_MS)
    await store.prune(10)
    await end(store, "run-0")
    await store.prune(10)
    assert [found.lane.name for found in await store.lanes("default")] == [LANE, "by hand"]
    clock.advance(lanes.IDLE_MS)
    await store.prune(10)
    assert [found.lane.name for found in await store.lanes("default")] == ["by hand"]


async def test_one_that_dies_with_its_worker_keeps_its_place(store: Store, clock: FakeClock) -> None:
    await store.join("w-1", 1_000)
    await enter(store, "run-0", owner="w-1")
    await enter(store, "run-1")
    clock.advance(2_000)
    assert await store.rescue(10) == ["run-0"]
    assert await claimed(store, "w-2") == ["run-0"]
    assert await end(store, "run-0") == ("run-1",)


async def test_whatever_order_things_come_in_the_width_is_kept_and_nobody_is_forgotten(store: Store) -> None:
    chance = random.Random(7)
    width, active, waiting = 2, list[str](), list[str]()
    for step in range(60):
        if chance.random() < 0.5 or not active:
            run_id = f"run-{step:02}"
            await enter(store, run_id, width=None if step else 2, key=chance.choice([None, f"key:{step}"]))
            waiting.append(run_id)
        elif chance.random() < 0.2:
            width = chance.choice([1, 2, 3])
            await store.set_lane(LaneSetting("default", LANE, width=width))
        elif chance.random() < 0.2 and waiting:
            gone = waiting.pop(chance.randrange(len(waiting)))
            await committed(store, await stop(store, await run_of(store, gone)))
        else:
            await end(store, active.pop(chance.randrange(len(active))))
        active += (turn := waiting[: max(0, width - len(active))])
        del waiting[: len(turn)]
        assert await claimed(store) == sorted(turn)
    found = await state(store)
    assert (found.active, found.parked) == (len(active), len(waiting))


async def test_many_starts_at_once_have_an_order_of_their_own(store: Store) -> None:
    changes = [in_lane(store, f"run-{n:02}", key=chance) for n, chance in enumerate([None, "a", "b", None, "c"] * 6)]
    changes = [c for n, c in enumerate(changes) if n < 5 or (c.run is not None and c.run.key is None)]
    await asyncio.gather(*(store.commit([change]) for change in changes))
    done: list[str] = []
    while found := await claimed(store):
        assert len(found) == 1
        done += found
        await end(store, found[0])
    assert sorted(done) == sorted(change.run.id for change in changes if change.run is not None)


async def step_aside(store: Store, run_id: str) -> Committed:
    run = await run_of(store, run_id)
    answer = await offer(
        store, transitions.decide(run, transitions.Stuck("x", "y", steps_aside=True), now_ms=store.now_ms())
    )
    assert isinstance(answer, Committed)
    return answer


async def test_a_blocked_run_that_steps_aside_lets_the_next_go(store: Store) -> None:
    await enter(store, "run-0", owner="w-1")
    await enter(store, "run-1")
    assert (await step_aside(store, "run-0")).told == ("run-1",)
    blocked = await run_of(store, "run-0")
    assert (blocked.status, blocked.lane, blocked.aside) == (Status.BLOCKED, LANE, True)
    assert await store.standing(blocked) is None
    assert await claimed(store) == ["run-1"]


async def test_one_that_has_stepped_aside_enters_again_at_the_end(store: Store) -> None:
    for n in range(3):
        await enter(store, f"run-{n}")
    await claimed(store)
    await step_aside(store, "run-0")
    again = await committed(store, await retry(store, await run_of(store, "run-0")))
    assert (again.status, again.aside, again.wake_at_ms) == (Status.PENDING, False, None)
    order: list[str] = []
    while found := await claimed(store):
        order += found
        await end(store, found[0])
    assert order == ["run-1", "run-2", "run-0"]


async def test_one_that_has_stepped_aside_and_is_taken_up_waits_for_its_turn(store: Store) -> None:
    for n in range(2):
        await enter(store, f"run-{n}")
    await claimed(store)
    await step_aside(store, "run-0")
    change = transitions.take_up(await run_of(store, "run-0"), a_hand("w-2"), now_ms=store.now_ms())
    taken = await committed(store, change)
    assert (taken.status, taken.owner, taken.wake_at_ms) == (Status.PENDING, None, None)
    assert await claimed(store) == ["run-1"]
    assert await end(store, "run-1") == ("run-0",)
    assert await claimed(store) == ["run-0"]


async def test_one_that_has_stepped_aside_and_is_stopped_takes_no_place_along(store: Store) -> None:
    for n in range(3):
        await enter(store, f"run-{n}")
    await claimed(store)
    await step_aside(store, "run-0")
    answer = await offer(store, await stop(store, await run_of(store, "run-0")))
    assert isinstance(answer, Committed)
    assert answer.told == ()
    found = await state(store)
    assert (found.active, found.parked) == (1, 1)


async def test_a_run_without_a_lane_that_is_stuck_has_nothing_to_step_aside_from(store: Store) -> None:
    run = await held(store)
    stuck = transitions.decide(run, transitions.Stuck("x", "y", steps_aside=True), now_ms=store.now_ms())
    assert not (await committed(store, stuck)).aside


async def finding(store: Store) -> Finding:
    [found] = [each for each in await store.inspect() if each.what == "lanes"]
    return found


async def meddle(store: Store, *, run: str = "run-0", place: bool = False, ended: bool = False) -> None:
    """Take a run's place out of the store, or end it as a version does that knows of no lanes."""
    if isinstance(store, MemoryStore):
        if place:
            del store.tables.places["default", LANE][run]
        if ended:
            store.tables.put(replace(store.tables.runs[run], status=Status.COMPLETED, finished_at_ms=1))
    elif isinstance(store, SqliteStore):
        statement = "DELETE FROM places WHERE run_id = ?" if place else "UPDATE runs SET finished_ms = 1 WHERE id = ?"
        await store._writer.do(lambda db: db.execute(statement, (run,)))
    else:
        assert isinstance(store, RedisStore)
        names = store._shards.names(store._shards.of_lane("default", LANE))
        row = store._shards.part(b"run", run)
        key, args = (names, ("HDEL", f"p\0{run}")) if place else (row, ("HSET", "f", "1"))
        call = LuaSource("return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))")
        await store._client.run([ScriptCall(call, (key,), args)], writes=True)


async def test_lanes_in_which_all_is_well(store: Store) -> None:
    for n in range(3):
        await enter(store, f"run-{n}", owner="w-1")
    assert (await finding(store)).level == "ok"
    await store.set_lane(LaneSetting("default", LANE, width=2))
    await store.set_lane(LaneSetting("default", LANE, width=1))
    await step_aside(store, (await claimed(store))[0])
    assert (await finding(store)).level == "ok"


async def test_a_run_that_has_no_place_in_its_lane_is_found(store: Store) -> None:
    await enter(store, "run-0", owner="w-1")
    await meddle(store, place=True)
    found = await finding(store)
    assert found.level == "error"
    assert "run-0" in found.detail


async def test_a_place_whose_run_has_ended_is_found(store: Store) -> None:
    await enter(store, "run-0", owner="w-1")
    await meddle(store, ended=True)
    found = await finding(store)
    assert found.level == "warning"
    assert "run-0" in found.detail


async def test_what_an_earlier_version_has_ended_is_put_right(store: Store) -> None:
    if isinstance(store, MemoryStore):
        return  # no earlier version shares its memory
    for n in range(3):
        await enter(store, f"run-{n}")
    assert await claimed(store) == ["run-0"]
    await meddle(store, ended=True)
    assert await store.relay(10) == 1
    assert (await finding(store)).level == "ok"
    assert await claimed(store) == ["run-1"]


def test_more_runs_than_a_lane_is_wide_and_room_that_is_not_used_are_told() -> None:
    lane = Lane("default", LANE)
    assert lanes.trouble(LaneState(lane, 1, 4)) is None
    assert "2 runs are active" in str(lanes.trouble(LaneState(lane, 2, 0)))
    assert lanes.trouble(LaneState(replace(lane, declared=2), 2, 0)) is None
    assert "3 runs are parked" in str(lanes.trouble(LaneState(lane, 0, 3)))
    assert lanes.trouble(LaneState(replace(lane, paused=True), 0, 3)) is None


async def test_a_start_that_is_refused_declares_no_width(store: Store) -> None:
    for n in range(3):
        await enter(store, f"run-{n}", key=f"order:{n}")
    refused = await offer(store, in_lane(store, "run-4", key="order:0", width=5, parked_max=9))
    assert isinstance(refused, Refused)
    assert refused.no_room == ""
    found = await state(store)
    assert (found.lane.width, found.active, found.parked) == (1, 1, 2)


async def test_a_lane_that_is_wide_enough_is_not_full(store: Store) -> None:
    for n in range(5):
        await enter(store, f"run-{n}", key=f"order:{n}", width=3, parked_max=2)
    answer = await offer(store, in_lane(store, "run-5", width=3, parked_max=2))
    assert isinstance(answer, Refused)
    assert answer.no_room == "full"


async def test_a_start_that_would_make_the_lane_wider_counts_those_that_are_parked_now(store: Store) -> None:
    for n in range(3):
        await enter(store, f"run-{n}")
    answer = await offer(store, in_lane(store, "run-3", key="order:3", width=3, parked_max=2))
    assert isinstance(answer, Refused)
    assert answer.no_room == "full"
    assert (await state(store)).lane.width == 1


async def test_a_lane_may_have_any_name(store: Store) -> None:
    names = ["\0", "\1", "\0\1", "a\0b", "{hf:x:1}", "ä\N{SNOWMAN}.*>"]
    for n, lane in enumerate(names):
        await enter(store, f"run-{n}0", lane=lane, key=f"order:{n}")
        await enter(store, f"run-{n}1", lane=lane)
    assert [found.lane.name for found in await store.lanes("default")] == sorted(names)
    assert await claimed(store) == [f"run-{n}0" for n in range(len(names))]
    for n in range(len(names)):
        assert await end(store, f"run-{n}0") == (f"run-{n}1",)
    assert await claimed(store) == [f"run-{n}1" for n in range(len(names))]
