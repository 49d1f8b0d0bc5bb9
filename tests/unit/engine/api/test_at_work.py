"""Which effects run now, as the workers have told it to the store."""

from __future__ import annotations

import pytest

from holdfast.engine.api.at_work import StepsAtWork
from holdfast.engine.api.start_options import StartOptions
from holdfast.kernel import running_effects, transitions
from holdfast.kernel.changes import Beat, Change, Committed
from holdfast.kernel.journal import Performed
from holdfast.kernel.running_effects import RunningEffect, StepAtWork
from holdfast.kernel.runs import Run
from holdfast.kernel.transitions import Recorded
from holdfast.ports.store import Serves
from tests.builders import a_value, an_intent
from tests.unit.engine.api.conftest import Api, checkout

TTL_MS = 30_000


def a_step(run: Run, step: str = "charge#1") -> StepAtWork:
    return StepAtWork(run.id, run.epoch, run.length, step, RunningEffect("shop.charge", 1, run.created_at_ms))


class World:
    """A run that a worker of another process executes."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.at_work = StepsAtWork(api.store, "default", None)

    async def claimed(self, order: str) -> Run:
        call = checkout(order)
        await self.api.service.start(call, StartOptions())
        members = [member.owner for member in await self.api.store.members("default")]
        if "w-1" not in members:
            await self.api.store.join("w-1", TTL_MS, Serves("default", ()))
        return await self.api.claim()

    async def tell(self, *steps: StepAtWork) -> None:
        self.api.clock.advance(TTL_MS // 6)
        writing = running_effects.tell(
            "default", "w-1", steps, last=None, now_ms=self.api.store.now_ms(), ttl_ms=TTL_MS
        )
        assert writing is not None
        assert await self.api.store.write([writing]) == [True]

    async def record(self, run: Run, step: str) -> Run:
        entry = Performed(self.api.store.now_ms(), step, an_intent(), 1, a_value())
        [answer] = await self.api.store.commit([transitions.progress(run, Recorded((entry,)))])
        assert isinstance(answer, Committed)
        assert answer.run is not None
        return answer.run

    async def seen(self, *runs: Run) -> list[list[str]]:
        found = await self.at_work.of(runs)
        return [[step.step for step in found.get(run.id, ())] for run in runs]


@pytest.fixture
def world(api: Api) -> World:
    return World(api)


async def test_what_a_worker_tells_of_its_runs_is_seen(world: World) -> None:
    first, second = await world.claimed("a"), await world.claimed("b")
    await world.tell(a_step(first), a_step(second), a_step(second, "ship#1"))
    assert await world.seen(first, second) == [["charge#1"], ["charge#1", "ship#1"]]
    assert await world.seen(first) == [["charge#1"]]


async def test_of_a_single_run_its_journal_says_which_of_them_have_ended(world: World) -> None:
    run = await world.claimed("a")
    await world.tell(a_step(run), a_step(run, "ship#1"))
    run = await world.record(run, "charge#1")
    assert await world.seen(run) == [["ship#1"]]
    run = await world.record(run, "ship#1")
    assert await world.seen(run) == [[]]


async def test_of_many_runs_those_that_have_moved_on_are_left_out(world: World) -> None:
    first, second = await world.claimed("a"), await world.claimed("b")
    await world.tell(a_step(first), a_step(second), a_step(second, "ship#1"))
    second = await world.record(second, "charge#1")
    assert await world.seen(first, second) == [["charge#1"], []]


async def test_a_run_that_has_changed_hands_is_not_at_what_its_former_worker_told(world: World) -> None:
    run = await world.claimed("a")
    await world.tell(a_step(run))
    await world.api.store.leave("w-1")
    run = await world.api.claim("w-2")
    assert await world.seen(run) == [[]]


@pytest.mark.parametrize("lives", [True, False])
async def test_what_a_silent_worker_was_at_is_lost_only_if_its_lease_has_expired(world: World, lives: bool) -> None:
    run = await world.claimed("a")
    await world.tell(a_step(run))
    for _ in range(6):
        world.api.clock.advance(TTL_MS // 4)
        if lives:
            assert await world.api.store.renew("w-1", TTL_MS)
    [step] = (await world.at_work.of([run]))[run.id]
    assert step.effect.lost is not lives


async def test_with_its_history_at_hand_it_has_the_newest_heartbeat(world: World) -> None:
    run = await world.claimed("a")
    await world.tell(a_step(run), a_step(run, "ship#1"))
    run = await world.record(run, "charge#1")
    await world.api.store.commit([Change("beat", run.fence, beats=(Beat("ship#1", b"3"),))])
    [history] = await world.api.store.histories([run.id])
    [step] = await world.at_work.in_history(history)
    assert (step.step, step.effect.heartbeat) == ("ship#1", 3)


async def test_nothing_is_read_for_runs_that_no_worker_has(world: World) -> None:
    run, _ = await world.api.service.start(checkout("a"), StartOptions())
    assert await world.at_work.of([run]) == {}
    [history] = await world.api.store.histories([run.id])
    assert await world.at_work.in_history(history) == ()


async def test_what_is_in_memory_here_is_looked_at(world: World) -> None:
    run = await world.claimed("a")
    here = StepsAtWork(world.api.store, "default", lambda each: (a_step(each, "here#1"),))
    await world.tell(a_step(run))
    [history] = await world.api.store.histories([run.id])
    assert [step.step for step in (await here.of([run]))[run.id]] == ["here#1"]
    assert [step.step for step in await here.in_history(history)] == ["here#1"]
