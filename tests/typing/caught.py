"""Checked by basedpyright, never executed: what is found in an error that was caught."""

from __future__ import annotations

from typing import Any, assert_type

from holdfast import Holdfast, InputMismatch, Overtaken, Pack, Receipt, Run, Started
from holdfast.errors import UndeclaredOutcome

shop = Pack("shop")


@shop.workflow
async def sell(order: str) -> int:
    return len(order)


async def catches(hf: Holdfast, run: Run[int]) -> None:
    try:
        await hf.start(sell("o-1"), key="k", replace=run)
    except InputMismatch as mismatch:
        assert_type(mismatch.run, Run[Any])
        assert_type(await mismatch.run.input(), dict[str, Any])
    except Overtaken as overtaken:
        assert_type(overtaken.run, Run[Any])
        assert_type(await hf.start(sell("o-1"), replace=overtaken.run), Started[int])
    try:
        await run.cancel()
    except UndeclaredOutcome as undeclared:
        assert_type(undeclared.receipt, Receipt)
        print(undeclared.receipt.effects)
