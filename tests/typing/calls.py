"""Checked by basedpyright, never executed: arguments and results are inferred through packs, calls and runs.

`assert_type` proves what is inferred. A `pyright: ignore` proves that a mistake is seen: an ignore that nothing needs
is an error itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

from holdfast import (
    Call,
    ChildRun,
    Effect,
    Holdfast,
    Pack,
    Retry,
    RetryAfter,
    Run,
    Started,
    Workflow,
    sleep,
    spawn,
    timeout,
)
from holdfast.pack import EffectCall
from holdfast.resources import Resource

shop = Pack("shop")


@dataclass
class Item:
    name: str
    cents: int


@dataclass
class Order:
    payment: str
    items: list[Item]


# -- definitions, bare and with options


@shop.kernel
def price(items: list[Item]) -> int:
    return sum(item.cents for item in items)


@shop.kernel()
def cheapest(items: list[Item]) -> Item:
    return min(items, key=price_of)


def price_of(item: Item) -> int:
    return item.cents


@shop.effect
async def charge(account: str, order: str, cents: int = 0) -> str:
    return f"{account}{order}{cents}"


@shop.effect
def weigh(item: Item) -> float:
    return float(item.cents)


@shop.effect(key="refund:{order}", retry=Retry(attempts=5), timeout="3s")
async def refund(order: str, *, reason: str | None = None) -> bool:
    return bool(order) and reason is None


@shop.effect(safety="once", reconcile=lambda key: key, timeout=timedelta(seconds=1))
def pack_up(items: list[Item]) -> None:
    items.clear()


@shop.workflow
async def pay(order: str, cents: int) -> str:
    return await charge("acct", order, cents)


@shop.workflow(key="checkout:{order}", retention="30d", queue="default")
async def checkout(order: str, items: list[Item], *, gift: bool = False) -> Order:
    cents = price(items)
    assert_type(cents, int)
    assert_type(cheapest(items), Item)

    # Awaiting a call inside a workflow gives what the function returns, sync or async.
    payment = await charge("acct", order, cents)
    assert_type(payment, str)
    assert_type(await weigh(items[0]), float)
    assert_type(await refund(order, reason="late"), bool)
    assert_type(await pack_up(items), None)

    # A child: awaited, or spawned and joined later.
    assert_type(await pay(order, cents), str)
    child = await spawn(pay(order, 5), key="k")
    assert_type(child, ChildRun[str])
    assert_type(await child.result(), str)
    assert_type(child.key, str | None)

    # Plain asyncio: a call is a coroutine, so tasks are made of it.
    assert_type(asyncio.create_task(charge("a", "b")), asyncio.Task[str])
    async with asyncio.TaskGroup() as group:
        assert_type(group.create_task(weigh(items[0])), asyncio.Task[float])
        assert_type(group.create_task(pay(order, cents)), asyncio.Task[str])
    assert_type(await asyncio.gather(charge("a", "b"), weigh(items[0])), tuple[str, float])
    assert_type(await asyncio.wait_for(refund(order), 3), bool)
    assert_type(await asyncio.ensure_future(charge("a", "b")), str)
    for first in asyncio.as_completed([weigh(item) for item in items]):
        assert_type(await first, float)
    async with timeout("30s"):
        await sleep("2h")
    return Order(payment if gift else "", items)


assert_type(price([]), int)
_ = assert_type(charge("a", "b"), EffectCall[str])
_ = assert_type(charge("a", order="b", cents=1), EffectCall[str])
_ = assert_type(weigh(Item("a", 1)), EffectCall[float])
_ = assert_type(refund("o-1"), EffectCall[bool])
_ = assert_type(pack_up([]), EffectCall[None])
_ = assert_type(pay("o-1", 5), Call[str])
_ = assert_type(checkout("o-1", []), Call[Order])


def _an_effect(effect: Effect[..., str], workflow: Workflow[..., Order]) -> None:
    """Effects and workflows may be passed on by their result."""


_an_effect(charge, checkout)
_an_effect(
    weigh,  # pyright: ignore[reportArgumentType] - gives a float
    pay,  # pyright: ignore[reportArgumentType] - gives a str
)


# -- callers


async def main() -> None:
    async with Holdfast("sqlite:///shop.db", packs=[shop], lease="30s", concurrency=10) as hf:
        started = await hf.start(checkout("o-1", []), delay=5, priority=1)
        assert_type(started, Started[Order])
        run, created = started
        assert_type(run, Run[Order])
        assert_type(created, bool)
        assert_type(started.run, Run[Order])
        assert_type(started.created, bool)
        assert_type(await run.result(), Order)
        assert_type(await run.result(timeout=timedelta(seconds=3)), Order)
        assert_type((await run.result()).items[0].cents, int)
        assert_type(await run.refresh(), Run[Order])
        assert_type(await run.retry(), Run[Order])
        assert_type(await hf.find(checkout, "checkout:o-1"), Run[Order])
        assert_type(await hf.get(run.id), Run[Any])
        paid, _ = await hf.start(pay("o-1", cents=5), key="k", retention="1d", request_id="r-1")
        assert_type(await paid.result("3s"), str)


# -- mistakes that an editor shows


async def mistakes(hf: Holdfast) -> None:
    charge("a")  # pyright: ignore[reportCallIssue]
    _ = charge("a", 5)  # pyright: ignore[reportArgumentType]
    _ = charge("a", "b", cents="5")  # pyright: ignore[reportArgumentType]
    charge("a", "b", price=5)  # pyright: ignore[reportCallIssue]
    charge("a", "b", 1, 2)  # pyright: ignore[reportCallIssue]
    _ = weigh("lamp")  # pyright: ignore[reportArgumentType]
    refund("o-1", "late")  # pyright: ignore[reportCallIssue]
    pay("o-1")  # pyright: ignore[reportCallIssue]
    _ = checkout("o-1", ["lamp"])  # pyright: ignore[reportArgumentType]
    _ = checkout("o-1", [], gift=1)  # pyright: ignore[reportArgumentType]
    price("lamp")  # pyright: ignore[reportArgumentType]

    await hf.start(checkout)  # pyright: ignore[reportArgumentType] - not called
    await hf.start(checkout("o-1", []), delay=[])  # pyright: ignore[reportArgumentType]
    await hf.start(checkout("o-1", []), wait=5)  # pyright: ignore[reportCallIssue]
    run, _ = await hf.start(pay("o-1", 5))
    wrong: int = await run.result()  # pyright: ignore[reportAssignmentType]
    print(wrong)
    print(run.state)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
    await spawn(charge)  # pyright: ignore[reportArgumentType] - not called
    item: Item = await weigh(Item("a", 1))  # pyright: ignore[reportAssignmentType]
    print(item)


async def forgotten() -> None:
    charge("a", "b")  # pyright: ignore[reportUnusedCoroutine] - not awaited
    weigh(Item("a", 1))  # pyright: ignore[reportUnusedCoroutine]
    pay("o-1", 5)  # pyright: ignore[reportUnusedCoroutine]
    checkout("o-1", [])  # pyright: ignore[reportUnusedCoroutine]


async def effects_are_no_runs(hf: Holdfast) -> None:
    await hf.start(charge("a", "b"))  # pyright: ignore[reportArgumentType]
    await spawn(charge("a", "b"))  # pyright: ignore[reportArgumentType]
    with Holdfast.blocking("memory://") as blocking:
        blocking.start(charge("a", "b"))  # pyright: ignore[reportArgumentType]


def options() -> None:
    shop.workflow(retry=Retry())  # pyright: ignore[reportCallIssue]
    shop.kernel(retry=Retry())  # pyright: ignore[reportCallIssue]
    shop.effect(retry=3)  # pyright: ignore[reportArgumentType]
    shop.effect(safety="twice")  # pyright: ignore[reportArgumentType]
    shop.effect(key=5)  # pyright: ignore[reportArgumentType]
    shop.workflow(price_of)  # pyright: ignore[reportCallIssue, reportArgumentType] - not async
    shop.workflow(retention=[])  # pyright: ignore[reportArgumentType]
    Retry(attempts="3")  # pyright: ignore[reportArgumentType]
    Retry(on=ValueError)  # pyright: ignore[reportArgumentType]
    Retry(3)  # pyright: ignore[reportCallIssue]
    assert_type(RetryAfter("24m").seconds, float)
    RetryAfter(timedelta(minutes=1), "busy")
    RetryAfter(None)  # pyright: ignore[reportArgumentType]


# -- resources: what an effect uses is typed as what its resource yields, and no argument of a call


@shop.resource
async def provider() -> AsyncIterator[Item]:
    yield Item("a", 1)


@shop.resource
def pool() -> Iterator[Order]:
    yield Order("p", [])


@shop.resource
async def token() -> str:
    return "t"


@shop.effect
async def send(
    order: str, item: Item = provider.shared, orders: Order = pool.shared, secret: str = token.shared
) -> str:
    return f"{order}{item}{orders}{secret}"


@shop.effect
async def mistaken(item: str = provider.shared) -> str:  # pyright: ignore[reportArgumentType]
    return item


assert_type(provider, Resource[Item])
assert_type(pool, Resource[Order])
assert_type(token, Resource[str])
_ = assert_type(send("o-1"), EffectCall[str])
