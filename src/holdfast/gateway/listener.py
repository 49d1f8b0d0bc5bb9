"""The socket that the gateway listens on: one of its own, or one that several processes accept from."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import NamedTuple

from holdfast.errors import InvalidConfig

BACKLOG = 2048
DEFER_SECONDS = 0.0005  # for each connection that is open here
DEFER_SECONDS_MAX = 0.005
DEFER_SECONDS_STOPPING = 0.05
TAKEN_PER_SECOND_DEFERRED = 400  # so many more are taken at once, the longer they were left to others
EXHAUSTED_SECONDS = 1.0  # the pause when the system has no file descriptor, or no memory, for another connection
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens. Port 0 is any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise InvalidConfig(
                f"port {port} of {host} is in use", hint="Stop what listens there, or choose another port; 0 is any."
            ) from None
        raise InvalidConfig(
            f"cannot listen on {host}, port {port}: {error.strerror or error}",
            hint="Use an address of this machine, such as 127.0.0.1, and a port above 1023.",
        ) from None


def url_of(listener: socket.socket, host: str) -> str:
    """The address of what listens on `host`, with the port that it has."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listener.getsockname()[1]}"


class AcceptTurn(NamedTuple):
    """How long a process leaves new connections to the others, and how many it takes then."""

    defer_seconds: float
    takes: int


def turn(open_connections: int, *, is_stopping: bool) -> AcceptTurn:
    """The turn of a process that has so many connections already."""
    if is_stopping:  # it would refuse the request; but if all are stopping, that is to be said
        return AcceptTurn(DEFER_SECONDS_STOPPING, 1)
    seconds = min(open_connections * DEFER_SECONDS, DEFER_SECONDS_MAX)
    return AcceptTurn(seconds, 1 + int(seconds * TAKEN_PER_SECOND_DEFERRED))


class SharedListener:
    """Accepts connections from a socket that other processes accept from, too: the more it has open, the later.

    Every process is woken by a new connection, and the one that comes first is not the one that has time. The loops'
    own servers take all that wait at once: of fifty connections, one of four processes got 41, or all. Left to others
    for a moment by those that have more, they come out about even, whichever loop it is.
    """

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        *,
        turn: Callable[[], AcceptTurn],
        exhausted_seconds: float = EXHAUSTED_SECONDS,
    ) -> None:
        self._listener = listener
        self._protocol = protocol
        self._turn = turn
        self._exhausted_seconds = exhausted_seconds
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._connecting: set[asyncio.Task[None]] = set()
        listener.setblocking(False)
        self._loop.add_reader(listener, self._on_waiting)

    def close(self) -> None:
        """Accept no more. The socket stays open in the other processes."""
        if self._timer is not None:
            self._timer.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener)
            self._listener.close()

    async def finish_accepting(self) -> None:
        """Returns when each connection that was accepted has its protocol."""
        if self._connecting:
            await asyncio.wait(self._connecting)

    def _on_waiting(self) -> None:
        self._wait(self._turn())

    def _wait(self, turn: AcceptTurn) -> None:
        # The loop would go on telling that a connection waits.
        self._loop.remove_reader(self._listener)
        if turn.defer_seconds:
            self._timer = self._loop.call_later(turn.defer_seconds, self._take, turn.takes)
        else:
            self._take(turn.takes)

    def _take(self, count: int) -> None:
        self._timer = None
        try:
            for _ in range(count):
                connection, _ = self._listener.accept()
                connection.setblocking(False)
                task = self._loop.create_task(self._connect(connection))
                self._connecting.add(task)
                task.add_done_callback(self._connecting.discard)
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            pass  # another process was faster, or the caller is gone
        except OSError as error:
            if error.errno in EXHAUSTED:
                self._report("no more connections can be accepted", error)
                self._wait(AcceptTurn(self._exhausted_seconds, 1))
                return
            # The trouble of one connection, not of the listener: a firewall forbids it, or its network is down.
            self._report("a connection could not be accepted", error)
        self._loop.add_reader(self._listener, self._on_waiting)

    def _report(self, message: str, error: OSError) -> None:
        self._loop.call_exception_handler({"message": message, "exception": error})

    async def _connect(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._protocol, connection)
        except OSError:  # it is gone already
            connection.close()
