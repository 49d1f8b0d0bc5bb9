"""The workflows that live long and are talked to: hooks, keys that change hands, cancellations, markers."""

from __future__ import annotations

import asyncio
import os
import random as chance
import signal
import time
from typing import Any

from holdfast import (
    NotPerformed,
    Pack,
    Retry,
    continue_as_new,
    effect_key,
    hook,
    mark,
    shield,
    sleep,
    spawn,
    timeout,
)
from tests.faults import ledger
from tests.faults.workflows_checkout import note
from tests.faults.workflows_held_by_flags import flag, raised

fire = Pack("fire")
RUN = "tests.faults.workflows_long_lived:fire"


def die_once(name: str) -> None:
    """The process ends here without a word, the first time that anybody comes here after the flag was raised."""
    if flag(f"die-{name}").exists():
        flag(f"die-{name}").unlink()
        os.kill(os.getpid(), signal.SIGKILL)


# -- keys that change hands


@fire.effect(key="unserve:{name}:{number}")
async def unserve(name: str, number: int) -> None:
    note(f"unserve {number}", name)


@fire.effect(key="serve:{name}:{number}", undo=unserve)
async def serve(name: str, number: int) -> int:
    note(f"serve {number}", name)
    return number


@fire.workflow(key="post:{name}")
async def post(name: str, number: int) -> Any:
    """Holds its post until it is relieved: by a signal, or by a successor."""
    await serve(name, number)
    return await hook("relief")


@fire.workflow(key="till:{name}")
async def till(name: str) -> list[Any]:
    """Takes whatever is given, and closes when nothing was given for a moment."""
    del name
    coins = hook("coins")
    taken: list[Any] = []
    while True:
        try:
            async with timeout("1ms"):
                taken.append(await coins)
        except TimeoutError:
            return taken


@fire.workflow(key="purse:{name}")
async def purse(name: str) -> list[Any]:
    """Takes ten and is full; whatever else it was given is for the next one."""
    del name
    coins = hook("coins")
    return [await coins for _ in range(10)]


@fire.workflow(key="tray:{name}")
async def tray(name: str, number: int = 0) -> list[Any]:
    """Takes two and is full, or closes when nothing comes for a moment; what else it was given is for the next one."""
    del name, number
    coins = hook("coins")
    taken: list[Any] = []
    while len(taken) < 2:
        try:
            async with timeout("50ms"):
                taken.append(await coins)
        except TimeoutError:
            break
    return taken


# -- hooks


@fire.effect
async def wait_for(name: str) -> None:
    note("wait_for", name)
    await raised(f"go-{name}")


@fire.workflow(key="diary:{name}")
async def diary(name: str, count: int, late: bool = False) -> list[Any]:
    """Takes `count` payloads, in order; with `late` it comes to its hook only after a while."""
    if late:
        await wait_for(name)
    notes = hook("notes")
    return [await notes for _ in range(count)]


@fire.workflow
async def desk(token: str, name: str) -> list[Any]:
    """Sits at the desk, or says who does."""
    visitor = hook("visitor", token=token)
    owner = await visitor.conflict()
    if owner is not None:
        return ["taken", owner.id]
    return [name, await visitor]


@fire.workflow(key="box:{name}")
async def box(name: str, count: int) -> list[Any]:
    """Takes what comes for one hook, by whatever way."""
    async with hook("letters", token=f"slot-{name}") as letters:
        await letters.conflict()
        return [await letters for _ in range(count)]


@fire.workflow(key="relay:{name}")
async def relay(name: str, rounds: int) -> list[Any]:
    """Opens the same token again and again."""
    got: list[Any] = []
    for _ in range(rounds):
        async with hook("baton", token=f"baton-{name}") as baton:
            got.append(await baton)
    return got


# -- cancellation: five steps, each of another kind


@fire.effect(key="undo-{what}:{name}", retry=Retry(attempts=1))
async def take_back(name: str, what: str) -> None:
    note(f"undo {what}", name)
    die_once(f"undo-{name}-{what}")
    if flag(f"slow-undo-{name}-{what}").exists():
        await raised(f"go-{name}")


@fire.effect(key="undo-{result}:{name}", retry=Retry(attempts=1))
def take_back_result(name: str, result: str) -> None:
    """A sync one that needs to know what it takes back."""
    note(f"undo {result}", name)
    die_once(f"undo-{name}-{result}")


@fire.effect(key="{what}:{name}", undo=take_back)
async def do(name: str, what: str, hold: bool) -> str:
    note(what, name)
    die_once(f"{name}-{what}")
    if hold:
        await raised(f"go-{name}")
    return what


@fire.effect(key="{what}:{name}", undo=take_back_result)
def do_in_a_thread(name: str, what: str) -> str:
    note(what, name)
    return what


@fire.workflow(key="leg:{name}")
async def leg(name: str) -> str:
    """The child: its effect is its own, and so is its undoing."""
    return await do(name, "three", True)


@fire.workflow(key="trip:{name}")
async def trip(name: str, before: int = 0, within: int = 0) -> list[str]:
    """Five steps. It may be held before one of them, or within one: within the third, that is a child's."""

    async def pause(number: int) -> None:
        if before == number:
            await hook("pause")

    await pause(1)
    done = [await do(name, "one", within == 1)]
    await pause(2)
    done.append(await do_in_a_thread(name, "two"))
    await pause(3)
    done.append(await (leg(name) if within == 3 else do(name, "three", False)))
    await pause(4)
    await sleep("86400s" if within == 4 else "1ms")
    done += await asyncio.gather(do(name, "four", False), do(name, "five", within == 5))
    await pause(6)
    return done


STEPS = ("one", "two", "three", "four", "five")


@fire.workflow(key="fall:{name}", on_failure="undo")
async def fall(name: str, with_child: bool = False) -> None:
    """The same five steps, and then it fails; with a child, that is still under way then."""
    await do(name, "one", False)
    await do_in_a_thread(name, "two")
    if with_child:
        await spawn(leg(name))
        await see_the_child(name)
    else:
        await do(name, "three", False)
    await sleep("1ms")
    await asyncio.gather(do(name, "four", False), do(name, "five", False))
    raise LookupError("the bridge is out")


@fire.workflow(key="patient:{name}", on_failure="undo", timeout="1500ms")
async def patient(name: str) -> None:
    """One step, and then it waits for what never comes."""
    await do(name, "one", False)
    await hook("never")


@fire.effect(key="see:{name}")
async def see_the_child(name: str) -> None:
    """Returns when the child has called its effect. It leaves nothing behind, but the engine cannot know that."""
    while not any(line["step"] == "three" and line["order"] == name for line in ledger.here().calls()):
        await asyncio.sleep(0.01)


# -- a family that is meddled with


def _befalls(name: str) -> None:
    """Now and then something goes wrong; otherwise it is done, and the ledger says so last of all."""
    if chance.random() < 0.15:
        raise OSError("bad luck")
    ledger.here().write(done=effect_key(), order=name)


@fire.effect(retry=Retry(attempts=1))
async def toil(name: str) -> str:
    await asyncio.sleep(chance.random() * 0.05)
    _befalls(name)
    return name


@fire.effect(retry=Retry(attempts=1))
def toil_in_a_thread(name: str) -> str:
    time.sleep(chance.random() * 0.05)
    _befalls(name)
    return name


@fire.workflow
async def child(name: str) -> str:
    return await toil(name) + await toil_in_a_thread(name)


async def _family(name: str) -> list[str]:
    away = await spawn(child(name), detached=True)
    near = await spawn(child(name))

    async def shielded() -> str:
        async with shield("30s"):
            return await toil(name)

    return await asyncio.gather(
        child(name), away.result(), near.result(), toil(name), toil_in_a_thread(name), shielded()
    )


@fire.workflow(key="family:{name}")
async def family(name: str) -> list[str]:
    """Children that are awaited, joined and let go, and effects beside them, one of them within a shield."""
    return await _family(name)


@fire.workflow(key="calm:{name}", outcomes=("resumable", "no_effects", "completed_first", "unknown"))
async def calm(name: str) -> list[str]:
    """The same family, which stands still when it is cancelled."""
    return await _family(name)


# -- shields: two steps that belong together


async def was_done(key: str) -> str:
    """The ledger is the world: what was called there has happened."""
    if not any(line["call"] == key for line in ledger.here().calls()):
        raise NotPerformed
    return "done"


@fire.effect(key="{what}:{name}")
async def debit(name: str, what: str = "debit", hold: bool = False) -> str:
    note(what, name)
    if hold:
        await raised(f"go-{name}")
    return what


@fire.effect(key="{what}:{name}", safety="once", reconcile=was_done)
def credit(name: str, what: str = "credit") -> str:
    """A sync one that is never called twice."""
    note(what, name)
    return what


@fire.workflow(key="transfer:{name}")
async def transfer(name: str, way: str) -> None:
    """Debits and credits within a shield: before a cancellation comes, after it, or in a task of its own."""

    async def both(*, hold: bool) -> None:
        async with shield("5m"):
            await debit(name, hold=hold)
            await credit(name)

    match way:
        case "before":
            await both(hold=True)
        case "in a task":
            await asyncio.gather(both(hold=True))
        case "beside":
            await asyncio.gather(both(hold=True), hook("never"))
        case _:
            try:
                await hook("never")
            finally:
                await both(hold=False)
    await hook("never")


# -- markers


@fire.effect
async def stamp(name: str, marker: str) -> str:
    note(f"stamp {marker}", name)
    await raised(f"go-{marker}")
    return f"{marker} stamped"


MARKERS = ("packed", "shipped", "arrived")


@fire.workflow(key="parcel:{name}", markers=("ordered", *MARKERS))
async def parcel(name: str) -> list[str]:
    stamps: list[str] = []
    for marker in MARKERS:
        await mark(marker)
        stamps.append(await stamp(name, marker))
    return stamps


# -- beginning again


@fire.effect
async def enter(name: str, number: int, payload: str) -> str:
    ledger.here().write(entered=effect_key(), order=name, number=number, payload=payload[:20])
    return payload[:20]


@fire.workflow(key="book:{name}")
async def book(name: str, until: int, page: int, written: tuple[str, ...] = ()) -> tuple[str, ...]:
    """One long run per key: it fills a page, then it turns the leaf."""
    lines = hook("lines")
    for _ in range(page):
        line: str = await lines
        written = (*written, await enter(name, len(written), line))
        if len(written) == until:
            return written
    return continue_as_new(book(name, until, page, written))
