"""`safety="once"`: the start is recorded before the call, and nobody ever calls again without knowing (E8)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from holdfast import NotPerformed, Pack, Retry, RunFailed, attempt, current, effect_key
from holdfast.errors import UnknownOutcome
from holdfast.events import EffectBegan, PartFailed, RunBlocked, RunsClaimed, ThreadGivenUp
from holdfast.kernel.journal import Blocked, Intended, Performed, Retried, Started
from tests.integration.conftest import Home, eventually, heard, owner_of
from tests.integration.wrappers import SeverableStore


class Bank:
    """A transfer that must happen once, a ledger of calls, and an answer to "did it happen?" that may be changed."""

    def __init__(self, *, timeout: float | None = None, reconcile: bool = True, sync: bool = False) -> None:
        self.pack = Pack("bank")
        self.calls: list[str] = []
        self.asked: list[str] = []
        self.hang = True
        self.is_stubborn = False  # whether it goes on when it is cancelled
        self.release = asyncio.Event()
        self.released = threading.Event()

        async def transfer(cents: int) -> str:
            self.calls.append(effect_key())
            while self.hang and not self.release.is_set():
                try:
                    await self.release.wait()
                except asyncio.CancelledError:
                    if not self.is_stubborn:
                        raise
            return f"sent {cents}"

        def transfer_sync(cents: int) -> str:
            self.calls.append(effect_key())
            if self.hang:
                assert self.released.wait(30)
            return f"sent {cents}"

        transfer_sync.__name__ = transfer.__name__
        self.transfer: Any = self.pack.effect(
            key="transfer:{cents}",
            safety="once",
            timeout=timeout,
            reconcile=self.answer if reconcile else None,
        )(transfer_sync if sync else transfer)

        @self.pack.workflow
        async def pay(cents: int) -> str:
            return await self.transfer(cents)

        @self.pack.workflow
        async def other() -> str:
            return "other"

        self.pay, self.other = pay, other

    async def answer(self, key: str) -> str:
        self.asked.append(key)
        return "sent 5, says the bank"

    async def deny(self, key: str) -> str:
        self.asked.append(key)
        raise NotPerformed


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


async def test_a_timeout_without_reconcile_blocks_the_run(home: Home) -> None:
    bank = Bank(timeout=0.03, reconcile=False)
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
        bank.release.set()
    assert bank.calls == ["transfer:5"]


async def test_a_blocked_run_keeps_its_key(home: Home) -> None:
    bank = Bank(timeout=0.03, reconcile=False)
    async with home.holdfast(bank.pack) as hf:
        run = (await hf.start(bank.pay(5), key="k")).run
        with pytest.raises(UnknownOutcome):
            await run.result(timeout=30)
        again = await hf.start(bank.pay(5), key="k")
        assert (again.created, again.run.id, again.run.status) == (False, run.id, "blocked")
    assert len(bank.calls) == 1


async def test_a_timeout_asks_reconcile_and_takes_its_answer(home: Home) -> None:
    bank = Bank(timeout=0.03)
    async with home.holdfast(bank.pack) as hf:
        run = (await hf.start(bank.pay(5))).run
        assert await run.result(timeout=30) == "sent 5, says the bank"
        assert [type(entry) for entry in (await run.journal())[:3]] == [Started, Intended, Performed]
    assert bank.calls == ["transfer:5"]
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


async def test_an_effect_that_ends_well_although_its_time_was_over_was_performed(home: Home) -> None:
    """It is told that its time is over, and may take that in its own way. What it returns then is its outcome."""
    pack = Pack("bank")
    asked: list[str] = []

    @pack.effect(safety="once", timeout="30ms", reconcile=asked.append)
    async def transfer() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "sent just in time"
        return "never"

    @pack.workflow
    async def pay() -> str:
        return await transfer()

    async with home.holdfast(pack) as hf:
        assert await (await hf.start(pay())).run.result(timeout=30) == "sent just in time"
    assert asked == []


# -- threads that outlive their time


@pytest.mark.parametrize("reconcile", [True, False], ids=["reconcile", "none"])
async def test_while_its_thread_lives_an_overdue_call_is_waited_for_and_nothing_is_asked(
    home: Home, *, reconcile: bool
) -> None:
    """It cannot be interrupted. Asked now, the world would say "not yet", and the call would be made beside itself."""
    bank = Bank(timeout=0.03, reconcile=False, sync=True)
    pack = bank.pack.with_policy("transfer", reconcile=bank.deny) if reconcile else bank.pack
    async with home.holdfast(pack) as hf:
        run = (await hf.start(bank.pay(5))).run
        assert (await heard(hf).until(ThreadGivenUp)).given_up == 1
        run = await run.refresh()
        assert run.status == "running"
        assert "the outcome of transfer#1" in str(await run.explain())
        assert (bank.calls, bank.asked) == (["transfer:5"], [])
        bank.released.set()
        assert await run.result(timeout=30) == "sent 5"
        assert [type(entry) for entry in (await run.journal())[:3]] == [Started, Intended, Performed]
    assert (bank.calls, bank.asked) == (["transfer:5"], [])


async def test_an_overdue_call_that_fails_in_the_end_has_failed(home: Home) -> None:
    pack = Pack("bank")
    released, asked = threading.Event(), list[str]()

    @pack.effect(safety="once", timeout="30ms", reconcile=asked.append)
    def transfer() -> None:
        assert released.wait(30)
        raise OSError("refused by the bank")

    @pack.workflow
    async def pay() -> None:
        await transfer()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(pay())).run
        await heard(hf).until(ThreadGivenUp)
        released.set()
        with pytest.raises(RunFailed, match="refused by the bank"):
            await run.result(timeout=30)
    assert asked == []


async def test_a_cancellation_ends_by_its_deadline_over_a_thread_that_hangs(home: Home) -> None:
    bank = Bank(timeout=0.03, sync=True)
    async with home.holdfast(bank.pack) as hf:
        run = (await hf.start(bank.pay(5))).run
        await heard(hf).until(ThreadGivenUp)
        receipt = await run.cancel(deadline="50ms")
        assert receipt.outcome == "unknown"
        assert [(str(left), left.state) for left in receipt.effects] == [("transfer:5", "unknown")]
        bank.released.set()
    assert (bank.calls, bank.asked) == (["transfer:5"], [])


async def test_a_run_that_is_resumed_asks_nothing_before_the_thread_of_its_former_life_has_ended(home: Home) -> None:
    bank = Bank(timeout=0.03, sync=True)
    async with home.holdfast(bank.pack.with_policy("transfer", reconcile=bank.deny)) as hf:
        seen = heard(hf)
        run = (await hf.start(bank.pay(5))).run
        await seen.until(ThreadGivenUp)
        await run.cancel(deadline="0ms")
        run = await (await run.refresh()).resume()
        await seen.until(RunsClaimed)
        assert await (await hf.start(bank.other())).run.result(timeout=30) == "other"  # the worker has had its turn
        assert (bank.calls, bank.asked) == (["transfer:5"], [])
        bank.hang = False
        bank.released.set()
        assert await run.result(timeout=30) == "sent 5"
    assert (bank.calls, bank.asked) == (["transfer:5", "transfer:5"], ["transfer:5"])


@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
async def test_a_process_that_stops_over_a_once_effect_does_not_give_its_run_to_another_at_once(
    home: Home, *, sync: bool
) -> None:
    """The next one would ask what became of it while it still goes on. Its lease expires when the process is gone."""
    home.paced(grace_seconds=0.05, clean_up_seconds=0.05)
    bank = Bank(sync=sync)
    bank.is_stubborn = True
    try:
        async with home.holdfast(bank.pack, lease="60s") as first:
            owner = owner_of(first)
            run = (await first.start(bank.pay(5))).run
            await eventually(lambda: bank.calls)
        async with home.holdfast(bank.pack) as second:
            assert owner in [member.owner for member in await second.workers()]
            assert (await second.get(run.id)).status == "running"
            assert bank.asked == []
            bank.released.set()
            bank.release.set()
            await second._replica._ports.store.leave(owner)  # as if it had expired
            second._replica._worker.claims.ring()
            assert await (await second.get(run.id)).result(timeout=30) == "sent 5, says the bank"
    finally:
        bank.released.set()
        bank.release.set()
    assert (bank.calls, bank.asked) == (["transfer:5"], ["transfer:5"])


# -- answers that are none


class Strange(BaseException):
    """No Exception: what catches only those lets it through."""


def _raises(error: BaseException, *, sync: bool) -> Any:
    async def ask(key: str) -> str:
        raise error

    def ask_sync(key: str) -> str:
        raise error

    return ask_sync if sync else ask


async def _forgotten(key: str) -> str:
    return "sent"


def _gives_a_coroutine(key: str) -> Any:
    return _forgotten(key)


def _yields(key: str) -> Iterator[str]:
    yield "sent"


async def _yields_later(key: str) -> AsyncIterator[str]:
    yield "sent"


async def _cancels_itself(key: str) -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return "sent"


async def _never_returns(key: str) -> str:
    await asyncio.Event().wait()
    return "sent"


async def _has_no_key() -> str:
    return "sent"


ODD_ERRORS = [
    SystemExit(3),
    KeyboardInterrupt("by the code itself"),
    GeneratorExit("by the code itself"),
    StopIteration("sent"),
    StopAsyncIteration("sent"),
    asyncio.CancelledError("not by the engine"),
    Strange("odd"),
    BaseExceptionGroup("several", [Strange("odd"), SystemExit(4)]),
]
ODD_ANSWERS = {
    "a coroutine": _gives_a_coroutine,
    "a generator": _yields,
    "an async generator": _yields_later,
    "itself cancelled": _cancels_itself,
    "never": _never_returns,
    "another signature": _has_no_key,
    "what cannot be stored": lambda key: object(),
    "another type": lambda key: 5,
}
ODD_RECONCILES = {
    **{
        f"{type(error).__name__}-{'sync' if sync else 'async'}": _raises(error, sync=sync)
        for error in ODD_ERRORS
        for sync in (True, False)
    },
    **ODD_ANSWERS,
}


@pytest.mark.parametrize("reconcile", ODD_RECONCILES.values(), ids=ODD_RECONCILES)
async def test_whatever_reconcile_does_but_answer_blocks_the_run_and_harms_no_other(home: Home, reconcile: Any) -> None:
    bank = Bank(timeout=0.03)
    pack = bank.pack.with_policy("transfer", reconcile=reconcile)
    async with home.holdfast(pack) as hf:
        run = (await hf.start(bank.pay(5))).run
        with pytest.raises(UnknownOutcome, match="reconcile"):
            await run.result(timeout=30)
        assert (await run.refresh()).status == "blocked"
        bank.hang = False
        other = (await hf.start(bank.pay(6))).run
        assert await other.result(timeout=30) == "sent 6"
        assert not heard(hf).all(PartFailed)
    assert bank.calls == ["transfer:5", "transfer:6"]
