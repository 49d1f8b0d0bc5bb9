"""Hints by core NATS: `broadcast` is a plain subject, `wake` a subject whose listeners form a queue group.

Rules
- What is sent goes into a bounded queue, which one task empties into the connection. It is empty while there is none.
- Everything that is listened to is subscribed again on each connection, before it counts as up.
- The server does not send a connection its own messages (`no_echo`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError, MaxPayloadError, SecureConnWantedError, SlowConsumerError

from holdfast.buses.nats import inspections
from holdfast.buses.nats.addresses import parse
from holdfast.buses.nats.link import Arrived, Link, report, subscribe
from holdfast.buses.nats.names import Names
from holdfast.buses.nats.topics import PATIENCE_S, JetStreamTopics
from holdfast.errors import InvalidConfig
from holdfast.ports.bus import Consumption, Handle
from holdfast.ports.clock import Clock
from holdfast.ports.ids import Ids
from holdfast.ports.store import Finding

UNSENT_MAX = 1024 * 1024
# How long `close` waits for hints that were sent just before.
LAST_WORDS_S = 0.5

_HINT = "Correct the bus URL. If a certificate does not verify, let SSL_CERT_FILE name that of its authority."


class _Subscription(Struct, frozen=True):
    subject: str
    queue: str
    arrived: Arrived


class NatsBus:
    """A `Bus` and its `Topics` on NATS. `name` is the store's: two stores may share the servers.

    `ack_wait_s` is how long the messages of a member that has died wait for another one, `patience_s` how long a
    publisher tries.
    """

    def __init__(
        self, url: str, *, name: str, clock: Clock, ids: Ids, ack_wait_s: float = 10.0, patience_s: float = PATIENCE_S
    ) -> None:
        self._address = parse(url)
        self._names = Names(name)
        self._clock = clock
        self._subscriptions: list[_Subscription] = []
        self._subscribed = 0  # how many of them, on the present connection
        self._unsent: deque[tuple[str, bytes]] = deque()
        self._unsent_size = 0
        self._work = asyncio.Event()
        self._sent = asyncio.Event()
        self.dropped = 0
        self._link = Link(
            self._address,
            name=f"holdfast {name}",
            clock=clock,
            ids=ids,
            greet=self._greet,
            serve=self._serve,
            on_error=self._on_error,
        )
        self._topics = JetStreamTopics(
            self._link, self._names, clock=clock, ack_wait_s=ack_wait_s, patience_s=patience_s
        )

    @property
    def wakes_one(self) -> bool:
        return True

    @property
    def connected(self) -> bool:
        return self._link.client is not None

    async def open(self) -> None:
        await self._link.open()
        if not self.connected and (why := _hopeless(self._link.trouble)) is not None:
            await self._link.close()
            raise InvalidConfig(f"NATS at {self._address!r} {why}", hint=_HINT) from self._link.trouble

    async def close(self) -> None:
        await self._topics.close()
        if self.connected:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_sent(), LAST_WORDS_S)
        await self._link.close()

    def watch(self, on_state: Callable[[bool], None]) -> None:
        self._link.watch(on_state)

    def broadcast(self, subject: str, body: bytes) -> None:
        self._send(self._names.for_all(subject), body)

    def wake(self, group: str, body: bytes) -> None:
        self._send(self._names.for_one(group), body)

    def listen(self, subject: str, on_message: Callable[[bytes], None]) -> None:
        self._subscribe(self._names.for_all(subject), "", on_message)

    def join(self, group: str, on_wake: Callable[[bytes], None]) -> None:
        self._subscribe(self._names.for_one(group), "members", on_wake)

    async def publish(self, topic: str, body: bytes, *, id: str) -> None:
        await self._topics.publish(topic, body, id=id)

    async def consume(self, topic: str, group: str, handle: Handle, *, in_flight: int = 16) -> Consumption:
        return self._topics.consume(topic, group, handle, in_flight=in_flight)

    async def inspect(self) -> tuple[Finding, ...]:
        return await inspections.inspect(self._link, self._names, self._address)

    # ------------------------------------------------------------------------------------------------- sending

    def _send(self, subject: str, body: bytes) -> None:
        size = len(subject) + len(body)
        if not self.connected or self._unsent_size + size > UNSENT_MAX:
            self.dropped += 1
            return
        self._unsent.append((subject, body))
        self._unsent_size += size
        self._work.set()

    async def _all_sent(self) -> None:
        while self._unsent:
            self._sent.clear()
            await self._sent.wait()

    def _subscribe(self, subject: str, queue: str, on_message: Callable[[bytes], None]) -> None:
        async def arrived(message: Msg) -> None:
            on_message(message.data)

        self._subscriptions.append(_Subscription(subject, queue, arrived))
        self._work.set()

    # ---------------------------------------------------------------------------------------- one connection's

    async def _greet(self, client: Client) -> None:
        self.dropped += len(self._unsent)
        self._unsent.clear()
        self._unsent_size = 0
        self._subscribed = 0
        await self._catch_up(client)
        # Twice, for the library sends the ping of a flush past what waits to be sent: the answer to the first does not
        # say that the server has seen the subscriptions, that to the second does.
        await client.flush()
        await client.flush()

    async def _catch_up(self, client: Client) -> None:
        while self._subscribed < len(self._subscriptions):
            each = self._subscriptions[self._subscribed]
            self._subscribed += 1
            await subscribe(client, each.subject, each.arrived, queue=each.queue)

    async def _serve(self, client: Client) -> None:
        while True:
            self._work.clear()
            await self._catch_up(client)
            while self._unsent:
                subject, body = self._unsent.popleft()
                self._unsent_size -= len(subject) + len(body)
                try:
                    await client.publish(subject, body)
                except MaxPayloadError:
                    self.dropped += 1
            self._sent.set()
            await self._work.wait()

    def _on_error(self, error: Exception) -> None:
        if isinstance(error, SlowConsumerError):
            self.dropped += 1
        elif not isinstance(error, (NatsError, OSError, TimeoutError)):
            report("a listener of the bus has raised", error)


def _hopeless(trouble: Exception | None) -> str | None:
    """Why this will never work, however long one tries; None if it might."""
    match trouble:
        case ssl.SSLCertVerificationError():
            return f"shows a certificate that does not verify: {trouble.verify_message}"
        case SecureConnWantedError():
            return "does not speak TLS"
        case NatsError() if "authorization violation" in str(trouble).lower():
            return "refuses the user name and password"
        case _:
            return None
