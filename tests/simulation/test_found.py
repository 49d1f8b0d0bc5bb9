"""What the simulation has found, each as a world of its own."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random

import pytest

from holdfast import Holdfast
from holdfast.errors import TimedOut
from holdfast.testing.simulation.network import StoreModel
from holdfast.testing.simulation.world import World
from holdfast.warnings import NoWorker
from tests.simulation.programs import pack, play


@pytest.mark.filterwarnings(f"ignore::{NoWorker.__module__}.{NoWorker.__qualname__}")
def test_a_caller_who_waits_longer_than_a_poll_does_not_ask_without_a_pause() -> None:
    """A wait of less than the clock can tell was begun again at once: where time is virtual, forever."""
    world = World("waiting")
    model = StoreModel(world)
    chance = Random(3)

    async def wait() -> None:
        host = world.executing
        assert host is not None
        await asyncio.sleep(chance.random() * 10)
        async with Holdfast(model.seen_from(host), packs=[pack], worker=False, _machine=host.machine) as hf:
            run, _ = await hf.start(play("[]"))
            with contextlib.suppress(TimedOut):
                await run.result(timeout=20)

    tasks = [world.host(f"caller-{number}").spawn(wait()) for number in range(20)]
    assert world.run(lambda: all(task.done() for task in tasks), seconds=60)
    world.close()
