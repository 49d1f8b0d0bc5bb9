"""What the tests of the bus have in common: its ends, and how to wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from holdfast.adapters.machine import SystemClock, SystemIds
from holdfast.buses.memory import MemoryBus, MemoryExchange
from holdfast.buses.nats import NatsBus
from holdfast.errors import BusUnavailable
from holdfast.ports.bus import TopicMessage

DEADLINE_S = 30.0


class MemoryEnds:
    """Ends of one exchange."""

    def __init__(self) -> None:
        self._exchange = MemoryExchange()
        self._made: list[MemoryBus] = []

    def end(self) -> MemoryBus:
        self._made.append(MemoryBus(self._exchange, clock=SystemClock()))
        return self._made[-1]

    async def close(self) -> None:
        await asyncio.gather(*(end.close() for end in self._made))


class NatsEnds:
    """Ends that share one name, so that tests can share a server."""

    def __init__(self, url: str, name: str) -> None:
        self.url = url
        self.name = name
        self.ack_wait_s = 10.0
        self.patience_s = 5.0
        self._made: list[NatsBus] = []

    def end(self) -> NatsBus:
        bus = NatsBus(
            self.url,
            name=self.name,
            clock=SystemClock(),
            ids=SystemIds(),
            ack_wait_s=self.ack_wait_s,
            patience_s=self.patience_s,
        )
        self._made.append(bus)
        return bus

    async def close(self) -> None:
        await asyncio.gather(*(end.close() for end in self._made))


Ends = MemoryEnds | NatsEnds


async def until(condition: Callable[[], object], what: Callable[[], object] | None = None) -> None:
    """Return as soon as it holds."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"it never became so: {what() if what else condition}") from None


async def opened(*buses: MemoryBus | NatsBus) -> None:
    """Open them, and wait until they are connected: on a busy machine that may take longer than `open` does."""
    for bus in buses:
        await bus.open()
    await until(lambda: all(bus.connected for bus in buses))


class Handled:
    """A handler that keeps what it was given, in order."""

    def __init__(self) -> None:
        self.deliveries: list[TopicMessage] = []

    async def __call__(self, delivery: TopicMessage) -> None:
        self.deliveries.append(delivery)

    @property
    def ids(self) -> list[str]:
        return sorted(delivery.id for delivery in self.deliveries)


async def publish_in_the_end(end: NatsBus, topic: str, id: str) -> None:
    """As a publisher does: again and again under the same id until it is kept."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with suppress(BusUnavailable):
                return await end.publish(topic, b"", id=id)
