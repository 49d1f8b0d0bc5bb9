"""The work that the gate has done: effects that the ledger sees, a sleep, a hook and a child in between.

Every effect posts to the ledger before it returns. The order of STEPS is the order in which one run calls them, and
none is called before the one in front of it is recorded: so the ledger alone shows a call that came too late.
"""

from __future__ import annotations

from holdfast.effects import attempt, effect_key
from holdfast.gate import ledger
from holdfast.pack import Pack
from holdfast.workflow import current, hook, sleep

STEPS = ("reserve", "charge", "ship")
CHILD_STEPS = ("wrap",)
GO = "go"
pack = Pack("gate")


async def _post(step: str, run: str, order: str, hold_ms: int) -> str:
    await ledger.post(key=effect_key(), run=run, step=step, order=order, attempt=attempt(), hold_ms=hold_ms)
    return f"{order} {step}"


@pack.effect
async def reserve(run: str, order: str, hold_ms: int) -> str:
    return await _post("reserve", run, order, hold_ms)


@pack.effect(key="charge:{order}")
async def charge(run: str, order: str, hold_ms: int) -> str:
    return await _post("charge", run, order, hold_ms)


@pack.effect
async def wrap(run: str, order: str, hold_ms: int) -> str:
    return await _post("wrap", run, order, hold_ms)


@pack.effect
async def ship(run: str, order: str, hold_ms: int) -> str:
    return await _post("ship", run, order, hold_ms)


@pack.workflow(key="{order}/parcel")
async def parcel(order: str, hold_ms: int) -> str:
    """The child."""
    return await wrap(current().run_id, order, hold_ms)


@pack.workflow(key="{order}")
async def errand(order: str, hold_ms: int = 0) -> list[str]:
    """One order. `hold_ms` is how long the ledger keeps each effect waiting for its answer."""
    run = current().run_id
    done = [await reserve(run, order, hold_ms)]
    async with hook(GO, type=str) as go:
        done.append(await go)
    done.append(await charge(run, order, hold_ms))
    await sleep("50ms")
    done.append(await parcel(order, hold_ms))
    done.append(await ship(run, order, hold_ms))
    return done


def go_word(order: str) -> str:
    """What the caller sends to the hook."""
    return f"{order} go"


def expected(order: str) -> list[str]:
    """What `errand(order)` returns, whatever dies."""
    return [f"{order} reserve", go_word(order), f"{order} charge", f"{order} wrap", f"{order} ship"]
