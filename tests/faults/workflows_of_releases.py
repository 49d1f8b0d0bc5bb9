"""One workflow in three releases of an application, as a repository has had it over time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from holdfast import Pack, current, hook, patched, sleep
from tests.faults.workflows_checkout import note
from tests.faults.workflows_held_by_flags import raised

PAUSE = "1200ms"  # longer than a run that waits is kept in memory: any worker may take it up then
Act = Callable[[str, str], Awaitable[str]]


def _release(body: Callable[[Act, str], Awaitable[str]], **options: Any) -> Pack:
    pack = Pack("shop")

    @pack.effect(key="{step}:{order}")
    async def act(step: str, order: str) -> str:
        note(step, order)
        return step

    @pack.workflow(key="order:{name}", **options)
    async def order(name: str) -> str:
        return await body(act, name)

    @pack.workflow(key="parcel:{name}", **options)
    async def parcel(name: str) -> str:
        if body is not _first:
            await act("measure", name)
        await act("wrap", name)
        await hook("word")
        return await act("post", name)

    @pack.effect
    async def hold(name: str) -> str:
        note("hold", name)
        await raised("go")
        return name

    @pack.workflow(key="busy:{name}", **options)
    async def busy(name: str) -> str:
        return await hold(name)

    return pack


async def _first(act: Act, name: str) -> str:
    await act("reserve", name)
    await sleep(PAUSE)
    await act("charge", name)
    await sleep(PAUSE)
    return await act("ship", name)


async def _second(act: Act, name: str) -> str:
    """A step is put before what runs have done already, another one where they wait, and a third one at the end."""
    if patched("check the address"):
        await act("check", name)
    await act("reserve", name)
    if patched("weigh"):
        await act("weigh", name)
    await sleep(PAUSE)
    await act("charge", name)
    await sleep(PAUSE)
    if patched("notify"):
        await act("notify", name)
    return await act("ship", name)


async def _third(act: Act, name: str) -> str:
    """Another order of things altogether, for runs that are admitted by this code."""
    if current().version != "3":
        return await _second(act, name)
    await act("charge", name)
    await sleep(PAUSE)
    await act("pack", name)
    await sleep(PAUSE)
    return await act("ship", name)


first, second, third = _release(_first), _release(_second), _release(_third, version="3")
FIRST, SECOND, THIRD = (f"tests.faults.workflows_of_releases:{name}" for name in ("first", "second", "third"))
