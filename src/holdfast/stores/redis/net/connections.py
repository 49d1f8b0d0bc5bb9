"""Connections to one Redis server: requests go out at once, replies come back in the same order.

Rules
- Every reply is matched to its request by its place in the line. Whatever could shift the line ends the connection:
  a reply without a request, bytes that are no Redis protocol, a reply that is late.
- A connection that has ended is never used again. What was sent on it and got no reply is `LostConnection`: it may have
  been executed.
- A request is one write and any number of replies, so a batch costs one system call and one wake-up.

A `Node` is a server with two connections: one for calls, and one on which we wait until replicas have confirmed
them, if that is wanted. It blocks meanwhile.
"""

from __future__ import annotations

import asyncio
import math
import re
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, cast

import hiredis

from holdfast.ports.clock import Clock
from holdfast.stores.redis.net.errors import LostConnection, NotSent, ServerError, Unwelcome, Verdict, verdict
from holdfast.stores.redis.net.urls import RedisUrl, ServerAddress

Reply = bytes | int | None | list["Reply"]
Answer = Reply | ServerError
Word = bytes | str | int  # of a command; text goes over the wire as UTF-8
Lane = Literal["calls", "waits"]

CONNECT_SECONDS = 2.0
BACKOFF_SECONDS_MIN, BACKOFF_SECONDS_MAX = 0.02, 1.0
_MORE = object()


# hiredis has no types for it. A tuple of words becomes a command as it goes over the wire.
pack = cast("Callable[[tuple[Word, ...]], bytes]", hiredis.pack_command)


def packed(*command: Word) -> bytes:
    return pack(command)


class Backoff:
    """Delays that grow, and differ between processes so that they do not come back all at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds = BACKOFF_SECONDS_MIN

    def next(self) -> float:
        """How many seconds to wait now."""
        # The digits behind the millisecond are as good as chance.
        chance = self._clock.steady_ms() % 1
        seconds = self._seconds * (0.5 + chance)
        self._seconds = min(self._seconds * 2, BACKOFF_SECONDS_MAX)
        return seconds


class _Waiting(NamedTuple):
    """A request that has been sent: how many replies it gets, by when, and who wants them."""

    size: int
    deadline: float
    replies: asyncio.Future[list[Answer] | LostConnection]


class RedisConnection(asyncio.Protocol):
    """One connection. It is made by `Node` or `connect`, which have shown it who we are."""

    def __init__(self, address: ServerAddress, on_push: Callable[[Answer], None] | None = None) -> None:
        self.address = address
        self.scripts: set[bytes] = set()  # those that the server has seen on this connection
        self.lost: asyncio.Future[LostConnection] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(replyError=ServerError, notEnoughData=_MORE)
        self._line: deque[_Waiting] = deque()
        self._replies: list[Answer] = []
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._on_push = on_push

    @property
    def up(self) -> bool:
        return not self.lost.done()

    @property
    def unanswered(self) -> int:
        return len(self._line)

    def request(self, data: bytes, count: int, seconds: float) -> asyncio.Future[list[Answer] | LostConnection]:
        """Send commands that get `count` replies, all of them within `seconds`. Raises `NotSent`."""
        assert self._transport is not None
        if self.lost.done():
            raise NotSent(f"{self.address}: {self.lost.result().why}")
        replies: asyncio.Future[list[Answer] | LostConnection] = self._loop.create_future()
        deadline = self._loop.time() + seconds
        self._line.append(_Waiting(count, deadline, replies))
        if self._timer is None or self._timer.when() > deadline:
            self._look_at_the_time_at(deadline)
        self._transport.write(data)
        return replies

    def tell(self, data: bytes) -> None:
        """Send commands whose replies go to `on_push`, or nowhere."""
        if self._transport is not None and not self.lost.done():
            self._transport.write(data)

    def end(self, why: str) -> None:
        """Close it. What has no reply yet is lost."""
        if self.lost.done():
            return
        lost = LostConnection(self.address, why)
        self.lost.set_result(lost)
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        for waiting in self._line:
            if not waiting.replies.done():
                waiting.replies.set_result(lost)
        self._line.clear()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self.lost.done():  # given up already
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(f"the connection broke ({exc})" if exc else "the server closed the connection")

    def data_received(self, data: bytes) -> None:
        reader, replies = self._reader, self._replies
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not _MORE:
                if self._line:
                    replies.append(reply)
                    if len(replies) == self._line[0].size:
                        self._settle(replies)
                        replies = self._replies = []
                elif self._on_push is not None:
                    self._on_push(reply)
                else:
                    self.end("it sent a reply without a request")
        except hiredis.ProtocolError as error:
            self.end(f"it does not speak the Redis protocol ({error})")

    def _settle(self, replies: list[Answer]) -> None:
        waiting = self._line.popleft()
        if not waiting.replies.done():  # the caller may have been cancelled
            waiting.replies.set_result(replies)

    def _look_at_the_time_at(self, instant: float) -> None:
        """One timer per connection, not per request: most replies come long before it rings."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(instant, self._look_at_the_time)

    def _look_at_the_time(self) -> None:
        self._timer = None
        if self._line:
            first = min(waiting.deadline for waiting in self._line)
            if first <= self._loop.time():
                self.end("no answer came in time")
            else:
                self._look_at_the_time_at(first)


async def connect(
    address: ServerAddress, url: RedisUrl, *, greeting: Sequence[bytes], on_push: Callable[[Answer], None] | None = None
) -> tuple[RedisConnection, list[Answer]]:
    """A connection to which `greeting` was said first, and the replies. Raises `NotSent`."""
    context = ssl.create_default_context() if url.tls else None
    connection = RedisConnection(address, on_push)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            transport, _ = await asyncio.get_running_loop().create_connection(
                lambda: connection, address.host, address.port, ssl=context
            )
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        replies = await connection.request(b"".join(greeting), len(greeting), CONNECT_SECONDS)
    except BaseException as error:  # cancelled, too: nothing else knows it yet
        connection.end("it was given up while it was made")
        if isinstance(error, TimeoutError):
            raise NotSent(f"{address} does not answer within {CONNECT_SECONDS:g} s") from None
        if isinstance(error, OSError):
            raise NotSent(f"{address} cannot be reached: {error.strerror or error}") from error
        raise
    if isinstance(replies, LostConnection):
        raise NotSent(f"{address}: {replies.why}")
    return connection, replies


def credentials(url: RedisUrl) -> list[bytes]:
    """How we say who we are."""
    if url.password is None:
        return []
    return [packed(b"AUTH", *([url.user.encode()] if url.user else []), url.password.encode())]


class ServerInfo(NamedTuple):
    """What a server says about itself."""

    version: str
    mode: str  # standalone, cluster or sentinel
    role: str  # master or slave, as Redis puts it
    replicas: int  # that are connected and follow


_FIELD = re.compile(r"^([a-z_0-9]+):(.*?)\r?$", re.MULTILINE)
REPLICATION = (b"INFO", b"replication")
LAG_SECONDS_MAX = 10  # a replica that has said nothing for so long does not count


def fields(reply: Answer) -> dict[str, str]:
    """The lines of an INFO reply."""
    return dict(_FIELD.findall(reply.decode(errors="replace"))) if isinstance(reply, bytes) else {}


def settings(reply: Answer) -> dict[str, str] | None:
    """What CONFIG GET has returned; None if the server does not let us see."""
    if not isinstance(reply, list):
        return None
    words = [word.decode(errors="replace") for word in reply if isinstance(word, bytes)]
    return dict(zip(words[::2], words[1::2], strict=False))


def replicas_in(info: Mapping[str, str]) -> list[dict[str, str]]:
    """The replicas that a primary lists: those that follow it now."""
    listed = [
        {name: value for name, _, value in (pair.partition("=") for pair in line.split(","))}
        for field, line in info.items()
        if field.startswith("slave") and field[5:].isdigit()
    ]
    return [one for one in listed if one.get("state") == "online" and int(one.get("lag", "0")) <= LAG_SECONDS_MAX]


class Node:
    """One server, its connections, and how many replicas follow it."""

    def __init__(self, address: ServerAddress, url: RedisUrl, clock: Clock, *, writable: bool = False) -> None:
        """`writable`: replicas are no use. A node of a cluster says for each key whether it is in charge of it."""
        self.address = address
        self.server: ServerInfo | None = None
        self.looked_at = 0.0  # when its replicas were counted, by the loop's time
        self.left_alone_at = -math.inf  # when the last of its replicas was found to be gone
        self._url = url
        self._clock = clock
        self._writable = writable
        self._followed = False
        self._up: dict[Lane, RedisConnection] = {}
        self._making: dict[Lane, asyncio.Lock] = {"calls": asyncio.Lock(), "waits": asyncio.Lock()}
        self._backoff = Backoff(clock)
        self._failure = ""
        self._not_before = 0.0

    @property
    def replicas(self) -> int:
        return self.server.replicas if self.server else 0

    @property
    def is_primary(self) -> bool:
        return self.server is not None and self.server.role == "master"

    def connection(self, lane: Lane) -> RedisConnection | None:
        """The connection, if there is one."""
        found = self._up.get(lane)
        return found if found is not None and found.up else None

    async def connect(self, lane: Lane) -> RedisConnection:
        """The connection, made now if there is none. Raises `NotSent`, `Unwelcome`."""
        async with self._making[lane]:
            if (found := self.connection(lane)) is not None:
                return found
            loop = asyncio.get_running_loop()
            if loop.time() < self._not_before:
                raise NotSent(self._failure)
            try:
                made = await self._made()
            except NotSent as error:
                if self._not_before != math.inf:
                    self._failure = str(error)
                    self._not_before = loop.time() + self._backoff.next()
                raise
            if self._not_before == math.inf:  # closed meanwhile
                made.end("it was closed while it was made")
                raise NotSent(self._failure)
            self._backoff = Backoff(self._clock)
            self._up[lane] = made
            return made

    async def _made(self) -> RedisConnection:
        url = self._url
        greeting = credentials(url)
        if url.db:
            greeting.append(packed(b"SELECT", url.db))
        greeting += [packed(b"CLIENT", b"SETNAME", b"holdfast"), packed(b"INFO", b"server"), packed(*REPLICATION)]
        connection, replies = await connect(self.address, url, greeting=greeting)
        refusal = next((reply for reply in replies if isinstance(reply, ServerError)), None)
        if refusal is not None:
            connection.end("it refused the greeting")
            raise self._refused(refusal)
        about = fields(replies[-2])
        self.server = ServerInfo(about.get("redis_version", "0"), about.get("redis_mode", "standalone"), "", 0)
        self.followed_by(replies[-1])
        if self._writable and self.server.role == "slave" and self.server.mode != "cluster":
            # It would answer reads, with what it happens to know.
            connection.end("it is a replica")
            raise NotSent(f"{self.address} is a replica, not a primary")
        return connection

    def _refused(self, error: ServerError) -> Exception:
        if verdict(error) is Verdict.AGAIN:
            return NotSent(f"{self.address} refuses: {error.text}")
        return Unwelcome(self.address, error)

    def followed_by(self, info: Answer) -> None:
        """Take note of what `INFO replication` has returned."""
        if self.server is not None and (told := fields(info)):
            replicas = len(replicas_in(told))
            self.server = self.server._replace(role=told.get("role", ""), replicas=replicas)
            self.looked_at = asyncio.get_running_loop().time()
            if self._followed and not replicas:
                self.left_alone_at = self.looked_at
            self._followed = replicas > 0

    async def ask(self, *command: bytes | int) -> Answer:
        """One command that changes nothing, on its own. Raises `NotSent`; what is lost counts as not sent here."""
        connection = self.connection("calls") or await self.connect("calls")
        replies = await connection.request(packed(*command), 1, self._url.timeout_ms / 1000)
        if isinstance(replies, LostConnection):
            raise NotSent(f"{self.address}: {replies.why}")
        return replies[0]

    def close(self, why: str) -> None:
        """For good: a caller that still knows this node must not come back to it."""
        self._failure, self._not_before = f"{self.address}: {why}", math.inf
        for connection in self._up.values():
            connection.end(why)
        self._up.clear()
