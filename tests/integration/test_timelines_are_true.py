"""What is recorded of an effect says how long it took, however long the run had to wait before it began."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from holdfast import Holdfast, Pack, Retry, Run
from holdfast.dashboard.timeline import timeline
from holdfast.kernel.journal import AttemptEntry, GaveUp, Performed
from holdfast.kernel.steps import AT_ONCE_MS
from tests.builders import FakeClock
from tests.integration.conftest import Home

PAUSE_MS = 30_000
shop = Pack("shop")


@shop.effect
async def charge() -> str:
    return "charged"


@shop.effect
def ship() -> str:
    return "shipped"


@shop.workflow(key="checkout")
async def checkout() -> str:
    return await charge() + await ship()


async def attempts(run: Run[Any]) -> list[AttemptEntry]:
    return [entry for entry in await run.journal() if isinstance(entry, AttemptEntry)]


async def test_an_effect_for_which_no_worker_was_there_is_not_drawn_as_long_as_that(home: Home) -> None:
    """It is by the store's clock that the run waits for half a minute; its effect takes what it takes."""
    clock = home.clock = FakeClock()
    async with home.holdfast(shop, worker=False) as client:
        run = (await client.start(checkout())).run
        clock.advance(PAUSE_MS)
        async with home.holdfast(shop):
            assert await run.result() == "chargedshipped"
        first, second = await attempts(run)
        assert isinstance(first, Performed)
        assert first.began_at is not None
        assert first.began_at - run.created_at >= timedelta(milliseconds=PAUSE_MS - first.took_ms)
        assert f"which began at {first.began_at.isoformat(timespec='milliseconds')}" in str(await run.explain())
        ended = await run.refresh()
        assert ended.finished_at is not None
        rows = timeline(await run.journal(), (), until_ms=second.at_ms).rows
        assert [bar.state for bar in rows[0].bars] == ["pause", "done"]


async def test_an_effect_that_begins_when_it_is_asked_for_records_nothing_more(home: Home) -> None:
    """The clock of the store stands still: nothing has waited, so far as it can tell."""
    home.clock = FakeClock()
    async with home.holdfast(shop) as hf:
        run = (await hf.start(checkout())).run
        await run.result()
        assert [entry.took_ms for entry in await attempts(run)] == [0, 0]


async def test_an_effect_that_waited_for_room_began_when_it_had_it() -> None:
    pack, entered, gate = Pack("p"), asyncio.Event(), asyncio.Event()

    @pack.effect
    async def hold() -> None:
        entered.set()
        await gate.wait()

    @pack.effect(retry=Retry(attempts=1))
    async def refuse() -> None:
        raise ValueError("no")

    @pack.workflow
    async def both() -> None:
        await asyncio.gather(hold(), refuse(), return_exceptions=True)

    async with Holdfast("memory://", packs=[pack], concurrency=1) as hf:
        run = (await hf.start(both())).run
        await entered.wait()
        asked = hf.runtime.store.now_ms()
        while hf.runtime.store.now_ms() - asked <= 2 * AT_ONCE_MS:
            await asyncio.sleep(0.005)
        gate.set()
        await run.result()
        [held, refused] = sorted(await attempts(run), key=lambda entry: entry.intent.name)
        assert isinstance(refused, GaveUp)
        assert refused.took_ms > 0
        assert refused.began_at_ms is not None
        assert refused.began_at_ms > asked
        assert isinstance(held, Performed)
        assert held.took_ms == 0 or (held.began_at_ms or 0) <= asked  # on a busy machine it may have begun late as well
