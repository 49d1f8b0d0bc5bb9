"""Stopping in order gives everything back; falling silent leaves it to others. Nothing is lost, nothing done twice."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Pack, Retry, UsageError, effect_key, hook, sleep
from holdfast.errors import EngineFault, StoreUnavailable
from holdfast.events import (
    AskedInVain,
    EffectBegan,
    LeaseWasLost,
    ReplicaStopped,
    RunEnded,
    RunLetGo,
    RunOvertaken,
    RunsClaimed,
    RunsRescued,
    StoreTroubled,
)
from holdfast.kernel.runs import Status
from holdfast.ports.store import Claim
from tests.integration.conftest import Home, eventually, heard, owner_of, worker_of
from tests.integration.wrappers import GatedStore, SeverableStore, StoreWrapper

LEASE = "600ms"  # of whoever falls silent
LONGER = "2s"  # of whoever takes over; it looks for silent ones at a third of it


class Plant:
    """Two effects around a gate."""

    def __init__(self) -> None:
        self.pack = Pack("plant")
        self.gate = asyncio.Event()
        self.ledger: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()

        @self.pack.effect(retry=Retry(attempts=1))
        async def act(name: str) -> str:
            self.ledger[effect_key()] += 1
            if name == "slow":
                await self.gate.wait()
            self.finished[effect_key()] += 1
            return name

        @self.pack.workflow(key="k:{n}")
        async def work(n: int) -> list[str]:
            return [await act("quick"), await act("slow"), await act("last")]

        self.work = work


class SlowToHand(StoreWrapper):
    """Hands out runs when the gate is opened, though they have been claimed before."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.claimed, self.gate, self.handed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
        answer = await verb(*args)
        if name == "claim" and answer.runs:
            self.claimed.set()
            await self.gate.wait()
            if answer.histories:  # they came along: nothing else is asked for
                self.handed.set()
        if name == "histories":
            self.handed.set()
        return answer


async def test_a_run_whose_claim_was_under_way_when_it_winds_down_begins_nothing_and_is_given_back(home: Home) -> None:
    plant, stores = Plant(), list[SlowToHand]()
    plant.gate.set()

    def through(store: Any) -> SlowToHand:
        stores.append(SlowToHand(store))
        return stores[0]

    async with home.holdfast(plant.pack, worker=False) as client:
        run = (await client.start(plant.work(1))).run
        async with home.holdfast(plant.pack, through=through) as hf:
            [store] = stores
            await asyncio.wait_for(store.claimed.wait(), 30)
            hf.runtime.wind_down()
            store.gate.set()
            await asyncio.wait_for(store.handed.wait(), 30)
        assert heard(hf).all(EffectBegan) == []
        assert plant.ledger == {}
        async with home.holdfast(plant.pack):
            assert await run.result(timeout=30) == ["quick", "slow", "last"]


async def test_a_stop_lets_effects_in_flight_end_and_begins_nothing_new(home: Home) -> None:
    plant = Plant()
    async with home.holdfast(plant.pack) as hf:
        seen = heard(hf)
        run = (await hf.start(plant.work(1))).run
        await seen.until(EffectBegan, step="act#2")
        asyncio.get_running_loop().call_later(0.05, plant.gate.set)
    assert seen.all(EffectBegan, step="act#3") == []
    [stopped] = seen.all(ReplicaStopped)
    assert stopped.given_back == 0
    async with home.holdfast(plant.pack) as hf:
        run = await hf.get(run.id)
        steps = [getattr(entry, "step", "") for entry in await run.journal()]
        assert steps[:3] == ["", "act#1", "act#2"]  # what had ended is recorded
        assert await run.result(timeout=30) == ["quick", "slow", "last"]
    assert set(plant.ledger.values()) == {1}


async def test_a_stop_that_comes_while_a_record_is_written_begins_nothing_after_it(home: Home) -> None:
    plant = Plant()
    plant.gate.set()
    gated: list[GatedStore] = []

    def through(store: Any) -> GatedStore:
        def records_first(changes: Any) -> bool:
            return any(getattr(entry, "step", "") == "act#1" for change in changes for entry in change.entries)

        gated.append(GatedStore(store, records_first))
        return gated[0]

    async with home.holdfast(plant.pack, through=through) as hf:
        run = (await hf.start(plant.work(1))).run
        await asyncio.wait_for(gated[0].reached.wait(), 30)
        asyncio.get_running_loop().call_later(0.05, gated[0].gate.set)
    assert heard(hf).all(EffectBegan, step="act#2") == []
    async with home.holdfast(plant.pack) as hf:
        assert await (await hf.get(run.id)).result(timeout=30) == ["quick", "slow", "last"]
    assert set(plant.ledger.values()) == {1}


async def test_a_stop_leaves_no_run_owned(home: Home) -> None:
    plant = Plant()
    plant.gate.set()
    async with home.holdfast(plant.pack) as hf:
        owner = owner_of(hf)
        runs = [(await hf.start(plant.work(n))).run for n in range(20)]
    store = home.store()
    await store.open()
    assert await store.held(owner) == []
    assert not await store.renew(owner, 1_000)
    rows = await store.runs([run.id for run in runs])
    assert {row.status for row in rows} <= {Status.PENDING, Status.WAITING, Status.COMPLETED}
    await store.close()
    async with home.holdfast(plant.pack) as hf:
        for run in runs:
            assert await (await hf.get(run.id)).result(timeout=30) == ["quick", "slow", "last"]
    assert set(plant.ledger.values()) == {1}


async def test_an_effect_that_does_not_end_within_the_grace_is_given_up_and_tried_elsewhere(home: Home) -> None:
    home.paced(grace_seconds=0.05)
    plant = Plant()
    async with home.holdfast(plant.pack) as hf:
        seen = heard(hf)
        run = (await hf.start(plant.work(1))).run
        await seen.until(EffectBegan, step="act#2")
    [stopped] = seen.all(ReplicaStopped)
    assert stopped.given_back == 1
    plant.gate.set()
    async with home.holdfast(plant.pack) as hf:
        assert await (await hf.get(run.id)).result(timeout=30) == ["quick", "slow", "last"]
    assert plant.ledger == {f"{run.id}/act#1": 1, f"{run.id}/act#2": 2, f"{run.id}/act#3": 1}
    assert set(plant.finished.values()) == {1}


async def test_a_sync_effect_that_hangs_does_not_keep_the_process_from_stopping(home: Home) -> None:
    home.paced(grace_seconds=0.05)
    pack = Pack("p")
    release = threading.Event()

    @pack.effect
    def hang() -> None:
        release.wait(30)

    @pack.workflow
    async def work() -> None:
        await hang()

    async with asyncio.timeout(30):
        async with home.holdfast(pack) as hf:
            seen = heard(hf)
            run = (await hf.start(work())).run
            await seen.until(EffectBegan)
    release.set()
    async with home.holdfast(pack) as hf:
        await (await hf.get(run.id)).result(timeout=30)


async def test_starts_under_way_while_it_stops_are_admitted_or_refused_and_never_forgotten(home: Home) -> None:
    """A start that was promised to this process's own hand must not be left in it."""
    plant = Plant()
    plant.gate.set()
    gated: list[GatedStore] = []

    def through(store: Any) -> GatedStore:
        gated.append(GatedStore(store, lambda _: True))
        return gated[0]

    hf = home.holdfast(plant.pack, through=through)
    async with hf:
        starts = [asyncio.create_task(hf.start(plant.work(n))) for n in range(30)]
        await asyncio.wait_for(gated[0].reached.wait(), 30)
        starts += [asyncio.create_task(hf.start(plant.work(n))) for n in range(30, 60)]
        asyncio.get_running_loop().call_later(0.05, gated[0].gate.set)
    answers = await asyncio.gather(*starts, return_exceptions=True)
    admitted = [answer.run.id for answer in answers if not isinstance(answer, BaseException)]
    refused = [answer for answer in answers if isinstance(answer, BaseException)]
    assert all(isinstance(error, StoreUnavailable | UsageError) for error in refused), refused
    assert admitted
    async with home.holdfast(plant.pack, lease=LONGER) as other:
        for run_id in admitted:
            assert await (await other.get(run_id)).result(timeout=30) == ["quick", "slow", "last"]
    assert set(plant.ledger.values()) == {1}


def _severable(home: Home, pack: Pack) -> tuple[Any, SeverableStore]:
    made: list[SeverableStore] = []

    def through(store: Any) -> SeverableStore:
        made.append(SeverableStore(store))
        return made[0]

    return home.holdfast(pack, through=through, lease=LEASE), made[0]


async def test_the_work_of_a_silent_process_is_taken_over_and_its_effects_keep_their_keys(home: Home) -> None:
    """L6: within its lease and one look, by whoever lives; once in the ledger for all that was recorded."""
    plant = Plant()
    first, store = _severable(home, plant.pack)
    async with first:
        lost = heard(first)
        runs = [(await first.start(plant.work(n))).run for n in range(5)]
        await lost.until(EffectBegan, step="act#2", count=5)
        store.sever()
        async with home.holdfast(plant.pack, lease=LONGER) as second:
            seen = heard(second)
            await seen.until(EffectBegan, step="act#2", count=5)
            plant.gate.set()
            for run in runs:
                taken = await second.get(run.id)
                assert await taken.result(timeout=30) == ["quick", "slow", "last"]
                assert taken.fence > run.fence
            rescued = {run_id for event in seen.all(RunsRescued) for run_id in event.run_ids}
            assert rescued == {run.id for run in runs}
        await lost.until(LeaseWasLost)
    for run in runs:
        assert plant.ledger[f"{run.id}/act#1"] == 1
        assert plant.ledger[f"{run.id}/act#2"] == 2  # begun by both, under one key
        assert plant.ledger[f"{run.id}/act#3"] == 1


async def test_a_timer_that_is_pending_when_its_run_is_taken_over_is_as_far_away_as_before(home: Home) -> None:
    """An effect keeps the run in memory beside the timer, so the timer is pending when the process falls silent."""
    plant = Plant()

    @plant.pack.effect
    async def woken() -> str:
        plant.ledger["woken"] += 1
        return "woken"

    @plant.pack.effect
    async def slow() -> str:
        plant.ledger["slow"] += 1
        await plant.gate.wait()
        return "slow"

    @plant.pack.workflow(key="nap")
    async def nap() -> list[str]:
        async def later() -> str:
            await sleep("1h")
            return await woken()

        return await asyncio.gather(slow(), later())

    first, store = _severable(home, plant.pack)
    async with first:
        run = (await first.start(nap())).run
        await heard(first).until(EffectBegan, step="0/slow#1")
        store.sever()
        async with home.holdfast(plant.pack, lease=LONGER) as second:
            seen = heard(second)
            await seen.until(EffectBegan, step="0/slow#1")
            plant.gate.set()
            await eventually(lambda: seen.all(RunLetGo) or seen.all(RunEnded))
            taken = await second.get(run.id)
            [wait] = [wait for wait in taken.waiting_on if wait.kind == "timer"]
            assert wait.until is not None
            assert wait.until >= taken.created_at + timedelta(hours=1)
            journal = await taken.journal()
    assert [entry.what for entry in journal] == ["started", "performed"]
    assert plant.ledger == {"slow": 2}


async def test_a_process_that_lost_its_lease_gives_up_quietly_and_works_on_under_a_new_one(home: Home) -> None:
    """Stalled, not dead: what it held is with somebody else; what comes later it does again."""
    plant = Plant()
    silent = False

    class Stalled(StoreWrapper):
        async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
            if silent and name in {"renew", "commit", "join"}:
                raise StoreUnavailable("stalled")
            return await verb(*args)

    async with home.holdfast(plant.pack, through=Stalled, lease=LEASE) as first:
        seen = heard(first)
        run = (await first.start(plant.work(1))).run
        await seen.until(EffectBegan, step="act#2")
        silent = True
        async with home.holdfast(plant.pack, lease=LONGER) as second:
            await heard(second).until(EffectBegan, step="act#2")
            await seen.until(LeaseWasLost)
            plant.gate.set()
            assert await (await second.get(run.id)).result(timeout=30) == ["quick", "slow", "last"]
        silent = False
        again = await eventually(lambda: _started(first, plant))
        assert await again.result(timeout=30) == ["quick", "slow", "last"]
        assert (await first.get(run.id)).status == "completed"
    assert plant.finished[f"{run.id}/act#2"] == 1  # the first one's was cancelled with its lease


async def _started(hf: Any, plant: Plant) -> Any:
    try:
        return (await hf.start(plant.work(2))).run
    except StoreUnavailable:
        return None


async def test_a_late_commit_is_refused_and_its_writer_stops(home: Home) -> None:
    """The fence, end to end: the run changes hands behind the back of a process that believes in its lease."""
    plant = Plant()
    async with home.holdfast(plant.pack) as first:
        seen = heard(first)
        run = (await first.start(plant.work(1))).run
        await seen.until(EffectBegan, step="act#2")
        store = home.store()
        await store.open()
        await store.leave(owner_of(first))  # somebody declared it dead
        plant.gate.set()
        await seen.until(RunOvertaken, run_id=run.id)
        assert seen.all(EffectBegan, step="act#3") == []
        if store is not first._replica._ports.store:
            await store.close()
    async with home.holdfast(plant.pack) as second:
        assert await (await second.get(run.id)).result(timeout=30) == ["quick", "slow", "last"]
    assert plant.ledger[f"{run.id}/act#3"] == 1


async def test_a_run_that_is_claimed_again_by_the_process_that_still_executes_it_is_taken_up_in_the_end(
    home: Home,
) -> None:
    """As after a store has forgotten a claim: what is in memory is void, but learns it only with its next write."""
    plant = Plant()
    async with home.holdfast(plant.pack) as hf:
        seen = heard(hf)
        run = (await hf.start(plant.work(1))).run
        await seen.until(EffectBegan, step="act#2")
        store, worker = home.store(), worker_of(hf)
        await store.open()
        claimed = len(seen.all(RunsClaimed))
        await store.leave(owner_of(hf))  # it may be told of that, and be faster than the ring
        await store.join(owner_of(hf), 60_000)
        worker.claims.ring()
        await seen.until(RunsClaimed, count=claimed + 1)
        looked = len(seen.all(AskedInVain, part="claim"))
        worker.claims.ring()  # it looks for work once more before it learns it
        await seen.until(AskedInVain, part="claim", count=looked + 1)
        plant.gate.set()
        await seen.until(RunOvertaken, run_id=run.id)
        assert await run.result(timeout=20) == ["quick", "slow", "last"]
        if store is not hf._replica._ports.store:
            await store.close()


class SlowToLetGo(StoreWrapper):
    """Answers that a run was let go when the gate is opened, though it may be claimed before."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.let_go, self.gate = asyncio.Event(), asyncio.Event()

    async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
        answer = await verb(*args)
        if name == "commit" and any(change.run and change.run.status is Status.WAITING for change in args[0]):
            self.let_go.set()
            await self.gate.wait()
        return answer


async def test_a_run_that_is_claimed_again_before_its_process_knows_that_it_was_let_go_is_taken_up(home: Home) -> None:
    pack, stores = Pack("plant"), list[SlowToLetGo]()

    @pack.workflow(key="k")
    async def listening() -> str:
        async with hook("word", type=str) as words:
            return await words

    def through(store: Any) -> SlowToLetGo:
        stores.append(SlowToLetGo(store))
        return stores[0]

    async with home.holdfast(pack, through=through) as hf, home.holdfast(pack, worker=False) as client:
        run = (await hf.start(listening())).run
        await asyncio.wait_for(stores[0].let_go.wait(), 30)
        claimed = len(heard(hf).all(RunsClaimed))
        await (await client.get(run.id)).signal("word", "hello")
        worker_of(hf).claims.ring()
        await heard(hf).until(RunsClaimed, count=claimed + 1)
        looked = len(heard(hf).all(AskedInVain, part="claim"))
        worker_of(hf).claims.ring()
        await heard(hf).until(AskedInVain, part="claim", count=looked + 1)
        stores[0].gate.set()
        assert await run.result(timeout=20) == "hello"


async def test_a_store_that_is_away_for_a_while_costs_time_and_nothing_else(home: Home) -> None:
    plant = Plant()
    plant.gate.set()
    away = False

    class Away(StoreWrapper):
        async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
            if away and name not in {"open", "close"}:
                raise StoreUnavailable("away")
            return await verb(*args)

    async with home.holdfast(plant.pack, through=Away) as hf:
        seen = heard(hf)
        run = (await hf.start(plant.work(1))).run
        away = True
        await seen.until(StoreTroubled, count=3)
        away = False
        assert await run.result(timeout=30) == ["quick", "slow", "last"]
    assert set(plant.ledger.values()) == {1}


async def test_a_sleeper_that_is_due_while_nobody_lives_wakes_in_the_next_process(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow
    async def nap() -> str:
        await sleep(0.02)
        return "rested"

    async with home.holdfast(pack) as hf:
        run = (await hf.start(nap())).run
    due_at_ms = run.created_at.timestamp() * 1000 + 20
    await eventually(lambda: home.clock.wall_ms() > due_at_ms + 10)
    async with home.holdfast(pack) as hf:
        assert await (await hf.get(run.id)).result(timeout=30) == "rested"


async def test_a_run_that_the_store_has_under_a_worker_that_does_not_know_of_it_is_taken_up(home: Home) -> None:
    """As after a failover that has undone the end of a run: its lease is kept, and nothing would ever execute it."""
    plant = Plant()
    plant.gate.set()
    async with home.holdfast(plant.pack, lease=LEASE) as hf:
        owner, store = owner_of(hf), hf._replica._ports.store
        worker_of(hf).slots.is_closed = True  # it takes nothing by itself
        run = (await hf.start(plant.work(1))).run
        claim = Claim("default", owner, "another nonce", frozenset({plant.work.name}), 1)
        [claimed] = (await store.claim(claim)).runs
        assert (claimed.id, claimed.owner) == (run.id, owner)
        worker_of(hf).slots.is_closed = False
        assert await run.result(timeout=20) == ["quick", "slow", "last"]
        assert not heard(hf).all(LeaseWasLost)
    assert set(plant.ledger.values()) == {1}


class LargeValuesHeldBack(StoreWrapper):
    """Hands out large values when the gate is opened; with `troubled`, it fails instead the first times."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.asked, self.gate, self.troubles = asyncio.Event(), asyncio.Event(), 0

    async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
        if name == "blob":
            self.asked.set()
            if self.troubles:
                self.troubles -= 1
                raise StoreUnavailable("in trouble")
            await self.gate.wait()
        return await verb(*args)


@pytest.mark.parametrize("troubled", [False, True])
async def test_a_run_whose_lease_is_lost_while_it_is_read_is_not_executed_and_costs_no_slot(
    home: Home, troubled: bool
) -> None:
    pack, stores, calls = Pack("plant"), list[LargeValuesHeldBack](), list[str]()

    @pack.effect
    async def note() -> None:
        calls.append("noted")

    @pack.workflow
    async def work(large: str) -> int:
        await note()
        return len(large)

    def through(store: Any) -> LargeValuesHeldBack:
        stores.append(LargeValuesHeldBack(store))
        stores[0].troubles = 3 * troubled
        return stores[0]

    async with home.holdfast(pack, worker=False) as client:
        run = (await client.start(work("x" * 400_000))).run
    async with home.holdfast(pack, through=through) as hf:
        worker, lease = worker_of(hf), hf._replica.lease
        assert lease is not None
        await stores[0].asked.wait()
        if not troubled:
            await hf.runtime.store.leave(lease.owner)
            lease._on_lost()
            lease.owner = ""
            await lease.join()
        stores[0].gate.set()
        worker.claims.ring()
        assert await (await hf.get(run.id)).result(timeout=30) == 400_000
        await eventually(lambda: worker.slots.taken == 0)
    assert calls == ["noted"]


async def test_a_run_that_something_of_ours_breaks_for_is_blocked_and_does_not_wait_forever(home: Home) -> None:
    pack = Pack("plant")

    class Breaking(StoreWrapper):
        async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
            if name == "commit" and any(change.watcher for change in args[0]):
                raise ValueError("cannot be written")
            return await verb(*args)

    @pack.workflow
    async def child() -> None: ...

    @pack.workflow
    async def parent() -> None:
        await child()

    async with home.holdfast(pack, through=Breaking) as hf:
        run = (await hf.start(parent())).run
        with pytest.raises(EngineFault, match="cannot be written"):
            await run.result(timeout=20)
