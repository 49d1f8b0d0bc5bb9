"""The pack of these tests: workflows that end in every way, at once or when they are told to."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from holdfast import Pack, Permanent, Retry, RetryAfter, attempt, heartbeat, hook, mark, set_attributes, spawn

bakery = Pack("bakery")


@dataclass
class Loaf:
    """What comes out of the oven."""

    name: str
    grams: int


@bakery.effect(key="clean:{name}")
async def clean(name: str, result: str) -> str:
    return f"{name} is clean"


@bakery.effect(key="knead:{name}", retry=Retry(attempts=3, base="1ms"), undo=clean)
async def knead(name: str, grams: int) -> str:
    if name.startswith("sticky") and attempt() < 2:
        raise ConnectionError("the dough sticks")
    if name.startswith("frozen") and attempt() < 2:
        raise RetryAfter(24 * 60)
    if name.startswith("burnt"):
        raise Permanent("there is no flour")
    return f"{grams} g of {name}"


@bakery.workflow(key="bake:{name}", markers=("kneaded",))
async def bake(name: str, grams: int = 500) -> Loaf:
    """Knead and bake.

    It fails for burnt loaves.
    """
    await set_attributes({"name": name, "grams": grams})
    await knead(name, grams)
    await mark("kneaded")
    return Loaf(name, grams)


@bakery.effect(timeout="1h")
async def rise(flag: str) -> str:
    """Until a file is there."""
    heartbeat({"risen": "half"})
    while not Path(flag).exists():
        await asyncio.sleep(0.02)
    return "risen"


@bakery.workflow(key="prove:{flag}", record_inputs=True)
async def prove(flag: str) -> str:
    """Let the dough rise."""
    return await rise(flag)


@bakery.workflow(key="order:{name}")
async def order(name: str) -> str:
    """Bake, then wait for somebody to say go."""
    child = await spawn(bake(name))
    await child.result()
    await knead(f"{name}-dough", 10)
    return f"{name}: {await hook('go', token=f'go:{name}', type=str)}"


@bakery.effect(key="deliver:{name}", safety="once", timeout="30ms")
async def deliver(name: str) -> str:
    if attempt() == 1:
        await asyncio.Event().wait()
    return f"{name} has arrived"


@bakery.workflow(key="delivery:{name}")
async def delivery(name: str) -> str:
    """Send it out once; whether it has arrived, only a person knows."""
    return await deliver(name)
