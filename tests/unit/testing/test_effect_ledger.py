from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import Pack, UsageError
from holdfast.testing import EffectLedger, LedgerCall

shop = Pack("shop")


@shop.effect
async def charge(order: str) -> str:
    return order


def call(effect: str = "shop.charge", **fields: Any) -> LedgerCall:
    made = {"run": "r-1", "step": "charge#1", "key": "charge:o-1", "attempt": 1, "arguments": {"order": "o-1"}}
    return LedgerCall(effect=effect, worker="worker-0", at=datetime(2026, 1, 1, tzinfo=UTC), **{**made, **fields})


def test_calls_are_found_by_effect_run_key_and_arguments():
    ledger = EffectLedger()
    first, second, other = call(), call(run="r-2", key="charge:o-2", arguments={"order": "o-2"}), call("shop.ship")
    for each in (first, second, other):
        ledger.write(each)
    assert list(ledger) == ledger.calls() == [first, second, other]
    assert len(ledger) == 3
    assert ledger.calls(charge) == ledger.calls("shop.charge") == ledger.calls("charge") == [first, second]
    assert ledger.calls(charge, run="r-2") == ledger.calls(key="charge:o-2") == ledger.calls(order="o-2") == [second]
    assert ledger.calls(charge, order="o-2", run="r-1") == []
    assert ledger.calls(charge, order="o-3") == []
    with pytest.raises(UsageError, match="no argument 'customer'"):  # a misspelt one would fit no call either
        ledger.calls(charge, customer="c-1")


def test_only_what_happened_is_counted():
    ledger = EffectLedger()
    for each in (call(outcome="raised"), call(outcome="lost", happened=True), call(outcome="returned", happened=True)):
        ledger.write(each)
    assert ledger.count(charge) == 2
    assert ledger.count("ship") == 0
    assert "shop.charge 'charge:o-1' attempt 1: lost" in repr(ledger)
    assert repr(EffectLedger()) == "<EffectLedger: empty>"
