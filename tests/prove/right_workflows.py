"""Workflows that are right, and of which each does something that looks like a mistake from outside."""

from __future__ import annotations

import asyncio
import random

from holdfast import Pack, current, now, set_attributes, shield, sleep, timeout, uuid4
from holdfast.testing import FakeWorld, prove

shop = Pack("right")


class Rejected(Exception):
    """The order is not taken."""


@shop.effect(key="charge:{order}")
async def charge(order: str) -> str:
    return order


@shop.effect(key="stamp:{order}:{at}")
async def stamp(order: str, at: str) -> str:
    return f"{order} {at}"


@shop.workflow(key="run_id:{order}")
async def returns_its_id(order: str) -> str:
    await charge(order)
    return current().run_id


@shop.workflow(key="time:{order}")
async def tells_the_time(order: str) -> str:
    began_at = now()
    await charge(order)
    took = now() - began_at
    await set_attributes(paid_at=now().isoformat(), seconds=took.seconds)
    return f"{order} was paid after {took}"


@shop.workflow(key="uuid:{order}")
async def draws_an_id(order: str) -> str:
    await charge(order)
    return str(uuid4())


@shop.workflow(key="key:{order}")
async def has_the_time_in_a_key(order: str) -> str:
    await charge(order)
    await stamp(order, now().isoformat())
    return order


@shop.workflow(key="fails:{order}")
async def fails_with_its_id(order: str) -> str:
    await charge(order)
    raise Rejected(f"run {current().run_id} is refused at {now()}: {object()!r}")


@prove(fails_with_its_id, runs=[("o-1",)], fails=Rejected)
def refused(world: FakeWorld) -> None:
    del world


@shop.workflow(key="timeout:{order}")
async def does_without_what_is_late(order: str) -> str:
    try:
        async with timeout("5s"):
            return await charge(order)
    except TimeoutError:
        return "no offer"


@shop.workflow(key="late:{order}")
async def fails_when_it_is_late(order: str) -> str:
    async with timeout("5s"):
        return await charge(order)


@shop.effect(key="pay:{order}", safety="once")
async def pay(order: str) -> str:
    return order


@shop.workflow(key="once:{order}")
async def waits_for_a_person(order: str) -> str:
    return await pay(order)


@shop.effect(key="refund:{order}")
async def refund(order: str) -> None:
    del order


@shop.effect(key="buy:{order}", undo=refund)
async def buy(order: str) -> str:
    return order


@shop.workflow(key="lost:{order}")
async def loses_a_reply(order: str) -> str:
    return await buy(order)


@prove(loses_a_reply, runs=[("o-1",)])
def bad_line(world: FakeWorld) -> None:
    world.stub(buy, returns="paid", loses_reply=True)


@shop.workflow(key="twice:{order}")
async def undoes_and_buys_again(order: str) -> str:
    await buy(order)
    await refund(order)
    return await buy(order)


@shop.workflow(key="seeded:{order}")
async def draws_by_its_input(order: str) -> float:
    chance = random.Random(order)  # the same on every replay
    await charge(order)
    return chance.random() + chance.triangular()


@shop.effect(key="clean:{order}")
async def clean(order: str) -> str:
    return order


async def in_a_shield(order: str) -> None:
    async with shield("1m"):
        await clean(order)


@shop.workflow(key="helper:{order}")
async def cleans_in_a_helper(order: str) -> str:
    try:
        await sleep("1h")
    except asyncio.CancelledError:
        await in_a_shield(order)
        raise
    return order


@shop.workflow(key="shielded:{order}")
async def ends_in_a_shield(order: str) -> str:
    await charge(order)
    async with shield("1m"):
        await clean(order)
        await stamp(order, "end")
    return order
