"""A person decides what came of a `once` effect whose outcome is not known."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import NotAllowedNow, Run, RunFailed, UsageError
from holdfast.blocking import Blocking
from holdfast.errors import UnknownOutcome
from holdfast.events import StepDecided
from holdfast.kernel.journal import Attempted, ByHand, GaveUp, Performed
from tests.integration.conftest import Home, heard
from tests.integration.test_once import Bank

STEP = "transfer#1"


async def blocked(hf: Any, bank: Bank) -> Run[str]:
    run = (await hf.start(bank.pay(5))).run
    with pytest.raises(UnknownOutcome, match="transfer#1"):
        await run.result(timeout=30)
    return run


async def test_what_a_person_decides_reaches_the_code_and_is_recorded(home: Home) -> None:
    bank = Bank(timeout=0.03, reconcile=False)
    async with home.holdfast(bank.pack) as hf:
        seen = heard(hf)
        run = await blocked(hf, bank)
        run = await run.decide(STEP, returned="sent, says the statement", by="eve", reason="statement 7")
        assert await run.result(timeout=30) == "sent, says the statement"
        [entry] = [each for each in await run.journal() if isinstance(each, Performed)]
        assert entry.by_hand == ByHand("eve", "statement 7")
        assert (await seen.until(StepDecided)).by == "eve"
    assert bank.calls == ["transfer:5"]


async def test_a_failure_that_is_decided_is_raised_in_the_code(home: Home) -> None:
    bank = Bank(timeout=0.03, reconcile=False)
    async with home.holdfast(bank.pack) as hf:
        run = await (await blocked(hf, bank)).decide(STEP, failed="the bank refused it")
        with pytest.raises(RunFailed, match="the bank refused it"):
            await run.result(timeout=30)
        assert any(isinstance(each, GaveUp) and each.by_hand is not None for each in await run.journal())
    assert bank.calls == ["transfer:5"]


async def test_what_never_happened_is_called(home: Home) -> None:
    bank = Bank(timeout=0.2, reconcile=False)
    async with home.holdfast(bank.pack) as hf:
        run = await blocked(hf, bank)
        bank.hang = False
        run = await run.decide(STEP, not_performed=True)
        assert await run.result(timeout=30) == "sent 5"
        assert any(isinstance(each, Attempted) and each.by_hand is not None for each in await run.journal())
    assert bank.calls == ["transfer:5", "transfer:5"]


async def test_the_same_again_is_no_harm_and_another_verdict_is_refused(home: Home) -> None:
    bank = Bank(timeout=0.03, reconcile=False)
    async with home.holdfast(bank.pack) as hf:
        run = await (await blocked(hf, bank)).decide(STEP, returned="sent")
        assert await run.result(timeout=30) == "sent"
        length = len(await run.journal())
        assert (await run.decide(STEP, returned="sent")).status == "completed"
        others: tuple[dict[str, Any], ...] = ({"returned": "lost"}, {"failed": "lost"}, {"not_performed": True})
        for otherwise in others:
            with pytest.raises(NotAllowedNow, match="decided otherwise"):
                await run.decide(STEP, **otherwise)
        assert len(await run.journal()) == length
    assert bank.calls == ["transfer:5"]


async def test_what_is_not_in_doubt_cannot_be_decided(home: Home) -> None:
    bank = Bank(timeout=0.2, reconcile=False)
    bank.hang = False
    async with home.holdfast(bank.pack) as hf:
        run = (await hf.start(bank.pay(5))).run
        assert await run.result(timeout=30) == "sent 5"
        with pytest.raises(NotAllowedNow, match="not in doubt"):
            await run.decide(STEP, returned="sent 5")


async def test_a_value_that_does_not_fit_and_a_word_too_many_are_refused(home: Home) -> None:
    bank = Bank(timeout=0.03, reconcile=False)
    async with home.holdfast(bank.pack) as hf:
        run = await blocked(hf, bank)
        with pytest.raises(UsageError, match=r"does not fit the result of effect bank\.transfer"):
            await run.decide(STEP, returned=7)
        with pytest.raises(UsageError, match="takes one of"):
            await run.decide(STEP)
        with pytest.raises(UsageError, match="takes one of"):
            await run.decide(STEP, returned="sent", not_performed=True)
        with pytest.raises(NotAllowedNow, match="not in doubt"):
            await run.decide("other#1", returned="sent")
        assert (await run.refresh()).status == "blocked"


def test_a_step_in_doubt_is_decided_without_async(home: Home) -> None:
    bank = Bank(timeout=0.03, reconcile=False)
    with Blocking(lambda: home.holdfast(bank.pack)) as hf:
        run = hf.start(bank.pay(5)).run
        with pytest.raises(UnknownOutcome):
            run.result(timeout=30)
        with pytest.raises(NotAllowedNow, match="not in doubt"):
            run.decide("transfer#2", returned="sent")
        assert run.decide(STEP, returned="sent", by="eve").result(timeout=30) == "sent"
    assert bank.calls == ["transfer:5"]
