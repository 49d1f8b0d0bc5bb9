"""Serves the gateway inside the running event loop, and stops in order.

Stop: not ready any more, and new requests are refused → long polls return and streams end → requests at work get up to
10 s → take no more connections → those that were just made get a moment to send their request → the rest is cut. While
requests are at work, `/livez` and `/readyz` still say that the process is alive and not ready. Signals are not handled
here: the caller of `stop` decides.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Container
from functools import partial

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn import Config

from holdfast.errors import InvalidConfig, TooBusy
from holdfast.gateway import health, problems
from holdfast.gateway.auth import is_loopback
from holdfast.gateway.limits import HttpConnection, Limits, SharedState
from holdfast.gateway.listener import BACKLOG, AcceptTurn, SharedListener, bind, turn, url_of
from holdfast.gateway.wait_limit import WaitLimit

LAST_SECONDS = 1.0  # how long what was cut may take to notice
NEW_SECONDS = 1.0  # how long a connection that has just been made may take to send its first request


def check_exposure(host: str, *, require_keys: bool) -> None:
    """Raises `InvalidConfig` for a gateway without keys on an address that others can reach."""
    if not require_keys and not is_loopback(host):
        raise InvalidConfig(
            f"{host!r} can be reached by others, and no API keys are required there",
            hint="Require keys (`holdfast keys create` makes one), or listen on 127.0.0.1.",
        )


class HttpServer:
    """One listening socket, and the requests that came through it."""

    def __init__(self, wait_limit: WaitLimit, *, limits: Limits | None = None) -> None:
        self._wait_limit = wait_limit
        self._state = SharedState(limits or Limits())
        self._listening: asyncio.Server | SharedListener | None = None

    async def start(self, app: ASGIApp, host: str, port: int, *, shared: socket.socket | None = None) -> str:
        """Listen, and return the URL. Port 0 is any free one. `shared` listens already, and other processes on it."""
        protocol = partial(HttpConnection, self._config(app), self._state, {})
        if shared is not None:
            self._listening = SharedListener(shared, protocol, turn=self._turn)
            return url_of(shared, host)
        listener = bind(host, port)
        self._listening = await asyncio.get_running_loop().create_server(protocol, sock=listener, backlog=BACKLOG)
        return url_of(listener, host)

    def _turn(self) -> AcceptTurn:
        return turn(len(self._state.connections), is_stopping=self._state.draining)

    def _config(self, app: ASGIApp) -> Config:
        limits = self._state.limits
        config = Config(
            _Cuttable(app, self._state),
            http=HttpConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            workers=1,  # or it would ask the environment
            timeout_keep_alive=limits.idle_seconds_max,
        )
        config.load()
        return config

    async def stop(self) -> None:
        """Stop in order. May be called again."""
        if self._listening is None:
            return
        listening, self._listening = self._listening, None
        deadline = asyncio.get_running_loop().time() + self._state.limits.drain_seconds_max
        self._state.draining = True
        self._wait_limit.close()
        self._close_when_idle(but=self._state.new_connections())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                if self._state.tasks:
                    await asyncio.wait(list(self._state.tasks))  # not those that come meanwhile: they are refused
        listening.close()
        if isinstance(listening, SharedListener):
            await listening.finish_accepting()
        await self._hear_the_new()
        self._state.closing = True
        self._close_when_idle()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._wait_until_quiet()
        await self._cut()

    async def _hear_the_new(self) -> None:
        """A caller whose connection was just accepted is told that we stop. Hung up on, it would not know.

        This comes after the listener is closed: a connection that is accepted until then is new, too.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(NEW_SECONDS):
                while self._state.new_connections():
                    self._state.lost.clear()
                    await self._state.lost.wait()

    def _close_when_idle(self, *, but: Container[object] = ()) -> None:
        for connection in list(self._state.connections):
            if connection not in but:
                connection.shutdown()

    async def _wait_until_quiet(self) -> None:
        """Returns when nothing is at work, and all has been sent."""
        while self._state.tasks:
            await asyncio.wait(self._state.tasks)
        while self._state.connections:
            self._state.lost.clear()
            await self._state.lost.wait()

    async def _cut(self) -> None:
        for connection in list(self._state.connections):
            connection.transport.abort()
        for task in self._state.tasks:
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await self._wait_until_quiet()


class _Cuttable:
    """An application whose requests are refused, and may be cut off without an outcry in the log, when it stops."""

    def __init__(self, app: ASGIApp, state: SharedState) -> None:
        self._app = app
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if self._state.draining:
            send = _last(send)
            if scope["path"] not in health.PATHS:
                app = problems.response(TooBusy("this process is stopping"), scope["path"])
        try:
            await app(scope, receive, send)
        except asyncio.CancelledError:
            if not self._state.closing:
                raise


def _last(send: Send) -> Send:
    """`send`, for the last response of a connection."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), (b"connection", b"close")]
        await send(message)

    return sending
