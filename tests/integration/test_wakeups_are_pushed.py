"""No wake-up may be lost in the gap between looking and waiting: with the safety polls off, that would be for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import apsw
import pytest
from msgspec import Raw

from holdfast import HoldfastError, Pack, Retry, hook
from holdfast.events import EffectBegan, RunOvertaken
from holdfast.kernel import transitions
from holdfast.kernel.journal import Spawned, Value
from holdfast.kernel.runs import Run
from holdfast.ports.notices import Notice, Ready
from holdfast.ports.store import Claim, Claimed, Store
from tests.integration.conftest import Holding, Home, SqliteHome, eventually, heard, owner_of, worker_of
from tests.integration.wrappers import GatedStore, StoreWrapper


async def test_whoever_waits_learns_the_end_though_the_run_was_taken_away_meanwhile(home: Home) -> None:
    """The run ends elsewhere while this process still believes that it holds it."""
    pack = Pack("p")
    gate = asyncio.Event()
    calls = 0

    @pack.effect(retry=Retry(attempts=1))
    async def act() -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            await gate.wait()
        return "done"

    @pack.workflow
    async def work() -> str:
        return await act()

    class NeverClaims(StoreWrapper):
        """What is taken away from it, it must not get back."""

        async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
            return Claimed([]) if name == "claim" else await verb(*args)

    async with home.holdfast(pack, through=NeverClaims) as first:
        run = (await first.start(work())).run
        await heard(first).until(EffectBegan)
        waiting = asyncio.create_task(run.result(timeout=30))
        async with home.holdfast(pack) as second:
            somebody = home.store()
            await somebody.open()
            await somebody.leave(owner_of(first))  # declares it dead
            await somebody.close()
            assert await (await second.get(run.id)).result(timeout=30) == "done"
        gate.set()
        await heard(first).until(RunOvertaken)
        assert await waiting == "done"


async def _stolen(store: Store) -> list[Run]:
    return (await store.claim(Claim("default", "thief", "n", ("p.work",), 1))).runs


async def _has(run: Any, kind: type) -> bool:
    return any(isinstance(entry, kind) for entry in await run.journal())


async def test_a_message_that_comes_while_a_run_is_being_taken_up_is_delivered(home: Home) -> None:
    """It came after the history was read and before the run was in memory; the run has other things in flight."""
    home.paced(grace_seconds=0.05)
    pack = Pack("p")
    never = asyncio.Event()

    @pack.effect
    async def hold() -> str:
        await never.wait()
        return "held"

    @pack.workflow
    async def child() -> str:
        return await hold()

    @pack.workflow
    async def parent() -> str:
        racers = {asyncio.ensure_future(child()), asyncio.ensure_future(hold())}
        done, _ = await asyncio.wait(racers, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()

    class Late(StoreWrapper):
        """Ends the child just after the parent's history was read, and lets everybody hear of it first."""

        async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
            answer = await verb(*args)
            if name == "histories" and [history.run.id for history in answer] == [run.id]:
                elsewhere = home.store()
                await elsewhere.open()
                [kid] = (await elsewhere.claim(Claim("default", "thief", "n", ("p.child",), 1))).runs
                value = Value(Raw(b'"the child came first"'))
                await elsewhere.commit(
                    [transitions.decide(kid, transitions.RunReturned(value), now_ms=elsewhere.now_ms())]
                )
                await asyncio.sleep(0.1)
                await elsewhere.close()
            return answer

    async with home.holdfast(pack) as first:
        run = (await first.start(parent())).run
        await heard(first).until(EffectBegan, count=2)
        await eventually(lambda: _has(run, Spawned))
        worker_of(first).slots.is_closed = True  # it takes nothing up any more
        worker_of(first).drop_all()  # as if its lease were lost
        store = first._replica._ports.store
        await store.leave(owner_of(first))
        [row] = await store.runs([run.id])
        assert row.owner is None
        # The child stays with nobody for now: only the parent's workflow is served.
        only_parent = Pack("p")
        only_parent.workflows["p.parent"] = parent
        only_parent.effects.update(pack.effects)
        async with home.holdfast(only_parent, through=Late) as second:
            assert await (await second.get(run.id)).result(timeout=30) == "the child came first"


async def test_a_run_that_is_let_go_and_woken_in_one_breath_is_taken_up_again(home: Home) -> None:
    """It is claimed while the memory of its former life is still being cleared away."""
    holding = Holding()
    made: list[GatedStore] = []

    def through(store: Any) -> GatedStore:
        def lets_go(changes: Any) -> bool:
            return any(change.run is not None and change.run.status == "waiting" for change in changes)

        made.append(GatedStore(store, lets_go))
        return made[0]

    async with home.holdfast(holding.pack, through=through) as hf:
        run = (await hf.start(holding.parent(7))).run
        await asyncio.wait_for(made[0].reached.wait(), 30)
        holding.gate.set()
        # The child's end travels right behind, or beside it.
        await eventually(lambda: hf._replica._committer._waiting or len(worker_of(hf).held) == 1)
        made[0].gate.set()
        assert await run.result(timeout=30) == 7


async def test_a_timer_that_is_set_while_the_next_one_is_being_looked_up_is_not_missed(home: Home) -> None:
    """The answer to "when is the next?" was true when it was read. Meanwhile another one was set."""
    pack = Pack("p")
    started = asyncio.Event()
    asked = asyncio.Event()

    @pack.workflow
    async def work(n: int) -> int:
        return n

    class Slow(StoreWrapper):
        """Another process takes the run that was due, and the answer that nothing else is due travels slowly."""

        armed = False

        async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
            if name != "next_wake_at_ms" or not self.armed:
                return await verb(*args)
            self.armed = False
            await eventually(lambda: _stolen(self.inner))
            answer = await verb(*args)
            assert answer is None
            asked.set()
            await started.wait()
            return answer

    made: list[Slow] = []

    def through(store: Any) -> Slow:
        made.append(Slow(store))
        return made[0]

    async with home.holdfast(pack, through=through) as hf:
        await made[0].inner.join("thief", 3_600_000)
        await hf.start(work(1), delay="1s")
        await eventually(lambda: hf._replica._wakeups._woken.waker._planned_at_ms is not None)
        made[0].armed = True
        await asyncio.wait_for(asked.wait(), 30)
        second = (await hf.start(work(2), delay="100ms")).run
        started.set()
        assert await second.result(timeout=30) == 2


async def test_a_claim_while_the_next_timer_is_being_looked_up_does_not_hide_the_one_after_it(home: Home) -> None:
    """The answer to "when is the next?" is the run that is claimed meanwhile: it must be asked again."""
    holding = Holding()
    work = holding.work
    looked, go_on = asyncio.Event(), asyncio.Event()

    class Slow(StoreWrapper):
        """The answer that a run is due travels slowly, once."""

        dues = 0
        armed = False

        async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
            answer = await verb(*args)
            self.dues += name == "next_wake_at_ms" and answer is not None
            if name == "next_wake_at_ms" and self.armed:
                self.armed = False
                looked.set()
                await go_on.wait()
            return answer

    made: list[Slow] = []

    def through(store: Any) -> Slow:
        made.append(Slow(store))
        return made[0]

    home.paced(wake_again_seconds=3600.0)  # what is looked for here must not be found by looking
    async with home.holdfast(holding.pack, concurrency=1, through=through) as hf:
        await hf.start(work(0))
        await heard(hf).until(EffectBegan)
        second = (await hf.start(work(1))).run  # there is no room for it
        await eventually(lambda: made[0].dues)
        made[0].armed = True
        third = (await hf.start(work(2), delay="500ms")).run
        await asyncio.wait_for(looked.wait(), 30)
        holding.gate.set()
        assert await second.result(timeout=30) == 1
        go_on.set()
        assert await third.result(timeout=30) == 2


async def test_what_others_send_to_a_fresh_run_before_it_is_adopted_is_delivered(home: Home) -> None:
    """The admission is durable and others know of it, and its reply is on the way: the run is not in memory yet."""
    pack = Pack("p")
    never = asyncio.Event()

    @pack.effect
    async def hold() -> None:
        await never.wait()

    @pack.workflow(key="ask")
    async def ask() -> Any:
        holding = asyncio.create_task(hold())
        word = await hook("word")
        holding.cancel()
        return word

    class SlowReply(StoreWrapper):
        """Another process has the run, signals it, and tells of that, before the reply to the admission comes."""

        has_sent = False

        async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
            result = await verb(*args)
            if name == "commit" and not self.has_sent:
                self.has_sent = True
                told = len(notices)
                await (await client.find(ask, "ask")).signal("word", "early")
                await eventually(lambda: len(notices) > told)
            return result

        def watch(self, on_notice: Callable[[Notice], bool]) -> None:
            def noted(notice: Notice) -> bool:
                notices.append(notice)
                return on_notice(notice)

            self.inner.watch(noted)

    notices: list[Notice] = []
    async with home.holdfast(pack, worker=False) as client, home.holdfast(pack, through=SlowReply) as hf:
        run = (await hf.start(ask())).run
        assert await run.result(timeout=30) == "early"


async def test_a_worker_whose_claim_was_in_vain_looks_for_the_next_timer_again(home: Home) -> None:
    """Another one has taken what was due: nothing else tells this one that its look was for nothing."""
    holding = Holding()

    class Robbed(StoreWrapper):
        """Another process is faster than the first claim."""

        robbed = False

        async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
            if name == "claim" and not self.robbed:
                self.robbed = bool(await _stolen(self.inner))
            return await verb(*args)

    async with home.holdfast(holding.pack, worker=False) as client:
        await client.start(holding.work(0), delay="200ms")
        second = (await client.start(holding.work(1), delay="400ms")).run
        async with home.holdfast(holding.pack, through=Robbed) as hf:
            await hf._replica._ports.store.inner.join("thief", 3_600_000)
            holding.gate.set()
            assert await second.result(timeout=30) == 1


@pytest.mark.parametrize(
    "odd_journal",
    [
        b'[{"what":"started","at_ms":1,"input":{"json":{"n":0}}},{"what":"teleported","at_ms":2}]',
        b'[{"what":"started","at_ms":1,"input":{"blob":"\xff"}}]',
    ],
    ids=["of a newer version", "no UTF-8"],
)
async def test_one_run_that_cannot_be_read_does_not_stop_the_others(
    sqlite_home: SqliteHome, odd_journal: bytes
) -> None:
    """Its journal was damaged, or written by a newer Holdfast: it is set aside, and the worker goes on."""
    pack = Pack("p")

    @pack.workflow
    async def work(n: int) -> int:
        return n

    async with sqlite_home.holdfast(pack, worker=False) as client:
        odd = (await client.start(work(0))).run
        db = apsw.Connection(str(sqlite_home.path))
        db.execute("UPDATE journal SET entries = ? WHERE run_id = ?", (odd_journal, odd.id))
        db.close()
        others = [(await client.start(work(n))).run for n in range(1, 4)]
        async with sqlite_home.holdfast(pack) as hf:
            assert [await run.result(timeout=30) for run in others] == [1, 2, 3]
            assert await (await hf.start(work(9))).run.result(timeout=30) == 9
            with pytest.raises(HoldfastError):
                await odd.result(timeout=1)


async def test_a_full_worker_keeps_no_wake_up_to_itself_though_the_clock_of_the_sender_is_ahead(home: Home) -> None:
    """Only one of the workers is given a wake-up: one that planned for it, and then had no room, would swallow it."""
    pack = Pack("p")
    gate = asyncio.Event()

    @pack.effect
    async def hold() -> None:
        await gate.wait()

    @pack.workflow
    async def work() -> None:
        await hold()

    class Watched(StoreWrapper):
        def watch(self, on_notice: Callable[[Notice], bool]) -> None:
            self.inner.watch(on_notice)
            told.append(on_notice)

    told: list[Callable[[Notice], bool]] = []
    async with home.holdfast(pack, through=Watched, concurrency=1) as hf:
        now_ms = hf._replica.store.now_ms()
        of_another_clock = Notice(ready=(Ready("default", "p.work", now_ms + 60_000),))
        assert told[0](of_another_clock)
        run = (await hf.start(work())).run
        await heard(hf).until(EffectBegan)
        assert not told[0](of_another_clock)
        gate.set()
        await run.result(timeout=30)
