"""The bank of `examples.transfers`: no account is overdrawn, however many transfers are started at once."""

from __future__ import annotations

import asyncio

import pytest

from examples import transfers
from examples.transfers import World, bank, send
from holdfast import Holdfast


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(transfers, "world", world)
    return world


async def test_transfers_of_one_account_read_what_the_one_before_has_left(world: World) -> None:
    async with Holdfast("memory://", packs=[bank]) as hf:
        starts = [hf.start(send(f"t-{number}", "ada", 30)) for number in range(6)]
        runs = [started.run for started in await asyncio.gather(*starts)]
        results = [await run.result(30) for run in runs]
    assert sorted(results) == ["paid"] * 3 + ["refused"] * 3
    assert world.cents["ada"] == 10
    assert len(world.booked) == 3


async def test_accounts_do_not_wait_for_each_other(world: World) -> None:
    async with Holdfast("memory://", packs=[bank]) as hf:
        await hf.set_lane("account:ada", paused=True)
        await hf.start(send("t-1", "ada", 30))
        run, _ = await hf.start(send("t-2", "bob", 30))
        assert await run.result(30) == "paid"
    assert world.cents == {"ada": 100, "bob": 0}
