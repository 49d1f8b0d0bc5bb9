"""Checked by basedpyright, never executed: `Simulated` has the types of a `Holdfast`, stubs those of their effect."""

from __future__ import annotations

from typing import Any, assert_type

from holdfast import Pack, Receipt, Run, Started
from holdfast.testing import EffectLedger, LedgerCall, Simulated

shop = Pack("shop")


@shop.effect
async def charge(order: str) -> str:
    return order


@shop.workflow
async def sell(order: str) -> int:
    return len(await charge(order))


def fake(order: str) -> str:
    return order


async def slow_fake(order: str) -> str:
    return order


async def verbs() -> None:
    async with Simulated(packs=[shop], replicas=2, seed=7, lease="6s") as hf:
        assert_type(hf, Simulated)
        assert_type(await hf.start(sell("o-1")), Started[int])
        run, _ = await hf.start(sell("o-1"))
        assert_type(await run.result(), int)
        assert_type(await hf.find(sell, "k"), Run[int])
        assert_type(await hf.get("run-1"), Run[Any])
        assert_type(await run.cancel(), Receipt)
        hf.stub(charge, returns="pay_1")
        hf.stub(charge, fails=2, then="pay_1", latency="50ms", loses_reply=True)
        hf.stub(charge, calls=fake)
        hf.stub(charge, calls=slow_fake)
        hf.stub(sell, returns=1)  # pyright: ignore[reportArgumentType]
        assert_type(hf.ledger, EffectLedger)
        assert_type(hf.ledger.calls(charge, order="o-1"), list[LedgerCall])
        hf.kill_at(charge, "somewhere")  # pyright: ignore[reportArgumentType]
