"""Hints between processes by Redis' own Pub/Sub: the bus of those who have no other.

It is only the fallback. All members of a group hear each wake-up, and all but one come for nothing; there are no
topics, since Redis forgets a message that is not heard at once. NATS does both properly.

Two connections to one server: one that hears, one that speaks. Which server does not matter, a cluster passes messages
on to all of its nodes. When either connection is lost, both are made again, forever, and ever more slowly until one
conversation has lasted.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

from holdfast.errors import HoldfastError, InvalidConfig, StoreUnavailable
from holdfast.ports.clock import Clock
from holdfast.ports.ids import Ids
from holdfast.ports.store import Finding
from holdfast.stores.redis.net import topologies
from holdfast.stores.redis.net.connections import Answer, Backoff, RedisConnection, connect, credentials, packed
from holdfast.stores.redis.net.errors import LostConnection, NotSent, ServerError, Unwelcome
from holdfast.stores.redis.net.urls import RedisUrl, ServerAddress

PING_SECONDS = 5.0
LAST_WORDS_SECONDS = 1.0
UNANSWERED_MAX = 10_000
_PING = packed(b"PING")

Listener = Callable[[bytes], None]


class PubSub:
    """A `Bus`."""

    def __init__(self, url: RedisUrl, *, clock: Clock, ids: Ids) -> None:
        self.dropped = 0
        self._url = url
        self._clock = clock
        self._me = ids.nonce().encode()  # in front of each message: no process wants to hear itself
        self._listeners: defaultdict[bytes, list[Listener]] = defaultdict(list)
        self._on_state: list[Callable[[bool], None]] = []
        self._hearing: RedisConnection | None = None
        self._speaking: RedisConnection | None = None
        self._unconfirmed: set[bytes] = set()  # channels that we have asked for
        self._connected = False
        self._refusal: ServerError | None = None  # the reply to a SUBSCRIBE of this conversation
        self._trouble: HoldfastError = StoreUnavailable("no server has replied yet")  # why we are not connected
        self._backoff = Backoff(clock)
        self._heard = False
        self._turn = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def wakes_one(self) -> bool:
        return False

    @property
    def connected(self) -> bool:
        return self._connected

    async def open(self) -> None:
        self._task = asyncio.create_task(self._keep_connected())

    async def close(self) -> None:
        """What was said last is heard by the server first, if it listens."""
        if self._task is not None:
            if self._speaking is not None and self._speaking.up:
                await self._speaking.request(_PING, 1, LAST_WORDS_SECONDS)
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def watch(self, on_state: Callable[[bool], None]) -> None:
        self._on_state.append(on_state)

    def broadcast(self, subject: str, body: bytes) -> None:
        self._send(self._channel("all", subject), body)

    def wake(self, group: str, body: bytes) -> None:
        self._send(self._channel("group", group), body)

    def listen(self, subject: str, on_message: Listener) -> None:
        self._hear(self._channel("all", subject), on_message)

    def join(self, group: str, on_wake: Listener) -> None:
        self._hear(self._channel("group", group), on_wake)

    async def inspect(self) -> tuple[Finding, ...]:
        if not self._connected:
            detail = (
                f"no hints by Redis Pub/Sub: {self._trouble.message}; others are heard late, by looking now and then"
            )
            hint = self._trouble.hint or "Look at the findings about the store."
            return (Finding("warning", "bus", detail, hint),)
        return (Finding("ok", "bus", "Redis Pub/Sub: each hint wakes all workers; with NATS it would wake one"),)

    def _channel(self, kind: str, name: str) -> bytes:
        # Pub/Sub knows no databases, so their number is part of the name.
        return f"hf:{self._url.name}:{self._url.db}:{kind}:{name}".encode(errors="surrogatepass")

    def _send(self, channel: bytes, body: bytes) -> None:
        speaking = self._speaking
        if speaking is None or not speaking.up or speaking.unanswered >= UNANSWERED_MAX:
            self.dropped += 1
            return
        # No caller waits for the reply; that it comes in time shows that the connection stands.
        speaking.request(packed(b"PUBLISH", channel, self._me + body), 1, PING_SECONDS)

    def _hear(self, channel: bytes, listener: Listener) -> None:
        self._listeners[channel].append(listener)
        if self._hearing is not None and len(self._listeners[channel]) == 1:
            self._subscribe(self._hearing, [channel])

    def _subscribe(self, hearing: RedisConnection, channels: list[bytes]) -> None:
        if channels:
            self._unconfirmed.update(channels)
            hearing.tell(packed(b"SUBSCRIBE", *channels))

    def _on_push(self, reply: Answer) -> None:
        self._heard = True
        match reply:
            case [b"message", bytes(channel), bytes(message)] if not message.startswith(self._me):
                for listener in self._listeners[channel]:
                    # Not called from here: what a listener raises must not end the connection.
                    asyncio.get_running_loop().call_soon(listener, message[len(self._me) :])
            case [b"subscribe", bytes(channel), _]:
                self._unconfirmed.discard(channel)
                self._tell_state()
            case ServerError() if self._hearing is not None:
                self._refusal = reply
                self._hearing.end(f"it refuses: {reply.text}")
            case _:
                pass

    def _tell_state(self) -> None:
        # A channel that comes later does not make a connection a worse one: it stays connected meanwhile.
        up = self._hearing is not None and (self._connected or not self._unconfirmed)
        if up != self._connected:
            self._connected = up
            for on_state in self._on_state:
                on_state(up)

    async def _keep_connected(self) -> None:
        while True:
            try:
                await self._converse(await self._server())
            except NotSent as error:
                self._trouble = StoreUnavailable(str(error))
            except Unwelcome as error:
                self._trouble = error.later()
            except InvalidConfig as error:
                self._trouble = error
            await self._clock.pause(self._backoff.next())

    async def _server(self) -> ServerAddress:
        """A primary; another one each time, for one of them may be down."""
        topology = await topologies.find(self._url, self._clock)
        try:
            primaries = topology.primaries()
            self._turn += 1
            return primaries[self._turn % len(primaries)].address
        finally:
            await topology.close()

    async def _converse(self, address: ServerAddress) -> None:
        """Hear and speak until a connection is lost. Raises why: `NotSent` or `Unwelcome`."""
        greeting = [*credentials(self._url), packed(b"CLIENT", b"SETNAME", b"holdfast-hints")]
        made: list[RedisConnection] = []
        try:
            for on_push in (self._on_push, None):
                connection, replies = await connect(address, self._url, greeting=greeting, on_push=on_push)
                made.append(connection)
                if refusal := next((reply for reply in replies if isinstance(reply, ServerError)), None):
                    raise Unwelcome(address, refusal)
            self._hearing, self._speaking = made
            self._unconfirmed.clear()
            self._refusal = None
            self._subscribe(self._hearing, list(self._listeners))
            self._tell_state()
            lost = await self._until_lost(*made)
            raise NotSent(f"{address}: {lost.why}") if self._refusal is None else Unwelcome(address, self._refusal)
        finally:
            self._hearing = self._speaking = None
            for connection in made:
                connection.end("the bus was closed")
            self._tell_state()

    async def _until_lost(self, hearing: RedisConnection, speaking: RedisConnection) -> LostConnection:
        """A connection on which nothing comes may have been dead for long: so ask."""
        while hearing.up and speaking.up:
            self._heard = False
            hearing.tell(_PING)
            speaking.request(_PING, 1, PING_SECONDS)
            await asyncio.wait([hearing.lost, speaking.lost], timeout=PING_SECONDS, return_when="FIRST_COMPLETED")
            if not self._heard:
                hearing.end("nothing was heard")
            elif self._connected and hearing.up and speaking.up:
                # Not at its beginning: one that is ended at once, forever, would be begun again without a pause.
                self._backoff = Backoff(self._clock)
        return (speaking if hearing.up else hearing).lost.result()
