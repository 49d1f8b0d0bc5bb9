"""A bus inside one process, for tests: several ends on one `MemoryExchange`, which stands for the server.

It keeps the promises of the port, and nothing beyond the life of the exchange.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

from holdfast.errors import BusUnavailable
from holdfast.kernel.times import Steady
from holdfast.ports.bus import Handle, TopicMessage
from holdfast.ports.clock import Clock
from holdfast.ports.store import Finding

SAME_ID_WINDOW_MS = 120_000
AGAIN_S = 0.1

Listener = Callable[[bytes], None]


class MemoryExchange:
    """What the ends have in common."""

    def __init__(self) -> None:
        self.ends: list[MemoryBus] = []
        self.turn = 0  # whom to wake next
        self.topics: defaultdict[str, _Topic] = defaultdict(_Topic)


class MemoryBus:
    """A `Bus` and its `Topics`: one process's end of an exchange."""

    def __init__(self, exchange: MemoryExchange, *, clock: Clock) -> None:
        self._exchange = exchange
        self._clock = clock
        self.listeners: defaultdict[str, list[Listener]] = defaultdict(list)
        self.groups: defaultdict[str, list[Listener]] = defaultdict(list)
        self._on_state: list[Callable[[bool], None]] = []
        self._members: list[_Member] = []
        self.dropped = 0

    @property
    def wakes_one(self) -> bool:
        return True

    @property
    def connected(self) -> bool:
        return self in self._exchange.ends

    async def open(self) -> None:
        self._exchange.ends.append(self)
        self._tell(up=True)

    async def close(self) -> None:
        await asyncio.gather(*(member.stop() for member in self._members))
        if self.connected:
            self._exchange.ends.remove(self)
            self._tell(up=False)

    def watch(self, on_state: Callable[[bool], None]) -> None:
        self._on_state.append(on_state)

    def _tell(self, *, up: bool) -> None:
        for on_state in self._on_state:
            on_state(up)

    # ---------------------------------------------------------------------------------------------------- hints

    def broadcast(self, subject: str, body: bytes) -> None:
        self._send([each for end in self._others() for each in end.listeners[subject]], body)

    def wake(self, group: str, body: bytes) -> None:
        members = [each for end in self._others() for each in end.groups[group]]
        self._exchange.turn += 1
        self._send([members[self._exchange.turn % len(members)]] if members else [], body)

    def listen(self, subject: str, on_message: Listener) -> None:
        self.listeners[subject].append(on_message)

    def join(self, group: str, on_wake: Listener) -> None:
        self.groups[group].append(on_wake)

    def _others(self) -> list[MemoryBus]:
        return [end for end in self._exchange.ends if end is not self]

    def _send(self, listeners: list[Listener], body: bytes) -> None:
        if not self.connected:
            self.dropped += 1
            return
        for listener in listeners:
            asyncio.get_running_loop().call_soon(listener, body)

    async def inspect(self) -> tuple[Finding, ...]:
        return (Finding("ok", "bus", "inside this process; nothing outlives it"),)

    # --------------------------------------------------------------------------------------------------- topics

    async def publish(self, topic: str, body: bytes, *, id: str) -> None:
        if not self.connected:
            raise BusUnavailable(f"topic {topic!r} does not take the message: the bus is closed")
        self._exchange.topics[topic].publish(TopicMessage(id, body, 1), self._clock.steady_ms())

    async def consume(self, topic: str, group: str, handle: Handle, *, in_flight: int = 16) -> _Member:
        member = _Member(self._exchange.topics[topic].group(group), handle, in_flight)
        self._members.append(member)
        return member


class _Topic:
    """What was published, what each group has yet to handle, and which ids came lately."""

    def __init__(self) -> None:
        self._kept: list[TopicMessage] = []
        self._groups: dict[str, asyncio.Queue[TopicMessage]] = {}
        self._seen_steady_ms: dict[str, float] = {}

    def publish(self, delivery: TopicMessage, now_steady_ms: Steady) -> None:
        if now_steady_ms - self._seen_steady_ms.get(delivery.id, -SAME_ID_WINDOW_MS) < SAME_ID_WINDOW_MS:
            return
        self._seen_steady_ms[delivery.id] = now_steady_ms
        self._kept.append(delivery)
        for waiting in self._groups.values():
            waiting.put_nowait(delivery)

    def group(self, name: str) -> asyncio.Queue[TopicMessage]:
        if name not in self._groups:
            self._groups[name] = asyncio.Queue()
            for delivery in self._kept:
                self._groups[name].put_nowait(delivery)
        return self._groups[name]


class _Member:
    """A `Consumption`: each lane handles one message after the other."""

    def __init__(self, waiting: asyncio.Queue[TopicMessage], handle: Handle, in_flight: int) -> None:
        assert in_flight > 0, in_flight
        self._waiting = waiting
        self._handle = handle
        self._stopping = False
        self._busy: set[int] = set()
        self._lanes = [asyncio.create_task(self._lane(number)) for number in range(in_flight)]

    async def stop(self, grace_s: float = 5.0) -> None:
        self._stopping = True
        for number, lane in enumerate(self._lanes):
            if number not in self._busy:
                lane.cancel()
        await asyncio.wait(self._lanes, timeout=grace_s)
        for lane in self._lanes:
            lane.cancel()
        await asyncio.wait(self._lanes)

    async def _lane(self, number: int) -> None:
        while not self._stopping:
            delivery = await self._waiting.get()
            again = TopicMessage(delivery.id, delivery.body, delivery.count + 1)
            self._busy.add(number)
            try:
                await self._handle(delivery)
            except asyncio.CancelledError:
                self._waiting.put_nowait(again)
                raise
            # Whatever a handler raises, the message comes again; the handler has reported it.
            except Exception:  # noqa: BLE001
                asyncio.get_running_loop().call_later(AGAIN_S, self._waiting.put_nowait, again)
            finally:
                self._busy.discard(number)
