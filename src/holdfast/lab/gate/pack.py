"""The work that the gate has done: effects that the ledger sees, a sleep, a hook and a child in between.

    errand    effects, a signal, a timer, a child: what most scenarios order
    parcel    the child of an errand
    nap       a timer whose beginning and end the ledger sees
    chat      takes words from a hook and from a token, and can be found by how far it is

Every effect posts to the ledger before it returns. The order of STEPS is the order in which one run calls them, and
none is called before the one in front of it is recorded: so the ledger alone shows a call that came too late.
"""

from __future__ import annotations

import asyncio
import os

from holdfast.effects import attempt, effect_key
from holdfast.kernel.times import Millis
from holdfast.lab.gate import ledger
from holdfast.pack import Pack
from holdfast.workflow import current, hook, mark, set_attributes, sleep

STEPS = ("reserve", "charge", "ship")
CHILD_STEPS = ("wrap",)
NAP_STEPS = ("doze", "hum", "wake")
CHAT_STEPS = ("bye",)
GO = "go"
WORD = "word"  # the hook of a chat, for those who know the run or its key
KNOCK = "knock"  # the hook of a chat, for those who know its token
STAGE = "stage"  # the attribute that says how far a chat is
STAGES = ("open", "heard", "closed")
SLEEP_MS = Millis(50)  # of an errand, between `charge` and its child
pack = Pack("gate")


async def _post(step: str, run: str, order: str, hold_ms: int) -> str:
    await ledger.post(key=effect_key(), run=run, step=step, order=order, attempt=attempt(), hold_ms=Millis(hold_ms))
    return f"{order} {step}"


async def _signed(step: str, run: str, order: str, hold_ms: int) -> str:
    """Says who performed it: so a run that goes on with another value than the recorded one is found out."""
    return f"{await _post(step, run, order, hold_ms)} {os.getpid()}"


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


@pack.effect
async def doze(run: str, order: str, hold_ms: int) -> str:
    return await _signed("doze", run, order, hold_ms)


@pack.effect
async def hum(run: str, order: str, hold_ms: int) -> str:
    return await _signed("hum", run, order, hold_ms)


@pack.effect
async def wake(run: str, order: str) -> str:
    return await _signed("wake", run, order, 0)


@pack.effect
async def bye(run: str, order: str, hold_ms: int) -> str:
    return await _post("bye", run, order, hold_ms)


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
    await sleep(f"{SLEEP_MS}ms")
    done.append(await parcel(order, hold_ms))
    done.append(await ship(run, order, hold_ms))
    return done


@pack.workflow(key="{order}")
async def nap(order: str, sleep_ms: int, busy_ms: int = 0, hold_ms: int = 0) -> list[str]:
    """Sleeps between two effects. With `busy_ms` an effect is under way meanwhile: so its worker keeps the run.

    `hold_ms` is how long the ledger keeps the first effect waiting.
    """
    run = current().run_id

    async def slept() -> str:
        await sleep(f"{sleep_ms}ms")
        return await wake(run, order)

    done = [await doze(run, order, hold_ms)]
    if not busy_ms:
        return [*done, await slept()]
    return [*done, *await asyncio.gather(hum(run, order, busy_ms), slept())]


@pack.workflow(key="{order}", markers=STAGES)
async def chat(order: str, words: int, knocks: int = 0, hold_ms: int = 0) -> list[str]:
    """Takes so many words and knocks, in whatever order they come, and returns them as it took them.

    The token of the second hook is the order's name. With `hold_ms`, the last thing that it does is an effect.
    """
    await set_attributes(stage=STAGES[0], talk=order.partition("-")[0])
    await mark(STAGES[0])
    taken: list[str] = []

    async def take(name: str, token: str | None, count: int) -> None:
        async with hook(name, token, type=str) as heard:
            for _ in range(count):
                taken.append(await heard)
                if len(taken) == 1:
                    await set_attributes(stage=STAGES[1])
                    await mark(STAGES[1])

    knocking = [take(KNOCK, order, knocks)] if knocks else []
    await asyncio.gather(take(WORD, None, words), *knocking)
    await set_attributes(stage=STAGES[2])
    await mark(STAGES[2])
    if hold_ms:
        await bye(current().run_id, order, hold_ms)
    return taken


def go_word(order: str) -> str:
    """What the caller sends to the hook."""
    return f"{order} go"


def expected(order: str) -> list[str]:
    """What `errand(order)` returns, whatever dies."""
    return [f"{order} reserve", go_word(order), f"{order} charge", f"{order} wrap", f"{order} ship"]
