"""Topics by JetStream: a topic is a stream, a group is a durable pull consumer of it.

Rules
- Publishing waits for the server's acknowledgement, and tries again under the same id while that may still help.
- Who comes first makes the stream, publisher or member.
"""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from nats.aio.client import Client
from nats.errors import Error as NatsError, NoRespondersError

from holdfast.buses.nats import jetstream
from holdfast.buses.nats.jetstream import JetStreamRefused
from holdfast.buses.nats.link import Link
from holdfast.buses.nats.members import ID, GroupMember
from holdfast.buses.nats.names import Names
from holdfast.errors import BusUnavailable, PayloadTooLarge
from holdfast.ports.bus import Handle
from holdfast.ports.clock import Clock

PATIENCE_S = 5.0  # how long a publisher tries
TRY_S = 1.5
PAUSE_S = 0.1
# What the headers of a message take beside its id; they count against the server's limit.
_HEADERS_SIZE = 64


class JetStreamTopics:
    """`Topics` over the link."""

    def __init__(self, link: Link, names: Names, *, clock: Clock, ack_wait_s: float, patience_s: float) -> None:
        self._link = link
        self._names = names
        self._clock = clock
        self._ack_wait_s = ack_wait_s
        self._patience_s = patience_s
        self._members: list[GroupMember] = []
        link.watch(self._connection_changed)

    def _connection_changed(self, _up: bool) -> None:  # noqa: FBT001 - the port's callback
        for member in self._members:
            member.connection_changed()

    async def publish(self, topic: str, body: bytes, *, id: str) -> None:
        why: Exception | None = None
        try:
            async with asyncio.timeout(self._patience_s):
                while True:
                    client = await self._link.wait_for_client()
                    try:
                        return await self._publish(client, topic, body, quote(id, safe="", errors="surrogatepass"))
                    except (NatsError, OSError, JetStreamRefused) as error:
                        why = error
                    await self._clock.pause(PAUSE_S)
        except TimeoutError:
            why = why or self._link.trouble
            raise BusUnavailable(f"topic {topic!r} does not take the message: {why or 'no answer'}") from why

    async def _publish(self, client: Client, topic: str, body: bytes, id: str) -> None:
        size = len(body) + len(id) + _HEADERS_SIZE
        if size > client.max_payload:
            raise PayloadTooLarge(f"a message for topic {topic!r}, with its id,", size, client.max_payload)
        subject = self._names.topic(topic)
        try:
            reply = await client.request(subject, body, timeout=TRY_S, headers={ID: id})
        except NoRespondersError:
            await jetstream.establish_stream(client, self._names.stream(topic), subject)
            raise
        jetstream.read(reply.data)

    def consume(self, topic: str, group: str, handle: Handle, *, in_flight: int) -> GroupMember:
        member = GroupMember(
            self._link,
            stream=self._names.stream(topic),
            subject=self._names.topic(topic),
            group=group,
            handle=handle,
            clock=self._clock,
            ack_wait_s=self._ack_wait_s,
        )
        member.start(in_flight)
        self._members = [*(other for other in self._members if not other.stopped), member]
        return member

    async def close(self) -> None:
        await asyncio.gather(*(member.stop() for member in self._members))
