"""The next attempt of an effect that waits for it begins when a person says so."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast import Holdfast, NotAllowedNow, Pack, Retry, Run, RunFailed, attempt
from holdfast.blocking import Blocking
from holdfast.events import EffectBegan, EffectWillRetry, RetryRequested, RunLetGo
from holdfast.kernel.journal import Attempted, ByHand
from tests.integration.conftest import Home, eventually, heard

STEP = "charge#1"
EVE = ByHand("eve", "the bank is back", retry_now=True)


class Bank:
    """A bank that is closed, and retries that wait for an hour."""

    def __init__(self, *, attempts: int = 5) -> None:
        self.pack = Pack("bank")
        self.attempts: list[int] = []
        self.is_open = False
        self.answers = asyncio.Event()  # while it is cleared, the bank says nothing
        self.answers.set()
        self.is_left = asyncio.Event()
        self.counted = asyncio.Event()
        self.counts = 0

        @self.pack.effect(retry=Retry(attempts=attempts, base=3600, cap=7200))
        async def charge() -> str:
            self.attempts.append(attempt())
            await self.answers.wait()
            if not self.is_open:
                raise OSError("closed")
            return f"charged in attempt {attempt()}"

        @self.pack.effect
        async def leave() -> None:
            await self.is_left.wait()

        @self.pack.effect
        async def count() -> int:
            self.counts += 1
            await self.counted.wait()
            return self.counts

        @self.pack.workflow
        async def pay() -> str:
            return await charge()

        @self.pack.workflow
        async def pay_and_count() -> tuple[str, int]:
            charged, counts = await asyncio.gather(charge(), count())
            return charged, counts

        @self.pack.workflow
        async def pay_twice() -> list[str]:
            return list(await asyncio.gather(charge(), charge()))

        @self.pack.workflow
        async def give_up() -> int:
            charging = asyncio.ensure_future(charge())
            await leave()
            charging.cancel()
            return await count()

        self.pay, self.pay_and_count, self.pay_twice, self.give_up = pay, pay_and_count, pay_twice, give_up


async def let_go(hf: Any, bank: Bank) -> Run[str]:
    """A run that nothing holds in memory, since it waits for an hour."""
    run = (await hf.start(bank.pay())).run
    await heard(hf).until(RunLetGo)
    return run


async def by_hand(run: Run[Any]) -> list[ByHand]:
    return [each.by_hand for each in await run.journal() if isinstance(each, Attempted) and each.by_hand is not None]


async def test_a_run_that_was_let_go_tries_again_at_once_and_earlier_attempts_count(home: Home) -> None:
    bank = Bank()
    async with home.holdfast(bank.pack) as hf:
        run = await let_go(hf, bank)
        bank.is_open = True
        run = await run.retry_now(STEP, by="eve", reason="the bank is back")
        assert await run.result(timeout=30) == "charged in attempt 2"
        assert await by_hand(run) == [EVE]
        assert heard(hf).all(RetryRequested) == [RetryRequested(run.id, STEP, "eve")]
        told = str(await run.explain())
    assert bank.attempts == [1, 2]
    assert "attempt 2 of charge#1 was to begin at once; asked for by eve, since the bank is back" in told


async def test_a_run_in_memory_hears_of_it_and_what_else_it_does_is_not_done_again(home: Home) -> None:
    bank = Bank()
    async with home.holdfast(bank.pack) as hf, home.holdfast(bank.pack, worker=False) as elsewhere:
        run = (await hf.start(bank.pay_and_count())).run
        await heard(hf).until(EffectWillRetry)
        await eventually(lambda: bank.counts == 1)
        there = await elsewhere.get(run.id)
        assert there.status == "running"

        async def recorded() -> bool:
            return any(isinstance(each, Attempted) for each in await there.journal())

        await eventually(recorded)
        assert "retry_now" in (await there.explain()).next_actions
        bank.is_open = True
        await there.retry_now()
        await eventually(lambda: bank.attempts == [1, 2])
        bank.counted.set()
        assert await run.result(timeout=30) == ("charged in attempt 2", 1)
        assert not heard(hf).all(RunLetGo)


async def test_the_attempts_that_are_left_do_not_become_more(home: Home) -> None:
    bank = Bank(attempts=2)
    async with home.holdfast(bank.pack) as hf:
        run = await let_go(hf, bank)
        await run.retry_now()
        with pytest.raises(RunFailed, match="closed"):
            await run.result(timeout=30)
    assert bank.attempts == [1, 2]


async def test_said_twice_it_is_done_once_and_after_the_next_failure_it_may_be_said_again(home: Home) -> None:
    bank = Bank()
    async with home.holdfast(bank.pack) as hf:
        run = await let_go(hf, bank)
        async with home.holdfast(bank.pack, worker=False) as elsewhere:
            there = await elsewhere.get(run.id)
            bank.answers.clear()  # or one that is slow to say it may do so after the next failure, when it counts again
            await asyncio.gather(*[each.retry_now(STEP, by="eve") for each in (run, there, run, there)])
            bank.answers.set()

        async def failed_twice() -> bool:
            return (await run.refresh()).status == "waiting" and bank.attempts == [1, 2]

        await eventually(failed_twice)
        assert len(await by_hand(run)) == 1
        bank.is_open = True
        assert await (await run.retry_now(STEP)).result(timeout=30) == "charged in attempt 3"
        assert len(await by_hand(run)) == 2
    assert bank.attempts == [1, 2, 3]


async def test_without_a_step_all_that_wait_begin(home: Home) -> None:
    bank = Bank()
    async with home.holdfast(bank.pack) as hf:
        run = (await hf.start(bank.pay_twice())).run
        await heard(hf).until(RunLetGo)
        bank.is_open = True
        assert await (await run.retry_now()).result(timeout=30) == ["charged in attempt 2"] * 2
        assert {each.step for each in heard(hf).all(RetryRequested)} == {"0/charge#1", "1/charge#1"}


async def test_one_step_of_two_begins_and_the_other_goes_on_waiting(home: Home) -> None:
    bank = Bank()
    async with home.holdfast(bank.pack) as hf:
        run = (await hf.start(bank.pay_twice())).run
        await heard(hf).until(RunLetGo)
        bank.is_open = True
        await run.retry_now("1/charge#1")

        async def waits_for_the_other() -> bool:
            waiting = (await run.refresh()).waiting_on
            return [each.step for each in waiting] == ["0/charge#1"] and len(bank.attempts) == 3

        await eventually(waits_for_the_other)
        with pytest.raises(NotAllowedNow, match="'1/charge#1' does not wait"):
            await run.retry_now("1/charge#1")


async def test_what_does_not_wait_for_its_next_attempt_is_refused(home: Home) -> None:
    bank = Bank()
    async with home.holdfast(bank.pack) as hf:
        run = await let_go(hf, bank)
        assert (await run.explain()).next_actions[0] == "retry_now"
        with pytest.raises(NotAllowedNow, match="'other#1' does not wait for its next attempt") as refused:
            await run.retry_now("other#1")
        assert STEP in refused.value.hint
        bank.is_open = True
        await (await run.retry_now()).result(timeout=30)
        with pytest.raises(NotAllowedNow, match=r"no step waits for its next attempt: .* is completed"):
            await run.retry_now()
        assert "retry_now" not in (await run.explain()).next_actions


async def _attempted(run: Run[Any]) -> bool:
    return any(isinstance(each, Attempted) for each in await run.journal())


async def test_a_step_that_the_code_has_left_is_not_begun(home: Home) -> None:
    bank = Bank()
    async with home.holdfast(bank.pack) as hf:
        run = (await hf.start(bank.give_up())).run
        await eventually(lambda: _attempted(run))
        bank.is_left.set()
        await eventually(lambda: bank.counts == 1)
        await run.retry_now(f"0/{STEP}")  # the journal cannot tell; its owner can
        bank.counted.set()
        assert await run.result(timeout=30) == 1
        assert await by_hand(run) == []
        assert [each.what for each in await run.journal()].count("received") == 0
    assert bank.attempts == [1]


async def test_what_was_asked_for_is_done_by_the_next_process(home: Home) -> None:
    bank = Bank()
    async with home.holdfast(bank.pack) as hf:
        run = await let_go(hf, bank)
    async with home.holdfast(bank.pack, worker=False) as caller:
        await (await caller.get(run.id)).retry_now(by="eve", reason="the bank is back")
    bank.is_open = True
    async with home.holdfast(bank.pack) as hf:
        again = await hf.get(run.id)
        assert await again.result(timeout=30) == "charged in attempt 2"
        assert await by_hand(again) == [EVE]
        assert [each.attempt for each in heard(hf).all(EffectBegan)] == [2]


def test_the_next_attempt_begins_without_async(home: Home) -> None:
    bank, waits = Bank(), threading.Event()

    def opened() -> Holdfast:
        hf = home.holdfast(bank.pack)
        hf.listen(lambda event: waits.set() if isinstance(event, RunLetGo) else None)
        return hf

    with Blocking(opened) as hf:
        run = hf.start(bank.pay()).run
        with pytest.raises(NotAllowedNow, match="does not wait"):
            run.retry_now("charge#2")
        assert waits.wait(30)
        bank.is_open = True
        assert run.retry_now(STEP, by="eve").result(timeout=30) == "charged in attempt 2"
