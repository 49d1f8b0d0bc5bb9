"""Parents that are retried or resumed hear of children that ended meanwhile, however and whenever they ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import Pack, Retry, Run, RunFailed, spawn
from holdfast.ports.store import Store
from tests.integration.conftest import PATIENCE_SECONDS, Home, eventually
from tests.integration.wrappers import StoreWrapper

PAUSES = ("resumable", "no_effects", "completed_first")


class Family:
    """A parent that waits for a child, and a child that waits for its gate."""

    def __init__(self) -> None:
        self.pack = Pack("family")
        self.gate = asyncio.Event()
        self.fails = True
        self.began: list[str] = []

        @self.pack.effect(retry=Retry(attempts=1))
        async def grow(name: str) -> str:
            self.began.append(name)
            await self.gate.wait()
            return f"{name} is grown"

        @self.pack.effect(retry=Retry(attempts=1))
        async def stumble() -> str:
            if self.fails:
                raise OSError("a stone")
            return "walked"

        @self.pack.workflow
        async def child(name: str) -> str:
            return await grow(name)

        @self.pack.workflow
        async def awaiting() -> list[str]:
            return await asyncio.gather(child("a"), stumble())

        @self.pack.workflow
        async def joining() -> list[str]:
            born = await spawn(child("a"))
            return await asyncio.gather(born.result(), stumble())

        @self.pack.workflow(outcomes=PAUSES)
        async def patient() -> str:
            return await child("a")

        @self.pack.workflow
        async def distant() -> str:
            born = await spawn(child("a"), detached=True)
            return await born.result()

        self.child, self.awaiting, self.joining = child, awaiting, joining
        self.patient, self.distant = patient, distant


class MailHeldBack(StoreWrapper):
    """Holds back what has arrived for runs, until the gate is opened: it comes together then."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.gate = asyncio.Event()

    async def called(self, name: str, verb: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Any:
        if name == "messages":
            await self.gate.wait()
        return await verb(*args)


async def finished(run: Run[Any]) -> Any:
    return await run.result(timeout=PATIENCE_SECONDS)


async def until_unread(run: Run[Any], store: Store, count: int) -> None:
    async def has_come() -> bool:
        [row] = await store.runs([run.id])
        return row.unread >= count

    await eventually(has_come)


@pytest.mark.parametrize("kind", ["awaiting", "joining"])
async def test_a_retried_parent_hears_of_a_child_that_ended_while_it_was_failed(home: Home, kind: str) -> None:
    family = Family()
    async with home.holdfast(family.pack) as hf:
        run = (await hf.start(getattr(family, kind)())).run
        await eventually(lambda: family.began)
        with pytest.raises(RunFailed):
            await finished(run)
        family.gate.set()
        children = [each async for each in hf.runs(workflow=family.child)]
        assert await finished(children[0]) == "a is grown"
        family.fails = False
        await run.retry()
        assert await finished(run) == ["a is grown", "walked"]


@pytest.mark.parametrize("kind", ["patient", "distant"])
async def test_a_resumed_parent_hears_of_a_child_that_ended_while_it_was_cancelled(home: Home, kind: str) -> None:
    family = Family()
    async with home.holdfast(family.pack) as hf:
        run = (await hf.start(getattr(family, kind)())).run
        await eventually(lambda: family.began)
        await run.cancel("pause")
        family.gate.set()
        children = [each async for each in hf.runs(workflow=family.child)]
        assert await finished(children[0]) == "a is grown"
        await run.resume()
        assert await finished(run) == "a is grown"


async def test_a_resumed_parent_hears_of_a_child_whose_end_met_the_cancellation(home: Home) -> None:
    family, stores = Family(), list[MailHeldBack]()

    def through(store: Store) -> MailHeldBack:
        stores.append(MailHeldBack(store))
        return stores[0]

    async with home.holdfast(family.pack, through=through) as hf:
        run = (await hf.start(family.distant())).run
        await eventually(lambda: family.began)
        cancelling = asyncio.create_task(run.cancel("at the wrong moment"))
        await until_unread(run, stores[0].inner, 1)
        family.gate.set()
        await until_unread(run, stores[0].inner, 2)
        stores[0].gate.set()
        await cancelling
        await run.resume()
        assert await finished(run) == "a is grown"


async def test_a_retried_parent_hears_of_a_child_whose_end_met_its_failure(home: Home) -> None:
    family, stores = Family(), list[MailHeldBack]()

    def through(store: Store) -> MailHeldBack:
        stores.append(MailHeldBack(store))
        return stores[0]

    held = asyncio.Event()

    @family.pack.workflow
    async def hasty() -> list[str]:
        return await asyncio.gather(family.child("a"), trip())

    @family.pack.effect(retry=Retry(attempts=1))
    async def trip() -> str:
        await held.wait()
        if family.fails:
            raise OSError("a stone")
        return "walked"

    async with home.holdfast(family.pack, through=through) as hf:
        run = (await hf.start(hasty())).run
        await eventually(lambda: family.began)
        family.gate.set()
        await until_unread(run, stores[0].inner, 1)
        held.set()
        with pytest.raises(RunFailed):
            await finished(run)
        family.fails = False
        stores[0].gate.set()
        await run.retry()
        assert await finished(run) == ["a is grown", "walked"]
