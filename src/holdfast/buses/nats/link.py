"""One connection to NATS, kept forever.

            ┌────────────────────── pause, longer each time ─────────────────────┐
            ▼                                                                    │
    connect to the next server ── refused, silent ───────────────────────────────┤
            │                                                                    │
    greet (subscribe) ── up ── serve until lost ── down ─────────────────────────┘

Rules
- Every connection is a new client of the library, which itself neither reconnects nor buffers. Its own way of
  reconnecting ends for good on some errors of the server, and sends old words to a new connection.
- Nothing but `close` ends it. The pauses differ from process to process, so that a server that comes back is not
  run over by all of them at once.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError, NoServersError, SecureConnWantedError, UnexpectedEOF

from holdfast.buses.nats.addresses import NatsAddress
from holdfast.ports.clock import Clock
from holdfast.ports.ids import Ids

OPEN_S = 3.0
CONNECT_S = 2
DISCARD_S = 0.5
# A server that hangs is given up after two unanswered pings.
PING_S = 3
PAUSE_S = 0.1
PAUSE_S_MAX = 2.0
# How soon a loss is seen that the library does not report.
LOOK_S = 1.0

Tend = Callable[[Client], Coroutine[Any, Any, None]]
Arrived = Callable[[Msg], Coroutine[Any, Any, None]]


class Link:
    """Keeps one client connected. `greet` prepares a new connection, `serve` works on it until it is lost."""

    def __init__(
        self,
        address: NatsAddress,
        *,
        name: str,
        clock: Clock,
        ids: Ids,
        greet: Tend,
        serve: Tend,
        on_error: Callable[[Exception], None],
    ) -> None:
        self._address = address
        self._name = name
        self._clock = clock
        self._ids = ids
        self._greet = greet
        self._serve = serve
        self._on_error = on_error
        self._on_state: list[Callable[[bool], None]] = []
        self._turn = int(ids.chance() * len(address.servers))
        self._discovered: tuple[str, ...] = ()
        self._client: Client | None = None
        self._up = asyncio.Event()
        self._tried = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._discarding: asyncio.Task[None] | None = None
        self.trouble: Exception | None = None

    @property
    def client(self) -> Client | None:
        """The client that is connected now; None if none is."""
        client = self._client
        return client if client is not None and client.is_connected else None

    async def wait_for_client(self) -> Client:
        """The client, as soon as there is one."""
        while (client := self.client) is None:
            await self._up.wait()
            if self.client is None:  # it is lost, and the keeper has yet to notice
                await self._clock.pause(PAUSE_S)
        return client

    def watch(self, on_state: Callable[[bool], None]) -> None:
        self._on_state.append(on_state)

    async def open(self) -> None:
        """Begin, and wait until one server has replied or each has been tried, but not for long."""
        self._tried.clear()
        self._keeper = asyncio.create_task(self._keep(), name="holdfast-nats-link")
        with suppress(TimeoutError):
            await asyncio.wait_for(self._tried.wait(), OPEN_S)

    async def close(self) -> None:
        if self._keeper is not None:
            await end([self._keeper])
            self._keeper = None
        if self._discarding is not None:
            await self._discarding

    async def _keep(self) -> None:
        failures = 0
        while True:
            client = _TlsClient() if self._address.tls else Client()
            lost = asyncio.get_running_loop().create_future()
            try:
                await self._connect(client, lost)
                await self._greet(client)
            # The library lets errors of many kinds through, and none of them may end this loop.
            except Exception as error:  # noqa: BLE001
                self.trouble = error
                failures += 1
                if failures >= len(self._address.servers):
                    self._tried.set()
            else:
                failures = 1
                await self._work(client, lost)
            finally:
                # To its end, even if `close` comes meanwhile: half of it would leave a socket open.
                self._discarding = asyncio.create_task(_discard(client))
                await asyncio.shield(self._discarding)
            self._turn += 1  # the one that was lost may hang
            pause_s = min(PAUSE_S * 2 ** min(failures - 1, 10), PAUSE_S_MAX)
            await self._clock.pause(pause_s * (0.5 + self._ids.chance()))

    async def _work(self, client: Client, lost: asyncio.Future[None]) -> None:
        self.trouble = None
        self._client = client
        self._discovered = tuple(uri.netloc for uri in client.discovered_servers)
        service = asyncio.create_task(self._serve(client), name="holdfast-nats-service")
        self._up.set()
        self._tried.set()
        self._tell(up=True)
        try:
            # The library forgets to report a loss if it fails at the last words it wants to send.
            while not (service.done() or lost.done() or client.is_closed):
                await asyncio.wait([service, lost], timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._client = None
            self._up.clear()
            await end([service])
            self._tell(up=False)
        if not service.cancelled() and (error := service.exception()) is not None:
            self.trouble = error if isinstance(error, Exception) else None

    def _tell(self, *, up: bool) -> None:
        for on_state in self._on_state:
            try:
                on_state(up)
            # Whatever it is, the connection is needed all the same.
            except Exception as error:  # noqa: BLE001
                report("a watcher of the bus has raised", error)

    async def _connect(self, client: Client, lost: asyncio.Future[None]) -> None:
        async def on_closed() -> None:
            if not lost.done():
                lost.set_result(None)

        async def on_error(error: Exception) -> None:
            self.trouble = error
            if isinstance(error, UnexpectedEOF):
                await on_closed()
            self._on_error(error)

        address = self._address
        servers = (*address.servers, *self._discovered)
        by_token = address.password is None
        try:
            async with asyncio.timeout(3 * CONNECT_S):
                await client.connect(
                    f"nats://{servers[self._turn % len(servers)]}",
                    name=self._name,
                    user=None if by_token else address.user,
                    password=address.password,
                    token=address.user if by_token else None,
                    tls=ssl.create_default_context() if address.tls else None,
                    no_echo=True,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=CONNECT_S,
                    ping_interval=PING_S,
                    error_cb=on_error,
                    closed_cb=on_closed,
                )
        except NoServersError as error:
            # All it says is that no server is left to try; why not was told to `on_error`.
            raise self.trouble or error from None


def known_servers(client: Client) -> int:
    """How many servers the cluster had when this client connected."""
    return len(client._server_info.get("connect_urls") or [client])  # noqa: SLF001 - the library shows them nowhere


def report(what: str, error: Exception) -> None:
    """A fault of the program, not of the bus."""
    asyncio.get_running_loop().call_exception_handler({"message": what, "exception": error})


async def end(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel, and wait until they have ended. The library swallows a cancellation now and then."""
    while running := [task for task in tasks if not task.done()]:
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=LOOK_S)


async def subscribe(client: Client, subject: str, arrived: Arrived, *, queue: str = "") -> Subscription:
    return await client.subscribe(  # pyright: ignore[reportUnknownMemberType] - an argument that is not used here
        subject, queue=queue, cb=arrived
    )


class _TlsClient(Client):
    """Says nothing, and above all no password, to a server that does not speak TLS. The library alone would."""

    def _connect_command(self) -> bytes:
        if not self._server_info.get("tls_required"):
            raise SecureConnWantedError
        return super()._connect_command()


async def _discard(client: Client) -> None:
    with suppress(NatsError, OSError, TimeoutError):
        async with asyncio.timeout(DISCARD_S):
            await client.close()
    # A client that has failed while it closed leaves its socket open.
    transport = client._transport  # noqa: SLF001 - the library offers no other way
    if transport is not None:
        transport.close()
