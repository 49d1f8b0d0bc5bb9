"""Checked by basedpyright, never executed: hooks, signals, attributes, cancellation, and what is found.

`assert_type` proves what is inferred. A `pyright: ignore` proves that a mistake is seen: an ignore that nothing needs
is an error itself.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Never, assert_type

from holdfast import (
    ChildRun,
    Effect,
    Holdfast,
    Hook,
    Marker,
    Pack,
    Range,
    Receipt,
    Run,
    Started,
    Story,
    Wait,
    cancel_requested,
    continue_as_new,
    current,
    hook,
    mark,
    patched,
    set_attributes,
    shield,
    spawn,
)
from holdfast.client import ChildLeft, Description, Left, Page, Replayed, Runs
from holdfast.journal import RunEvent

shop = Pack("shop")
Outcome = Literal["no_effects", "partial", "resumable", "compensated", "completed_first", "unknown"]


@dataclass
class Item:
    name: str
    cents: int


@shop.effect
async def refund(order: str, result: str) -> None:
    print(order, result)


@shop.effect(undo=refund)
async def charge(order: str, cents: int) -> str:
    assert_type(cancel_requested(), bool)
    return f"{order}{cents}"


assert_type(charge.undo, Effect[..., Any] | None)


@shop.workflow(key="sell:{order}", markers=("new", "paid"), version="2", outcomes=("partial", "no_effects"))
async def sell(order: str) -> int:
    # A hook gives what its type says, in every way of taking.
    items = hook("items", type=Item)
    assert_type(items, Hook[Item])
    assert_type(await items, Item)
    assert_type((await items).cents, int)
    async for item in items:
        assert_type(item, Item)
    async with hook("names", token="t-1", type=list[str]) as names:
        assert_type(names, Hook[list[str]])
        assert_type(await names, list[str])
        assert_type(await names.conflict(), ChildRun[Any] | None)
    anything = hook("anything")
    assert_type(anything, Hook[Any])
    assert_type(await anything, Any)
    assert_type(await asyncio.wait_for(items, 3), Item)
    assert_type(await anything.close(), None)
    anything.close()

    await set_attributes({"stage": "paid", "total": 3, "vip": True, "due": datetime.now(UTC), "rate": 0.5})
    await set_attributes(stage=None)
    await mark("paid")
    if patched("cheaper"):
        async with shield("10s"):
            await charge(order, 5)
    assert_type(current().version, str | None)
    assert_type(await spawn(sell("o-2"), detached=True), ChildRun[int])
    if not order:
        assert_type(continue_as_new(sell("o-1")), Never)
    return 3


# -- callers


async def main(hf: Holdfast) -> None:
    run, _ = await hf.start(
        sell("o-1"),
        attributes={"customer": "c-1", "total": 12, "vip": True},
        signal=("items", Item("lamp", 5), "dedupe-1"),
    )
    assert_type(await hf.start(sell("o-1"), replace=run, signal=("items", None)), Started[int])
    assert_type(await run.signal("items", Item("lamp", 5), dedupe="d-1"), None)
    assert_type(await hf.resume_hook("t-1", ["a"], dedupe="d-1"), Run[Any])

    receipt = await run.cancel("no longer wanted", deadline="10s")
    assert_type(receipt, Receipt)
    assert_type(await run.receipt(), Receipt)
    assert_type(receipt.outcome, Outcome)
    assert_type(receipt.effects, tuple[Left, ...])
    assert_type(receipt.effects[0].state, Literal["performed", "undone", "unknown"])
    assert_type(receipt.children, tuple[ChildLeft, ...])
    assert_type(receipt.reason, str)
    assert_type(receipt.stopped, bool)

    assert_type(await run.resume(), Run[int])
    assert_type(await run.fork("charge#1", key="k"), Run[int])
    assert_type(await run.release_key("operator"), Run[int])
    assert_type(run.markers, tuple[Marker, ...])
    assert_type(run.markers[0].at, datetime)
    assert_type(run.attributes, dict[str, str | int | float | bool | datetime])
    assert_type(run.version, str | None)
    assert_type(run.waiting_on, tuple[Wait, ...])
    assert_type(run.next_actions, tuple[str, ...])
    async for event in run.events(after=3):
        assert_type(event, RunEvent)

    found = hf.runs(sell, {"running", "waiting"}, attributes={"customer": "c-1", "total": Range(ge=10, lt=20)}, limit=5)
    assert_type(found, Runs[int])
    async for each in found:
        assert_type(each, Run[int])
    page = await found.page(after="cursor", limit=10)
    assert_type(page, Page[int])
    assert_type(page.runs, tuple[Run[int], ...])
    assert_type(hf.runs(), Runs[Any])
    assert_type(hf.runs("shop.sell"), Runs[Any])
    assert_type(page.next, str | None)
    assert_type(await hf.explain(run), Story)
    assert_type(await hf.explain(sell, "sell:o-1"), Story)
    assert_type(await hf.replay_check(sell, limit=10), list[Replayed])
    assert_type(await hf.workflows(), tuple[Description, ...])


# -- mistakes that an editor shows


async def mistakes(hf: Holdfast, run: Run[int]) -> None:
    wrong: str = await hook("items", type=Item)  # pyright: ignore[reportAssignmentType]
    print(wrong)
    hook("items", type=5)  # pyright: ignore[reportCallIssue, reportArgumentType]
    hook()  # pyright: ignore[reportCallIssue]
    await mark(3)  # pyright: ignore[reportArgumentType]
    await set_attributes({"items": ["a"]})  # pyright: ignore[reportArgumentType]
    await set_attributes(items=["a"])  # pyright: ignore[reportArgumentType]
    await run.cancel(deadline=[])  # pyright: ignore[reportArgumentType]
    await run.signal()  # pyright: ignore[reportCallIssue]
    await run.fork()  # pyright: ignore[reportCallIssue]
    await hf.start(sell("o-1"), attributes={"items": ["a"]})  # pyright: ignore[reportArgumentType]
    await hf.start(sell("o-1"), replace="run-1")  # pyright: ignore[reportArgumentType]
    await hf.start(sell("o-1"), signal="items")  # pyright: ignore[reportArgumentType]
    hf.runs(sell, created_after="yesterday")  # pyright: ignore[reportCallIssue, reportArgumentType]
    hf.runs(attributes={"items": ["a"]})  # pyright: ignore[reportArgumentType]
    continue_as_new(sell)  # pyright: ignore[reportArgumentType] - not called


def options() -> None:
    shop.effect(undo=sell)  # pyright: ignore[reportArgumentType]
    shop.workflow(markers=3)  # pyright: ignore[reportArgumentType]
    shop.workflow(version=2)  # pyright: ignore[reportArgumentType]
    shop.workflow(outcomes=("half",))  # pyright: ignore[reportArgumentType]
