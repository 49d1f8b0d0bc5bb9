"""What the simulation has found, each as a world of its own."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random

import pytest

from holdfast import Holdfast
from holdfast.engine.duties.leaders import Leaders
from holdfast.errors import TimedOut
from holdfast.events import Elected, Event
from holdfast.kernel.leaders import Holder
from holdfast.kernel.times import Millis
from holdfast.testing.simulation.hosts import Host
from holdfast.testing.simulation.network import Fate, Reliable, StoreCall, StoreModel
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
        async with Holdfast(model.seen_from(host), packs=[pack], worker=False, _platform=host.platform) as hf:
            run, _ = await hf.start(play("[]"))
            with contextlib.suppress(TimedOut):
                await run.result(timeout=20)

    tasks = [world.host(f"caller-{number}").spawn(wait()) for number in range(20)]
    assert world.run(lambda: all(task.done() for task in tasks), seconds=60)
    world.close()


class Slow(Reliable):
    """Every reply takes a moment."""

    def fate(self, call: StoreCall) -> Fate:
        return Fate(0.01, 0.1)


def test_a_process_that_was_paused_while_it_bid_is_not_told_to_lead() -> None:
    """The reply to its bid came when its term was long over, and another process led."""
    world = World("leading")
    model = StoreModel(world, Slow())
    elected: list[str] = []

    def bid(host: Host) -> Leaders:
        def hear(event: Event) -> None:
            if isinstance(event, Elected):
                elected.append(host.name)

        holder = Holder(instance=host.name, nonce=host.platform.ids.nonce())
        leaders = Leaders(
            model.seen_from(host), ["relay"], holder=holder, clock=host.clock, ttl_ms=Millis(3000), emit=hear
        )
        host.spawn(leaders.keep())
        return leaders

    paused, other = world.host("paused"), world.host("other")
    leads = bid(paused)
    world.after(0.2, paused.stop)  # it has sent its bid, and the reply is on its way
    world.after(1.0, lambda: bid(other))
    world.after(10.0, paused.go_on)
    world.run(lambda: False, seconds=20)
    assert elected == ["other"]
    assert not leads.leads("relay")
    world.close()
