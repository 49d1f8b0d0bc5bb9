"""The base of every simulation: order as in asyncio, deaths without a last word, calls that outlive their sender."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from msgspec import Struct

from holdfast.errors import StoreUnavailable
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.times import Millis
from holdfast.ports.notices import Notice
from holdfast.testing.simulation.hosts import Host
from holdfast.testing.simulation.network import Fate, Reliable, StoreCall, StoreModel
from holdfast.testing.simulation.world import NothingHappens, TimeStandsStill, World


async def _in_some_order(told: list[str]) -> None:
    loop = asyncio.get_running_loop()
    loop.call_later(0.02, told.append, "later")
    loop.call_later(0.01, told.append, "sooner")
    loop.call_soon(told.append, "soon")
    loop.call_later(0, told.append, "at once")

    async def part(name: str) -> None:
        for number in range(3):
            told.append(f"{name}{number}")
            await asyncio.sleep(0)

    await asyncio.gather(part("a"), part("b"))
    event = asyncio.Event()
    loop.call_later(0.03, event.set)
    try:
        async with asyncio.timeout(0.025):
            await event.wait()
    except TimeoutError:
        told.append("timed out")
    await event.wait()


def test_callbacks_are_executed_in_the_order_of_asyncio() -> None:
    real: list[str] = []
    asyncio.run(_in_some_order(real))
    virtual: list[str] = []
    world = World()
    world.run(world.host("a").spawn(_in_some_order(virtual)).done)
    world.close()
    assert virtual == real


def test_a_host_that_is_killed_executes_no_finally() -> None:
    told: list[str] = []

    async def work() -> None:
        try:
            told.append("began")
            await asyncio.sleep(10)
        finally:
            told.append("finally")

    world = World()
    host = world.host("a")
    host.spawn(work())
    world.after(1, host.kill)
    world.run(lambda: False, seconds=20)
    assert told == ["began"]
    world.close()


class _Unseen(Struct, gc=False):
    """As an attempt of an effect: the collector does not look into it."""

    loop: asyncio.AbstractEventLoop


def test_a_world_that_is_over_is_kept_by_nothing_that_it_was_waiting_for() -> None:
    """Every tenth world was kept forever, and a campaign became slower with each of them."""
    world = World()
    loop = world.host("a").loop
    loop.call_later(60, print, _Unseen(loop))
    loop.call_soon(print, _Unseen(loop))
    gone = weakref.ref(loop)
    world.close()
    del world, loop
    gc.collect()
    assert gone() is None


def test_a_host_that_is_stopped_stands_still_until_it_goes_on() -> None:
    told: list[float] = []
    world = World()

    async def work() -> None:
        while True:
            await asyncio.sleep(1)
            told.append(world.now())

    host = world.host("a")
    host.spawn(work())
    world.after(2.5, host.stop)
    world.after(7.5, host.go_on)
    world.run(lambda: False, seconds=9)
    world.close()
    assert told == [1, 2, 7.5, 8.5]


def test_equal_seeds_make_equal_worlds_and_others_do_not() -> None:
    def order(seed: int) -> list[str]:
        told: list[str] = []

        async def work(name: str) -> None:
            for _ in range(5):
                told.append(name)
                await asyncio.sleep(1)

        world = World(seed)
        tasks = [world.host(name).spawn(work(name)) for name in "abc"]
        world.run(lambda: all(task.done() for task in tasks))
        world.close()
        return told

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(5)}) > 1


def test_a_world_in_which_nothing_will_happen_says_so() -> None:
    world = World()
    with pytest.raises(NothingHappens):
        world.run(lambda: False)
    assert not world.run(lambda: False, seconds=5)
    assert world.now() == 5


def test_code_that_never_waits_is_noticed() -> None:
    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    world = World()
    world.host("a").spawn(spin())
    with pytest.raises(TimeStandsStill):
        world.run(lambda: False, seconds=1)
    world.close()


class Struck(Reliable):
    """Every call has this fate."""

    def __init__(self, fate: Fate) -> None:
        self._fate = fate

    def fate(self, call: StoreCall) -> Fate:
        return self._fate


def _document(version: int) -> Document:
    return Document(namespace="n", kind="k", id="a", version=version, body=b"{}")


@pytest.mark.parametrize(
    ("fate", "is_applied", "is_told"),
    [
        (Fate(0.1, 0.1), True, True),
        (Fate(call_lost=True), False, False),
        (Fate(0.1, reply_lost=True), True, False),
        (Fate(30.0), True, False),
    ],
)
def test_what_becomes_of_a_call(fate: Fate, is_applied: bool, is_told: bool) -> None:
    world = World()
    model = StoreModel(world, Struck(fate))
    host = world.host("a")
    task = host.spawn(model.seen_from(host).write([Writing(_document(1), None)]))
    world.run(lambda: False, seconds=10)
    assert task.done()
    assert (task.exception() is None) is is_told
    if not is_told:
        assert isinstance(task.exception(), StoreUnavailable)
    host.kill()  # what was sent arrives all the same
    world.run(lambda: False, seconds=30)
    assert bool(model.inner._tables.documents) is is_applied
    world.close()


def test_others_are_told_what_has_changed_and_the_sender_is_not() -> None:
    world = World()
    model = StoreModel(world)
    heard: list[tuple[str, Notice]] = []

    def listen(host: Host) -> None:
        def on_notice(notice: Notice) -> bool:
            heard.append((host.name, notice))
            return True

        model.watch(host, on_notice)

    sender, other = world.host("sender"), world.host("other")
    listen(sender)
    listen(other)
    sender.spawn(model.seen_from(sender).write([Writing(_document(1), None)]))
    world.run(lambda: heard, seconds=1)
    world.close()
    assert heard == [("other", Notice(documents=(("n", "k"),)))]


def test_a_notice_that_is_not_understood_is_told_to_the_loop_of_its_host() -> None:
    world = World()
    model = StoreModel(world)
    told: list[str] = []
    host, still, sender = world.host("a"), world.host("still"), world.host("b")
    host.loop.set_exception_handler(lambda _, context: told.append(str(context["exception"])))

    def refuse(notice: Notice) -> bool:
        raise ValueError(f"{len(notice.documents)} documents")

    model.watch(host, refuse)
    model.watch(still, lambda _: not told.append("still"))
    still.stop()
    store = model.seen_from(sender)
    world.run(sender.spawn(store.write([Writing(_document(1), None)])).done)
    assert told == ["1 documents"]
    still.go_on()
    assert world.run(lambda: told == ["1 documents", "still"], seconds=1)
    world.close()


def test_the_wall_clock_of_a_host_can_be_set_and_its_steady_clock_cannot() -> None:
    world = World()
    host, other = world.host("a"), world.host("b")
    host.clock.set_forward_ms = Millis(5000)
    assert host.clock.wall_ms() - other.clock.wall_ms() == 5000
    assert host.clock.steady_ms() == other.clock.steady_ms()
    world.close()
