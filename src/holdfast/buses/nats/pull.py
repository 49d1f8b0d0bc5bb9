"""Where the messages for one member of a group arrive, on one connection.

Every request is for one message and gets one reply: a message, or a status that says why there is none. A reply does
not say which request it belongs to, so the caller that has waited longest gets it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from holdfast.buses.nats import jetstream
from holdfast.buses.nats.link import subscribe

# After a change of leader one may wait for an answer that never comes, for this long.
PULL_S = 5.0
CLOSE_S = 1.5


class PullInbox:
    """Asks JetStream for messages, one by one, and hands out the replies."""

    def __init__(self, client: Client, requests: str) -> None:
        self.client = client
        self._requests = requests
        self._inbox = client.new_inbox()
        self._waiting: deque[asyncio.Future[Msg | None]] = deque()
        self._subscription: Subscription | None = None
        self._closing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._subscription = await subscribe(self.client, self._inbox, self._hand_out)

    async def pull(self) -> Msg | None:
        """A reply; None if the inbox was closed meanwhile."""
        if self._closing is not None:
            return None
        waiting: asyncio.Future[Msg | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await self.client.publish(self._requests, jetstream.pull_request(PULL_S), reply=self._inbox)
        async with asyncio.timeout(PULL_S + 1):
            return await waiting

    async def _hand_out(self, answer: Msg) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(answer)
                return
        if answer.reply:
            await answer.nak()

    def release(self) -> None:
        """Wait for nothing any more."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)

    async def close(self) -> None:
        """Withdraw all requests. What is on its way already is given back as it arrives."""
        self.release()
        if self._closing is None:
            self._closing = asyncio.create_task(self._withdraw())
        # Not to be cancelled: the library's connection does not survive a flush that is given up.
        await asyncio.wait([self._closing], timeout=CLOSE_S)

    async def _withdraw(self) -> None:
        if self._subscription is not None:
            with suppress(NatsError, OSError):
                await self._subscription.drain()
