"""One member of a group: lanes that each fetch a message, handle it, acknowledge it, and fetch the next.

    a lane      pull ── nothing for a while ── pull again
                 └─ a message ── handle, saying "in progress" ── returned ── acknowledge
                                                             └── raised ──── give back, for later

Rules
- A lane asks for one message and holds one. So a slow message holds up its lane and no other, and no message lies
  here without being worked on.
- An acknowledgement is sent after the handler has returned, over whichever connection there is then, and waited for.
- What arrives when no lane waits for it any more is given back at once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import unquote

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from holdfast.buses.nats import jetstream
from holdfast.buses.nats.jetstream import STREAM_UNKNOWN, JetStreamRefused
from holdfast.buses.nats.link import Link, end
from holdfast.buses.nats.names import token
from holdfast.buses.nats.pull import PullInbox
from holdfast.ports.bus import Handle, TopicMessage
from holdfast.ports.clock import Clock

ID = "Nats-Msg-Id"
ACKNOWLEDGE_S = 5.0
TRY_S = 1.5
PAUSE_S = 0.5
TRIM_S = 60.0
AGAIN_S = 0.1
AGAIN_S_MAX = 30.0

# A pull that brought nothing says so; any other status means that the group has to be looked for.
_NOTHING = frozenset({"404", "408"})


class GroupMember:
    """A `Consumption`."""

    def __init__(
        self,
        link: Link,
        *,
        stream: str,
        subject: str,
        group: str,
        handle: Handle,
        clock: Clock,
        ack_wait_s: float,
    ) -> None:
        self._link = link
        self._stream = stream
        self._subject = subject
        self._group = token(group)
        self._handle = handle
        self._clock = clock
        self._ack_wait_s = ack_wait_s
        self._inbox: PullInbox | None = None
        self._establishing = asyncio.Lock()
        self._lanes: list[asyncio.Task[None]] = []
        self._at_work: dict[asyncio.Task[None], asyncio.Task[None]] = {}  # a lane, and its call of the handler
        self._trimmer: asyncio.Task[None] | None = None
        self._stopping = False

    def start(self, in_flight: int) -> None:
        assert in_flight > 0, in_flight
        self._lanes = [asyncio.create_task(self._lane(), name="holdfast-lane") for _ in range(in_flight)]
        self._trimmer = asyncio.create_task(self._trim(), name="holdfast-trimmer")

    async def stop(self, grace_s: float = 5.0) -> None:
        self._stopping = True
        if self._trimmer is not None:
            await end([self._trimmer])
        if self._inbox is not None:
            await self._inbox.close()
        await end([lane for lane in self._lanes if lane not in self._at_work])
        await asyncio.wait(self._lanes, timeout=grace_s)
        for handling in self._at_work.values():
            handling.cancel()
        await asyncio.wait(self._lanes)

    @property
    def stopped(self) -> bool:
        return all(lane.done() for lane in self._lanes)

    def connection_changed(self) -> None:
        """No answer comes any more from the old one."""
        if self._inbox is not None:
            self._inbox.release()

    async def _lane(self) -> None:
        while not self._stopping:
            inbox: PullInbox | None = None
            try:
                inbox = await self._begin_to_pull()
                message = await inbox.pull()
            # The library lets errors of many kinds through, and none of them may end a lane.
            except Exception:  # noqa: BLE001
                await self._leave(inbox)
                await self._clock.pause(PAUSE_S)
                continue
            if message is None:
                continue
            if message.reply:
                await self._work(message)
            elif (message.headers or {}).get("Status") not in _NOTHING:
                await self._leave(inbox)
                await self._clock.pause(PAUSE_S)

    async def _trim(self) -> None:
        """Any member does it for all of them, now and then; it may fail, and be done by another one."""
        while True:
            await self._clock.pause(TRIM_S)
            client = self._link.client
            if client is not None:
                with suppress(NatsError, OSError, JetStreamRefused):
                    await jetstream.trim(client, self._stream)

    # ------------------------------------------------------------------------------------------ one connection's

    async def _begin_to_pull(self) -> PullInbox:
        """Where lanes pull, on the present connection; topic and group exist by then."""
        async with self._establishing:
            client = await self._link.wait_for_client()
            if self._inbox is None or self._inbox.client is not client:
                await self._establish(client)
                inbox = PullInbox(client, f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._group}")
                await inbox.open()
                self._inbox = inbox
            return self._inbox

    async def _establish(self, client: Client) -> None:
        try:
            await jetstream.establish_group(client, self._stream, self._group, ack_wait_s=self._ack_wait_s)
        except JetStreamRefused as refusal:
            if refusal.number != STREAM_UNKNOWN:
                raise
            await jetstream.establish_stream(client, self._stream, self._subject)
            await jetstream.establish_group(client, self._stream, self._group, ack_wait_s=self._ack_wait_s)

    async def _leave(self, inbox: PullInbox | None) -> None:
        if inbox is not None and self._inbox is inbox:
            self._inbox = None
            await inbox.close()

    # ---------------------------------------------------------------------------------------------- one message's

    async def _work(self, message: Msg) -> None:
        if self._stopping:
            await self._say(message.reply, jetstream.AGAIN)
            return
        lane = asyncio.current_task()
        assert lane is not None
        delivery = _topic_message(message)
        handling = self._at_work[lane] = asyncio.create_task(self._call(delivery))
        try:
            while not (await asyncio.wait([handling], timeout=self._ack_wait_s / 3))[0]:
                await self._say(message.reply, jetstream.BUSY)
            if not handling.cancelled() and handling.exception() is None:
                await self._acknowledge(message.reply)
            elif self._stopping:
                await self._say(message.reply, jetstream.AGAIN)
            else:
                await self._say(message.reply, jetstream.again_after(_pause_s(delivery.count)))
        finally:
            del self._at_work[lane]

    async def _call(self, delivery: TopicMessage) -> None:
        await self._handle(delivery)

    async def _acknowledge(self, reply: str) -> None:
        """Until the server has confirmed it. If it cannot, the message comes again, as it may at any time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ACKNOWLEDGE_S):
                while True:
                    client = await self._link.wait_for_client()
                    with suppress(NatsError, OSError):
                        await client.request(reply, jetstream.DONE, timeout=TRY_S)
                        return
                    await self._clock.pause(PAUSE_S)

    async def _say(self, reply: str, words: bytes) -> None:
        client = self._link.client
        if client is not None:
            with suppress(NatsError, OSError):
                await client.publish(reply, words)


def _pause_s(count: int) -> float:
    return min(AGAIN_S * 2 ** min(count, 10), AGAIN_S_MAX)


def _topic_message(message: Msg) -> TopicMessage:
    id_header = (message.headers or {}).get(ID, "")
    return TopicMessage(unquote(id_header, errors="surrogatepass"), message.data, message.metadata.num_delivered)
