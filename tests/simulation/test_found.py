"""What the simulation has found, each as a world of its own."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random

import pytest

from holdfast import Holdfast, Pack
from holdfast.engine.duties.leaders import Leaders
from holdfast.errors import TimedOut
from holdfast.events import Elected, Event, LeaseWasLost
from holdfast.kernel.leaders import Holder
from holdfast.kernel.times import Millis
from holdfast.ports.store import Store
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


class Breaking(Reliable):
    """After the effect nothing of its worker arrives for some seconds, and then the reply to a renewal of its lease."""

    def __init__(self) -> None:
        self.has_happened = False
        self.is_mended = False
        self.is_renewed = False

    def fate(self, call: StoreCall) -> Fate:
        if not self.has_happened or self.is_mended or call.host.name != "worker":
            return Fate()
        if call.verb != "renew":
            return Fate(call_lost=True)
        self.is_renewed = True
        return Fate(back=4.6)  # the renewal before was sent six seconds earlier by then, so the lease seems to be lost


@pytest.mark.filterwarnings(f"ignore::{NoWorker.__module__}.{NoWorker.__qualname__}")
def test_what_was_done_before_a_lease_was_in_danger_is_not_forgotten_when_it_is_good_again() -> None:
    """The run was adopted again under the same fence, as if nothing had been done for it, and cancelled."""
    world, breaking = World("in danger"), Breaking()
    model = StoreModel(world, breaking)
    shop, charged, told = Pack("shop"), list[str](), list[Event]()

    @shop.effect
    async def charge(order: str) -> str:
        await asyncio.sleep(2.2)
        charged.append(order)
        breaking.has_happened = True
        return order

    @shop.workflow(key="checkout:{order}")
    async def checkout(order: str) -> str:
        return await charge(order)

    def seen_from(host: Host) -> Store:
        return model.seen_from(host)

    async def work() -> None:
        async with Holdfast(seen_from(worker), packs=[shop], lease=6.0, _platform=worker.platform) as hf:
            hf.listen(told.append)
            await asyncio.Event().wait()

    async def cancel() -> str:
        async with Holdfast(seen_from(caller), packs=[shop], worker=False, _platform=caller.platform) as hf:
            run, _ = await hf.start(checkout("o-1"))
            while not charged:
                await asyncio.sleep(0.1)
            await run.ask_cancel("too late")
            receipt = await run.receipt() if (await run.wait()).is_settled else None
            assert receipt is not None
            return receipt.outcome

    worker, caller = world.host("worker"), world.host("caller")
    worker.spawn(work())
    world.run(lambda: False, seconds=1)
    cancelling = caller.spawn(cancel())
    assert world.run(lambda: breaking.is_renewed, seconds=20)
    world.run(lambda: False, seconds=4.6)
    breaking.is_mended = True
    assert world.run(cancelling.done, seconds=60)
    assert charged == ["o-1"]
    assert not [event for event in told if isinstance(event, LeaseWasLost)]
    assert cancelling.result() == "unknown"
    world.close()
