"""The scenario that is killed everywhere: a keyed start, effects in a row, a gather, a sleep, two kinds of child."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Pack, attempt, effect_key, sleep, spawn, uuid4
from tests.faults import ledger

shop = Pack("shop")
LARGE = 300_000


def note(step: str, order: str, **more: Any) -> None:
    """The world sees a call. The first thing that each effect does."""
    ledger.here().write(call=effect_key(), step=step, order=order, attempt=attempt(), **more)


@shop.effect(key="reserve:{order}")
async def reserve(order: str) -> str:
    note("reserve", order)
    return f"{order} reserved"


@shop.effect
async def weigh(order: str, parcel: int) -> int:
    note(f"weigh {parcel}", order)
    await asyncio.sleep(0.01 * parcel)  # so that they end one after the other
    return 100 * parcel


@shop.effect
def book(order: str, grams: int, token: str) -> str:
    """A sync one: it runs in a thread. The token is drawn by the workflow and must replay alike."""
    note("book", order, grams=grams, token=token)
    return f"{order} booked at {grams} g"


@shop.effect
async def wrap(order: str) -> str:
    """Its result is large enough to be kept beside the journal: here, in the child's end, and in the parent."""
    note("wrap", order)
    return f"{order} wrapped".ljust(LARGE)


@shop.effect
async def tell(order: str) -> str:
    note("tell", order)
    return f"{order} told"


@shop.workflow(key="parcel:{order}")
async def parcel(order: str) -> str:
    """The awaited child."""
    return await wrap(order)


@shop.workflow(key="notice:{order}")
async def notice(order: str) -> str:
    """The spawned child."""
    return await tell(order)


@shop.workflow(key="order:{order}")
async def checkout(order: str) -> dict[str, Any]:
    reserved = await reserve(order)
    grams = await asyncio.gather(weigh(order, 1), weigh(order, 2))
    await sleep("1100ms")  # longer than a run stays in memory: any free worker continues it
    wrapped = (await parcel(order)).rstrip()
    child = await spawn(notice(order))
    booked = await book(order, sum(grams), str(uuid4()))
    return {"reserved": reserved, "wrapped": wrapped, "booked": booked, "notice": child.key}


STEPS = {"reserve", "weigh 1", "weigh 2", "wrap", "tell", "book"}


def expected(order: str) -> dict[str, Any]:
    """What `checkout(order)` returns, whatever dies."""
    return {
        "reserved": f"{order} reserved",
        "wrapped": f"{order} wrapped",
        "booked": f"{order} booked at 300 g",
        "notice": f"notice:{order}",
    }
