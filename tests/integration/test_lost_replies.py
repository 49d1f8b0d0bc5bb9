"""A lost reply is looked up, never acted upon blindly (E6): nothing runs twice, nothing is owned and forgotten."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from holdfast import Pack, Retry, effect_key, sleep
from holdfast.events import RunEnded, RunOvertaken, StoreTroubled
from holdfast.kernel.changes import Change
from holdfast.kernel.journal import Performed
from holdfast.kernel.runs import Run
from holdfast.kernel.times import Millis
from holdfast.ports.store import Claim, Claimed, Store
from tests.integration.conftest import Holding, Home, eventually, heard, owner_of
from tests.integration.wrappers import WRITES, LossyStore, StoreWrapper


class Trade:
    """A run with effects in sequence and side by side, a wait and a child; and a ledger of what it did."""

    def __init__(self) -> None:
        self.pack = Pack("trade")
        self.ledger: Counter[str] = Counter()

        @self.pack.effect(retry=Retry(attempts=1))
        async def act(name: str) -> str:
            self.ledger[effect_key()] += 1
            await asyncio.sleep(0)
            return name

        @self.pack.workflow(key="part:{n}")
        async def part(n: int) -> str:
            return await act(f"part {n}")

        @self.pack.workflow(key="trade:{n}")
        async def trade(n: int) -> list[str]:
            first = await act("first")
            both = await asyncio.gather(act("left"), act("right"))
            await sleep(0.001)
            return [first, *both, await part(n)]

        self.trade = trade

    def expected(self, n: int) -> list[str]:
        return ["first", "left", "right", f"part {n}"]


async def _nobody_holds_anything(hf: Any) -> bool:
    replica = hf._replica
    return await replica._ports.store.held(replica.lease.owner) == []


def _every_first_time(names: set[str]) -> Any:
    """Loses the reply of every call the first time it is made; a repetition gets through."""
    seen: set[object] = set()

    def loses(name: str, args: tuple[Any, ...]) -> bool:
        if name not in names:
            return False
        what = (name, tuple(change.id for change in args[0]) if name == "commit" else repr(args))
        first = what not in seen
        seen.add(what)
        return first

    return loses


@pytest.mark.parametrize("before", [False, True], ids=["reply", "request"])
async def test_nothing_happens_twice_though_the_answer_to_every_commit_is_lost_once(
    home: Home, *, before: bool
) -> None:
    """E6."""
    trade = Trade()
    loses = _every_first_time({"commit"})
    async with (
        home.holdfast(trade.pack, worker=False) as client,
        home.holdfast(trade.pack, through=lambda store: LossyStore(store, loses, before=before)) as hf,
    ):
        seen = heard(hf)
        run = (await client.start(trade.trade(1))).run
        assert await run.result(timeout=60) == trade.expected(1)
        assert len(seen.all(StoreTroubled)) >= 5
        assert seen.all(RunOvertaken) == []
        steps = [entry.step for entry in await run.journal() if isinstance(entry, Performed)]
        assert sorted(steps) == ["0/act#1", "1/act#1", "act#1"]
        await eventually(lambda: _nobody_holds_anything(hf))
    assert set(trade.ledger.values()) == {1}


@pytest.mark.parametrize("before", [False, True], ids=["reply", "request"])
async def test_runs_whose_claim_was_answered_into_the_void_are_taken_up(home: Home, *, before: bool) -> None:
    """E6: they are owned already; whoever forgets them leaves them for ever."""
    trade = Trade()
    lost = 0

    def loses(name: str, args: tuple[Any, ...]) -> bool:
        nonlocal lost
        if name == "claim" and lost < 3:
            lost += 1
            return True
        return False

    async with home.holdfast(trade.pack, worker=False) as client:
        runs = [(await client.start(trade.trade(n))).run for n in range(5)]
        async with home.holdfast(trade.pack, through=lambda s: LossyStore(s, loses, before=before)) as hf:
            for n, run in enumerate(runs):
                assert await run.result(timeout=60) == trade.expected(n)
            await eventually(lambda: _nobody_holds_anything(hf))
    assert lost
    assert set(trade.ledger.values()) == {1}


async def test_an_admission_into_our_own_hand_whose_reply_was_lost_is_taken_up(home: Home) -> None:
    """E6: nobody repeats the start, and the run is executed all the same."""
    trade = Trade()
    loses = _every_first_time({"commit"})
    async with home.holdfast(trade.pack, through=lambda store: LossyStore(store, loses)) as hf:
        seen = heard(hf)
        with pytest.raises(Exception, match="lost"):
            await hf.start(trade.trade(1))
        await seen.until(RunEnded, workflow="trade.trade")
        run = await hf.find("trade", "trade:1")
        assert await run.result(timeout=30) == trade.expected(1)
        await eventually(lambda: _nobody_holds_anything(hf))
    assert set(trade.ledger.values()) == {1}


@pytest.mark.parametrize("seed", range(3))
async def test_any_call_may_be_lost_before_or_after_it_is_carried_out(home: Home, seed: int) -> None:
    """E6, at large: reads, claims, commits, renewals; ten runs, and a fifth of all calls gets no answer."""
    chance = random.Random(seed)
    trade = Trade()
    tainted = WRITES | {"histories", "messages", "next_wake_at_ms", "held", "blob"}
    tainted -= {"join", "leave"}

    class Unreliable(StoreWrapper):
        async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
            fate = chance.random() if name in tainted else 1.0
            if fate < 0.1:
                return await LossyStore(self.inner, lambda *_: True, before=True).called(name, verb, args)
            if fate < 0.2:
                return await LossyStore(self.inner, lambda *_: True).called(name, verb, args)
            return await verb(*args)

    async with (
        home.holdfast(trade.pack, worker=False) as client,
        home.holdfast(trade.pack, through=Unreliable) as hf,
    ):
        runs = [(await client.start(trade.trade(n))).run for n in range(10)]
        for n, run in enumerate(runs):
            assert await run.result(timeout=60) == trade.expected(n)
        await eventually(lambda: _held_by(home, hf))
    assert set(trade.ledger.values()) == {1}


async def _held_by(home: Home, hf: Any) -> bool:
    inner: Store = hf._replica._ports.store.inner
    return await inner.held(owner_of(hf)) == []


async def test_whoever_asks_again_after_the_run_changed_hands_does_not_become_its_new_owner(home: Home) -> None:
    """A repeated commit may answer with the run as it is now. Its fence is the next owner's: not ours to write with."""
    trade = Trade()
    stolen: list[Run] = []

    class Stealing(StoreWrapper):
        """Carries out the first progress, loses the reply, and lets somebody else take the run meanwhile."""

        async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
            if name == "claim":  # or the first owner might be faster than the thief
                return Claimed([])
            answer = await verb(*args)
            if name == "commit" and not stolen and any(_records(change, "act#1") for change in args[0]):
                [change] = [change for change in args[0] if _records(change, "act#1")]
                await self.inner.leave(change.run.owner)
                await self.inner.join("thief", Millis(60_000))  # or the rescuer would take the run from it
                claim = Claim("default", "thief", "the thief's", ("trade.trade",), 1)
                stolen.extend((await self.inner.claim(claim)).runs)
                return await LossyStore(self.inner, lambda *_: True).called(name, _nothing, ())
            return answer

    async with home.holdfast(trade.pack, through=Stealing) as hf:
        seen = heard(hf)
        run = (await hf.start(trade.trade(1))).run
        await seen.until(RunOvertaken)
        [thief] = stolen
        assert (await hf._replica._ports.store.runs([run.id]))[0] == thief
        steps = [getattr(entry, "step", "") for entry in await run.journal()]
        assert steps == ["", "act#1"]
    assert trade.ledger == {f"{run.id}/act#1": 1}


def _records(change: Change, step: str) -> bool:
    return any(getattr(entry, "step", "") == step for entry in change.entries)


async def _nothing() -> None: ...


async def test_a_parent_that_was_let_go_is_woken_though_the_reply_to_the_end_of_its_child_is_lost(home: Home) -> None:
    """The end is offered again, and the store does not say a second time whom it has told."""
    home.paced(idle_ms=1)
    holding = Holding()
    lost: list[str] = []

    def loses(name: str, args: tuple[Any, ...]) -> bool:
        ends = name == "commit" and any(change.run is not None and _has_ended(change.run) for change in args[0])
        if ends and not lost:
            lost.append(name)
            return True
        return False

    async with home.holdfast(holding.pack, through=lambda store: LossyStore(store, loses)) as hf:
        run = (await hf.start(holding.parent(1))).run
        await eventually(lambda: _waits(run))
        holding.gate.set()
        assert await run.result(timeout=30) == 1
    assert lost


def _has_ended(run: Run) -> bool:
    return run.workflow == "p.work" and run.status == "completed"


async def _waits(run: Any) -> bool:
    return (await run.refresh()).status == "waiting"


async def test_a_bad_start_harms_no_start_that_travels_with_it(home: Home) -> None:
    """Each change is answered for itself, also when one of them can never be stored."""
    pack = Pack("p")

    @pack.workflow(key="k:{n}")
    async def work(n: int) -> int:
        return n

    async with home.holdfast(pack) as hf:
        bad: dict[str, Any] = {"request_id": "\ud800"}
        answers = await asyncio.gather(
            *(hf.start(work(n), **(bad if n == 3 else {})) for n in range(7)), return_exceptions=True
        )
        assert [isinstance(answer, BaseException) for answer in answers] == [n == 3 for n in range(7)]
        for n, answer in enumerate(answers):
            if not isinstance(answer, BaseException):
                assert await answer.run.result(timeout=30) == n
