"""What one process does for all: by whom, what becomes of it when that one dies, and what it costs (S2)."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from holdfast.engine.duties.leaders import DUTIES
from holdfast.errors import StoreUnavailable
from holdfast.events import AskedInVain, Deposed, EffectBegan, Elected, RunsRescued
from tests.integration.conftest import Holding, Home, eventually, heard, owner_of
from tests.integration.wrappers import CountingStore, SeverableStore, StoreWrapper

SHORT = "600ms"


def _leads(hf: Any) -> bool:
    return bool(hf.runtime.duties_led) and all(hf.runtime.duties_led.values())


async def test_of_two_processes_one_attends_to_each_duty_and_everybody_sees_which(home: Home) -> None:
    made: list[CountingStore] = []

    def through(store: Any) -> CountingStore:
        made.append(CountingStore(store))
        return made[-1]

    async with home.holdfast(through=through, lease=SHORT) as first:
        await eventually(lambda: _leads(first))
        async with home.holdfast(through=through, lease=SHORT) as second:
            before = made[1].calls["named"]
            await eventually(lambda: made[1].calls["named"] >= before + 3)  # it has looked, again and again
            assert second.runtime.duties_led == dict.fromkeys(DUTIES, False)

            async def all_see_it() -> bool:  # between two renewals that are late, none leads
                seen = [await each.runtime.leaders() for each in (first, second)]
                return seen == [dict.fromkeys(DUTIES, first.runtime.instance)] * 2

            await eventually(all_see_it)
            assert (made[1].calls["rescue"], made[1].calls["prune"], made[1].calls["relay"]) == (0, 0, 0)
            assert made[1].calls["write"] == 1  # which code it has
        assert heard(second).all(Elected) == []
        assert heard(first).all(Deposed) == []


async def test_a_leader_that_stops_hands_over_at_once(home: Home) -> None:
    """Its leases are long: without a release nobody else would lead within the time that this test has."""
    async with home.holdfast(worker=False, duties=True, lease="10m") as first:
        await eventually(lambda: _leads(first))
    async with home.holdfast(worker=False, duties=True, lease="10m") as second:
        await eventually(lambda: _leads(second))
        terms = {event.duty: event.term for event in heard(first).all(Elected)}
        assert all(event.term > terms[event.duty] for event in heard(second).all(Elected))
        assert heard(first).all(Deposed) == []  # it let go by itself


async def test_a_silent_leader_is_replaced_and_the_runs_that_it_held_are_freed(home: Home) -> None:
    holding, made = Holding(), list[SeverableStore]()

    def through(store: Any) -> SeverableStore:
        made.append(SeverableStore(store))
        return made[0]

    async with home.holdfast(holding.pack, through=through, lease=SHORT) as first:
        await eventually(lambda: _leads(first))
        run = (await first.start(holding.work(7))).run
        await heard(first).until(EffectBegan)
        async with home.holdfast(holding.pack, lease=SHORT) as second:
            made[0].sever()
            await heard(second).until(Elected, duty="rescuer")
            await heard(first).until(Deposed, duty="rescuer")
            assert (await heard(second).until(RunsRescued)).run_ids == (run.id,)
            holding.gate.set()
            assert await (await second.get(run.id)).result(timeout=30) == 7


async def test_everybody_sees_the_same_workers_in_the_same_order(home: Home) -> None:
    """S6: they are the leases in the store, so there is nothing that two gateways could disagree about."""
    pack = Holding().pack
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(home.holdfast(pack, lease="10m")) for _ in range(3)]
        gateways = [await stack.enter_async_context(home.holdfast(pack, worker=False)) for _ in range(2)]
        one, other = [await gateway.workers() for gateway in gateways]
        assert one == other
        assert one == sorted(one, key=lambda member: (member.joined_at_ms, member.owner))
        assert {member.owner for member in one} == {owner_of(worker) for worker in workers}


async def test_a_process_may_attend_to_duties_and_execute_nothing(home: Home) -> None:
    """A scheduler: it frees the run of a worker that leads nothing itself, for another worker to take up."""
    holding, silent = Holding(), False

    class Silent(StoreWrapper):
        async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
            if silent and name not in {"open", "close"}:
                raise StoreUnavailable("cut off")
            return await verb(*args)

    async with home.holdfast(worker=False, duties=True, lease=SHORT) as scheduler:
        await eventually(lambda: _leads(scheduler))
        async with home.holdfast(holding.pack, through=Silent, duties=False, lease=SHORT) as dying:
            run = (await dying.start(holding.work(1))).run
            await heard(dying).until(EffectBegan)
            silent = True
            assert (await heard(scheduler).until(RunsRescued)).run_ids == (run.id,)
            async with home.holdfast(holding.pack, duties=False) as worker:
                await heard(worker).until(EffectBegan)
                holding.gate.set()
                assert await (await worker.get(run.id)).result(timeout=30) == 1
                assert [each.owner for each in await scheduler.workers()] == [owner_of(worker)]
            assert heard(worker).all(AskedInVain, part="rescuer") == []
            assert (dying.runtime.duties_led, worker.runtime.duties_led) == ({}, {})
    assert scheduler.runtime.owner is None
