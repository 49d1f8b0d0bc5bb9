"""Leadership, by a clock that the test moves: who leads when, what it costs, and what a late process may do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from holdfast.engine.duties.leaders import DUTIES, Leaders, leaders_of
from holdfast.engine.duties.periodic import Periodic
from holdfast.engine.duties.relay import Relay
from holdfast.engine.pace import Pace
from holdfast.errors import StoreUnavailable
from holdfast.events import Deposed, Elected, Event, MessagesRelayed, StoreTroubled
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.leaders import Holder
from holdfast.stores.memory import MemoryStore
from tests.builders import FakeClock

TTL_MS = 15_000


class Store(MemoryStore):
    """Counts, and loses requests or replies if it is told to."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.reads = self.writes = 0
        self.loses_request = self.loses_reply = False

    async def named(self, places: Sequence[tuple[str, str, str]]) -> list[Document]:
        self.reads += 1
        return await super().named(places)

    async def write(self, writings: Sequence[Writing]) -> list[bool]:
        if self.loses_request:
            raise StoreUnavailable("the request was lost")
        self.writes += 1
        answers = await super().write(writings)
        if self.loses_reply:
            raise StoreUnavailable("the reply was lost")
        return answers


class Process:
    """One candidate, on a machine clock that may stand still for it alone."""

    def __init__(self, store: Store, clock: FakeClock, name: str) -> None:
        self.heard: list[Event] = []
        self.leaders = Leaders(
            store, DUTIES, holder=Holder(name, f"nonce-{name}"), clock=clock, ttl_ms=TTL_MS, emit=self.heard.append
        )

    @property
    def leads(self) -> bool:
        return all(self.leaders.led.values())

    def told(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.heard if type(event) is kind]

    @asynccontextmanager
    async def alive(self) -> Any:
        task = asyncio.create_task(self.leaders.keep())
        await _settle()
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(clock: FakeClock) -> Store:
    store = Store(clock)
    await store.open()
    return store


@pytest.fixture
def process(store: Store, clock: FakeClock) -> Callable[..., Process]:
    return lambda name, on=clock: Process(store, on, name)


async def _pass(clock: FakeClock, ms: float, step_ms: float = 250) -> None:
    """Let time pass in small steps, so that everybody does what is due on time."""
    while ms > 0:
        clock.advance(min(ms, step_ms))
        ms -= step_ms
        await _settle()


async def test_the_first_leads_everything_for_as_long_as_it_lives(store, clock, process):
    first, second = process("a"), process("b")
    async with first.alive(), second.alive():
        for _ in range(10):
            assert (first.leads, any(second.leaders.led.values())) == (True, False)
            await _pass(clock, TTL_MS / 3)
        assert await leaders_of(store, DUTIES) == dict.fromkeys(DUTIES, "a")
    assert [event.duty for event in first.told(Elected)] == list(DUTIES)
    assert first.told(Deposed) == second.told(Elected) == []


async def test_all_leases_are_renewed_in_one_write_at_a_third_and_nothing_is_read_for_it(store, clock, process):
    async with process("a").alive():
        store.reads = store.writes = 0
        await _pass(clock, 3 * TTL_MS)
        assert (store.reads, 8 <= store.writes <= 9) == (0, True)


async def test_a_candidate_costs_one_read_at_a_leaders_pace_and_no_write(store, clock, process):
    async with process("a").alive():
        await _pass(clock, TTL_MS)
        store.reads = store.writes = 0
        async with process("b").alive():
            await _pass(clock, 3 * TTL_MS)
        assert store.reads <= 10
        assert store.writes <= 9  # the leader's


async def test_a_killed_leader_is_replaced_within_one_ttl_by_whoever_lives(store, clock, process):
    second = process("b")
    async with AsyncExitStack() as stack:
        async with process("a").alive():
            await stack.enter_async_context(second.alive())
            await _pass(clock, 1.4 * TTL_MS)
            assert not any(second.leaders.led.values())
        await _pass(clock, TTL_MS)  # it was killed at the worst of times: just after a renewal, or later
        assert second.leads
        assert [event.duty for event in second.told(Elected)] == list(DUTIES)


async def test_a_leader_that_is_paused_past_its_lease_does_nothing_when_it_wakes(store, clock, process):
    """Nobody has told it that it was replaced. Its own clock has."""
    its_clock, ticks = FakeClock(), list[str]()
    first, second = process("a", its_clock), process("b")

    class Rescuer:
        async def tick(self) -> float:
            ticks.append("tick")
            return 0.0

    duty = Periodic(
        Rescuer(), emit=first.heard.append, pace=Pace(), allowed=lambda: first.leaders.until_leads("rescuer")
    )
    async with first.alive(), second.alive():
        await _pass(clock, TTL_MS + 250)  # `a` is paused: its clock will have moved when it looks
        assert second.leads
        its_clock.steady += TTL_MS + 250
        assert not first.leads
        attending = asyncio.create_task(duty.attend())
        await _settle()
        assert ticks == []
        its_clock.advance(0)  # its renewal was due long ago
        await _settle()
        assert [event.duty for event in first.told(Deposed)] == list(DUTIES)
        await _pass(clock, TTL_MS)
        its_clock.advance(TTL_MS)
        await _settle()
        assert (ticks, second.leads) == ([], True)
        attending.cancel()
        await asyncio.gather(attending, return_exceptions=True)


async def test_a_leader_that_cannot_renew_stops_before_its_lease_expires(store, clock, process):
    first = process("a")
    async with first.alive():
        store.loses_request = True
        await _pass(clock, TTL_MS * 0.65)
        assert first.leads
        await _pass(clock, TTL_MS * 0.02)
        assert not any(first.leaders.led.values())
        assert await leaders_of(store, DUTIES) == dict.fromkeys(DUTIES, "a")  # it has not expired yet
        assert first.told(StoreTroubled)
        store.loses_request = False
        await _pass(clock, TTL_MS / 15)
        assert first.leads
        assert first.told(Deposed) == []
        store.loses_request = True
        await _pass(clock, TTL_MS)
        assert [event.duty for event in first.told(Deposed)] == list(DUTIES)  # though nobody could tell it


@pytest.mark.parametrize("lost", ["the first", "a renewal"])
async def test_a_lost_reply_costs_a_look_and_no_term(store, clock, process, lost):
    """The lease was written, and whoever wrote it does not know: the next look finds its own name there."""
    first = process("a")
    store.loses_reply = lost == "the first"
    async with first.alive():
        await _pass(clock, TTL_MS / 3 - 10, 100)
        assert first.leads is (lost != "the first")
        store.loses_reply = True
        await _pass(clock, TTL_MS / 15)
        store.loses_reply = False
        await _pass(clock, TTL_MS / 3)
        assert first.leads
        assert first.told(Deposed) == []
        store.loses_reply = True
        await _pass(clock, TTL_MS / 3)
        store.loses_reply = False
    await first.leaders.release()  # the version that it knows is not the stored one
    assert await leaders_of(store, DUTIES) == dict.fromkeys(DUTIES)


async def test_a_process_that_is_stopped_over_its_first_bid_leaves_no_lease_behind(store, process):
    """Whether it was written is not known when it stops."""
    first = process("a")
    store.loses_reply = True
    async with first.alive():
        assert not first.leads
    store.loses_reply = False
    await first.leaders.release()
    assert await leaders_of(store, DUTIES) == dict.fromkeys(DUTIES)


async def test_of_many_candidates_one_leads_each_duty(store, clock, process):
    many = [process(f"p{n}") for n in range(6)]
    async with AsyncExitStack() as stack:
        for each in many:
            await stack.enter_async_context(each.alive())
        for _ in range(6):
            await _pass(clock, TTL_MS / 3)
            for duty in DUTIES:
                assert sum(each.leaders.leads(duty) for each in many) == 1


async def test_a_released_lease_is_free_at_once_and_a_late_release_leaves_the_successor_alone(store, clock, process):
    first, second = process("a"), process("b")
    async with first.alive():
        pass
    late = dict(first.leaders._terms)
    await first.leaders.release()
    clock.advance(2)
    async with second.alive():
        assert second.leads
        first.leaders._terms.update(late)
        await first.leaders.release()
        await _pass(clock, TTL_MS / 3)
        assert second.leads
        assert second.told(Deposed) == []
        assert await leaders_of(store, DUTIES) == dict.fromkeys(DUTIES, "b")


async def test_a_duty_ticks_at_its_own_pace_whatever_its_lease_does(store, clock, process):
    """Ticked when it is elected, then as it says: an election does not come with each renewal."""
    ticks: list[float] = []
    first = process("a")

    class Rescuer:
        async def tick(self) -> float:
            ticks.append(clock.steady)
            return 3_600.0

    duty = Periodic(
        Rescuer(), emit=first.heard.append, pace=Pace(), allowed=lambda: first.leaders.until_leads("rescuer")
    )
    attending = asyncio.create_task(duty.attend())
    await _settle()
    assert ticks == []
    async with first.alive():
        await _pass(clock, 3 * TTL_MS)
        assert len(ticks) == 1
        duty.nudge()
        await _settle()
        assert len(ticks) == 2
    attending.cancel()
    await asyncio.gather(attending, return_exceptions=True)


# -- the relay


class Outbox(MemoryStore):
    """Messages that were left behind."""

    left = 0

    async def relay(self, limit: int) -> int:
        taken = min(limit, self.left)
        self.left -= taken
        return taken


async def test_the_relay_works_in_bites_and_looks_less_often_while_there_is_nothing(clock):
    store, heard = Outbox(clock=clock), list[Event]()
    relay = Relay(store, ttl_ms=30_000, emit=heard.append, pace=Pace(), ring=lambda: None)
    assert [await relay.tick() for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    store.left = Pace().relay_max + 1
    assert [await relay.tick() for _ in range(2)] == [Pace().bite_pause_seconds, Pace().relay_seconds]
    assert [event.count for event in heard if isinstance(event, MessagesRelayed)] == [Pace().relay_max, 1]
    assert await relay.tick() == Pace().relay_seconds
