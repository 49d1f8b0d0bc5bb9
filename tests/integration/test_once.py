"""`safety="once"`: the start is recorded before the call, and nobody ever calls again without knowing (E8)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast import NotPerformed, Pack, Retry, RunFailed, UnknownOutcome, attempt, current, effect_key
from holdfast.engine.events import EffectBegan, RunBlocked
from holdfast.kernel.journal import Blocked, Intended, Performed, Retried, Started
from tests.integration.conftest import Home, eventually, heard
from tests.integration.wrappers import SeverableStore


class Bank:
    """A transfer that must happen once, a ledger of calls, and an answer to "did it happen?" that may be changed."""

    def __init__(self, *, timeout: float | None = None, reconcile: bool = True, sync: bool = False) -> None:
        self.pack = Pack("bank")
        self.calls: list[str] = []
        self.asked: list[str] = []
        self.hang = True
        self.release = asyncio.Event()
        self.released = threading.Event()

        async def transfer(cents: int) -> str:
            self.calls.append(effect_key())
            if self.hang:
                await self.release.wait()
            return f"sent {cents}"

        def transfer_sync(cents: int) -> str:
            self.calls.append(effect_key())
            if self.hang:
                assert self.released.wait(30)
            return f"sent {cents}"

        self.transfer: Any = self.pack.effect(
            key="transfer:{cents}",
            safety="once",
            timeout=timeout,
            reconcile=self.answer if reconcile else None,
        )(transfer_sync if sync else transfer)

        @self.pack.workflow
        async def pay(cents: int) -> str:
            return await self.transfer(cents)

        self.pay = pay

    async def answer(self, key: str) -> str:
        self.asked.append(key)
        return "sent 5, says the bank"


async def test_the_intent_is_durable_before_the_call(home: Home) -> None:
    pack = Pack("bank")
    seen_by_the_effect: list[list[type]] = []
    opened: list[Any] = []

    @pack.effect(safety="once")
    async def transfer(run_id: str) -> str:
        [history] = await opened[0]._replica._ports.store.histories([run_id])
        seen_by_the_effect.append([type(entry) for entry in history.journal])
        return "sent"

    @pack.workflow
    async def pay() -> str:
        return await transfer(current().run_id)

    async with home.holdfast(pack) as hf:
        opened.append(hf)
        run = (await hf.start(pay())).run
        assert await run.result(timeout=30) == "sent"
        journal = await run.journal()
        assert [type(entry) for entry in journal[:3]] == [Started, Intended, Performed]
        intended, performed = journal[1:3]
        assert isinstance(intended, Intended)
        assert isinstance(performed, Performed)
        assert intended.intent == performed.intent
    assert seen_by_the_effect == [[Started, Intended]]


async def test_an_error_is_an_answer_and_is_not_retried_by_default(home: Home) -> None:
    pack = Pack("bank")
    calls = 0

    @pack.effect(safety="once")
    async def transfer() -> None:
        nonlocal calls
        calls += 1
        raise OSError("refused by the bank")

    @pack.workflow
    async def pay() -> None:
        await transfer()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(pay())).run
        with pytest.raises(RunFailed) as caught:
            await run.result(timeout=30)
        assert isinstance(caught.value.__cause__, OSError)
    assert calls == 1


async def test_each_attempt_that_a_policy_allows_is_intended_anew(home: Home) -> None:
    pack = Pack("bank")

    @pack.effect(safety="once", retry=Retry(attempts=3, base=0))
    async def transfer() -> int:
        if attempt() < 3:
            raise OSError("refused by the bank")
        return attempt()

    @pack.workflow
    async def pay() -> int:
        return await transfer()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(pay())).run
        assert await run.result(timeout=30) == 3
        words = [entry.what for entry in await run.journal()]
        intents = [entry.attempt for entry in await run.journal() if isinstance(entry, Intended)]
    assert words == [
        "started",
        "intended",
        "attempted",
        "intended",
        "attempted",
        "intended",
        "performed",
        "completed",
    ]
    assert intents == [1, 2, 3]


@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
async def test_a_timeout_without_reconcile_blocks_the_run(home: Home, *, sync: bool) -> None:
    bank = Bank(timeout=0.03, reconcile=False, sync=sync)
    async with home.holdfast(bank.pack) as hf:
        seen = heard(hf)
        run = (await hf.start(bank.pay(5))).run
        with pytest.raises(UnknownOutcome) as caught:
            await run.result(timeout=30)
        assert "transfer:5" in caught.value.message
        assert caught.value.hint
        blocked = await seen.until(RunBlocked)
        assert blocked.code == "unknown_outcome"
        run = await run.refresh()
        assert run.status == "blocked"
        assert isinstance((await run.journal())[-1], Blocked)
        bank.released.set()
        bank.release.set()
    # A thread that did not get its turn within the time never begins; nobody can know that afterwards.
    assert bank.calls == ["transfer:5"] or (sync and not bank.calls)


async def test_a_blocked_run_keeps_its_key(home: Home) -> None:
    bank = Bank(timeout=0.03, reconcile=False)
    async with home.holdfast(bank.pack) as hf:
        run = (await hf.start(bank.pay(5), key="k")).run
        with pytest.raises(UnknownOutcome):
            await run.result(timeout=30)
        again = await hf.start(bank.pay(5), key="k")
        assert (again.created, again.run.id, again.run.status) == (False, run.id, "blocked")
    assert len(bank.calls) == 1


@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
async def test_a_timeout_asks_reconcile_and_takes_its_answer(home: Home, *, sync: bool) -> None:
    bank = Bank(timeout=0.03, sync=sync)
    async with home.holdfast(bank.pack) as hf:
        run = (await hf.start(bank.pay(5))).run
        assert await run.result(timeout=30) == "sent 5, says the bank"
        assert [type(entry) for entry in (await run.journal())[:3]] == [Started, Intended, Performed]
        bank.released.set()
    assert bank.calls == ["transfer:5"] or (sync and not bank.calls)  # as above
    assert bank.asked == ["transfer:5"]


async def test_reconcile_may_be_a_plain_function(home: Home) -> None:
    bank = Bank(timeout=0.03)
    pack = bank.pack.with_policy("transfer", reconcile=lambda key: f"asked about {key}")
    async with home.holdfast(pack) as hf:
        assert await (await hf.start(bank.pay(5))).run.result(timeout=30) == "asked about transfer:5"
    assert bank.calls == ["transfer:5"]


async def test_the_effect_is_called_again_only_if_reconcile_says_that_it_never_happened(home: Home) -> None:
    bank = Bank(timeout=0.2)

    async def never_happened(key: str) -> str:
        bank.asked.append(key)
        bank.hang = False
        raise NotPerformed

    pack = bank.pack.with_policy("transfer", reconcile=never_happened)
    async with home.holdfast(pack) as hf:
        run = (await hf.start(bank.pay(5))).run
        assert await run.result(timeout=30) == "sent 5"
    assert bank.calls == ["transfer:5", "transfer:5"]
    assert bank.asked == ["transfer:5"]


async def test_a_reconcile_that_fails_blocks_the_run_and_says_why(home: Home) -> None:
    bank = Bank(timeout=0.03)

    def down(key: str) -> str:
        raise ConnectionError("the bank is closed")

    async with home.holdfast(bank.pack.with_policy("transfer", reconcile=down)) as hf:
        run = (await hf.start(bank.pay(5))).run
        with pytest.raises(UnknownOutcome, match="the bank is closed"):
            await run.result(timeout=30)
    assert bank.calls == ["transfer:5"]


@pytest.mark.parametrize("happened", [True, False], ids=["happened", "never happened"])
async def test_a_blocked_run_goes_on_once_reconcile_is_deployed(home: Home, *, happened: bool) -> None:
    bank = Bank(timeout=0.2, reconcile=False)

    async def ask(key: str) -> str:
        bank.asked.append(key)
        bank.hang = False
        if not happened:
            raise NotPerformed
        return "sent 5, says the bank"

    async with home.holdfast(bank.pack) as hf:
        run = (await hf.start(bank.pay(5))).run
        with pytest.raises(UnknownOutcome):
            await run.result(timeout=30)
    async with home.holdfast(bank.pack.with_policy("transfer", reconcile=ask)) as hf:
        run = await (await hf.get(run.id)).retry()
        assert await run.result(timeout=30) == ("sent 5, says the bank" if happened else "sent 5")
        assert any(isinstance(entry, Retried) for entry in await run.journal())
    assert bank.asked == ["transfer:5"]
    assert len(bank.calls) == (1 if happened else 2)


async def test_a_retry_without_reconcile_blocks_again_and_calls_nobody(home: Home) -> None:
    bank = Bank(timeout=0.03, reconcile=False)
    async with home.holdfast(bank.pack) as hf:
        run = (await hf.start(bank.pay(5))).run
        for _ in range(3):
            with pytest.raises(UnknownOutcome):
                await run.result(timeout=30)
            run = await (await run.refresh()).retry()
        with pytest.raises(UnknownOutcome):
            await run.result(timeout=30)
    assert bank.calls == ["transfer:5"]


@pytest.mark.parametrize("reconcile", [True, False], ids=["reconcile", "none"])
async def test_whoever_takes_over_from_a_silent_process_does_not_call_again(home: Home, *, reconcile: bool) -> None:
    """The process that made the call is gone; the next one only knows that it meant to."""
    bank = Bank(reconcile=reconcile)
    gone: list[SeverableStore] = []

    def through(store: Any) -> SeverableStore:
        gone.append(SeverableStore(store))
        return gone[0]

    async with home.holdfast(bank.pack, through=through, lease="600ms") as first:
        run = (await first.start(bank.pay(5))).run
        await heard(first).until(EffectBegan)
        await eventually(lambda: bank.calls)
        gone[0].sever()
        async with home.holdfast(bank.pack, lease="2s") as second:
            taken = await second.get(run.id)
            if reconcile:
                assert await taken.result(timeout=30) == "sent 5, says the bank"
            else:
                with pytest.raises(UnknownOutcome, match="died"):
                    await taken.result(timeout=30)
    assert bank.calls == ["transfer:5"]
    assert bank.asked == (["transfer:5"] if reconcile else [])
