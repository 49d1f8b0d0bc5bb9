"""Several processes accept from one socket: who has less takes more, and who stops takes nothing that others can."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from holdfast.gateway.listener import (
    DEFER_SECONDS_MAX,
    DEFER_SECONDS_STOPPING,
    AcceptTurn,
    SharedListener,
    bind,
    turn,
    url_of,
)

PATIENCE_SECONDS = 30.0


class Accepting:
    """Stands for a process: a listener of its own on the shared socket, and the connections that it has accepted."""

    def __init__(self, listener: socket.socket, *, is_stopping: bool = False) -> None:
        self.is_stopping = is_stopping
        self.transports: list[asyncio.Transport] = []
        self.lost = 0
        self.on_accept: Callable[[], None] = lambda: None
        self.listener = SharedListener(listener, self._connected, turn=self._turn, exhausted_seconds=0.01)

    def _turn(self) -> AcceptTurn:
        return turn(len(self.transports), is_stopping=self.is_stopping)

    def _connected(self) -> asyncio.Protocol:
        accepting = self

        class Connected(asyncio.Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:
                accepting.transports.append(transport)
                accepting.on_accept()

            def connection_lost(self, exc: Exception | None) -> None:
                accepting.lost += 1

        return Connected()

    async def close(self) -> None:
        self.listener.close()
        for transport in self.transports:
            transport.abort()
        while self.lost < len(self.transports):
            await asyncio.sleep(0)


class Processes:
    """Some that accept from one socket, and callers."""

    def __init__(self, *, stopping: tuple[bool, ...]) -> None:
        self.socket = bind("127.0.0.1", 0)
        self.each = [Accepting(self.socket.dup(), is_stopping=stops) for stops in stopping]
        self.callers: list[socket.socket] = []

    async def call(self, count: int) -> list[int]:
        """How many connections each has, once so many more were accepted."""
        wanted = sum(self.counts) + count
        accepted = asyncio.Event()
        for accepting in self.each:
            accepting.on_accept = lambda: accepted.set() if sum(self.counts) == wanted else None
        loop = asyncio.get_running_loop()
        for _ in range(count):
            caller = socket.socket()
            caller.setblocking(False)
            self.callers.append(caller)
            await loop.sock_connect(caller, self.socket.getsockname())
        async with asyncio.timeout(PATIENCE_SECONDS):
            await accepted.wait()
        return self.counts

    @property
    def counts(self) -> list[int]:
        return [len(accepting.transports) for accepting in self.each]

    async def close(self) -> None:
        for accepting in self.each:
            await accepting.close()
        for each in (*self.callers, self.socket):
            each.close()


@pytest.fixture
async def processes() -> AsyncIterator[Callable[..., Processes]]:
    started: list[Processes] = []

    def start(*, stopping: tuple[bool, ...]) -> Processes:
        started.append(Processes(stopping=stopping))
        return started[-1]

    yield start
    for each in started:
        await each.close()


async def test_connections_that_come_at_once_are_shared(processes):
    counts = await processes(stopping=(False, False, False)).call(60)
    assert min(counts) >= 10, counts  # with the loop's own server, the one that is woken first takes all


async def test_a_process_that_stops_leaves_connections_to_the_others(processes):
    both = processes(stopping=(True, False))
    for count in range(1, 6):
        assert await both.call(1) == [0, count]


async def test_when_all_stop_they_still_accept_so_that_they_can_say_so(processes):
    assert sum(await processes(stopping=(True, True)).call(4)) == 4


async def test_a_process_that_has_closed_leaves_all_to_the_others(processes):
    both = processes(stopping=(False, False))
    both.each[0].listener.close()
    both.each[0].listener.close()  # may be said twice
    assert await both.call(5) == [0, 5]


@pytest.mark.parametrize(
    ("number", "complaint"),
    [
        (errno.EMFILE, "no more connections can be accepted"),
        (errno.EPERM, "a connection could not be accepted"),
        (errno.EPROTO, "a connection could not be accepted"),
        (errno.ENETDOWN, "a connection could not be accepted"),
    ],
)
async def test_what_cannot_be_accepted_is_said_and_the_next_one_is(processes, number, complaint):
    alone = processes(stopping=(False,))
    shared, complaints = alone.each[0].listener, []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    real = shared._listener

    class Troubled:
        def __getattr__(self, name):
            return getattr(real, name)

        def accept(self):
            shared._listener = real  # the next time it can be
            raise OSError(number, os.strerror(number))

    shared._listener = Troubled()
    assert await alone.call(1) == [1]
    assert complaints == [complaint]


@pytest.mark.parametrize(
    ("connections", "seconds", "count"),
    [(0, 0.0, 1), (1, 0.0005, 1), (5, 0.0025, 2), (10, DEFER_SECONDS_MAX, 3), (1_000, DEFER_SECONDS_MAX, 3)],
)
def test_the_busier_a_process_the_longer_it_leaves_connections_to_others(connections, seconds, count):
    assert turn(connections, is_stopping=False) == AcceptTurn(seconds, count)
    assert turn(connections, is_stopping=True) == AcceptTurn(DEFER_SECONDS_STOPPING, 1)
    assert DEFER_SECONDS_STOPPING > DEFER_SECONDS_MAX


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_address_names_the_port(host):
    with bind(host, 0) as listener:
        shown = "[::1]" if host == "::1" else host
        assert url_of(listener, host) == f"http://{shown}:{listener.getsockname()[1]}"
