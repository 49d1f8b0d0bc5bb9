from __future__ import annotations

import pytest

from examples import orders
from examples.orders import Bank, CardDeclined, Order, checkout, shop
from holdfast import Holdfast, RunFailed
from holdfast.kernel.journal import Attempted, GaveUp


@pytest.fixture
def bank(monkeypatch) -> Bank:
    bank = Bank()
    monkeypatch.setattr(orders, "bank", bank)
    return bank


@pytest.fixture
async def hf(tmp_path):
    async with Holdfast(f"sqlite:///{tmp_path}/shop.db", packs=[shop]) as hf:
        yield hf


async def test_an_order_that_is_started_twice_is_charged_once(hf, bank):
    first = await hf.start(checkout("o-1", "visa", {"book": 1200}))
    second = await hf.start(checkout("o-1", "visa", {"book": 1200}))
    assert (first.created, second.created) == (True, False)
    assert await first.run.result() == await second.run.result() == Order("shipped", "payment-1", "parcel for o-1")
    assert bank.ledger == {"charge:o-1": 1200}


async def test_a_busy_bank_is_asked_again_under_the_same_key(hf, bank):
    bank.busy = 3
    run, _ = await hf.start(checkout("o-1", "visa", {"book": 1200}))
    assert (await run.result()).status == "shipped"
    assert bank.requests == ["o-1 under charge:o-1"] * 4
    assert [entry.attempt for entry in await run.journal() if isinstance(entry, Attempted)] == [1, 2, 3]


async def test_a_declined_card_is_tried_once_and_the_order_is_rejected(hf, bank):
    run, _ = await hf.start(checkout("o-2", "stolen", {"book": 1200}))
    assert await run.result() == Order("rejected", reason="the card was reported stolen")
    assert len(bank.requests) == 1
    assert bank.ledger == {}
    [gave_up] = [entry for entry in await run.journal() if isinstance(entry, GaveUp)]
    assert gave_up.error.type.endswith(CardDeclined.__name__)


async def test_an_order_without_items_fails_before_any_effect(hf, bank):
    run, _ = await hf.start(checkout("o-3", "visa", {}))
    with pytest.raises(RunFailed) as failed:
        await run.result()
    assert isinstance(failed.value.__cause__, ValueError)
    assert bank.requests == []


async def test_the_story_is_told(tmp_path, bank, capsys):
    bank.busy = 1
    await orders.story(f"sqlite:///{tmp_path}/shop.db")
    told = capsys.readouterr().out
    assert "created: [False, True], one run: True" in told
    assert "charged: {'charge:o-1': 1200}" not in told  # book and pen
    assert "charged: {'charge:o-1': 1500}" in told
    assert "refused: key 'checkout:o-1'" in told
    assert "asked 1 time" in told
