"""Connections with limits: uvicorn's HTTP/1.1 protocol, which by itself trusts every client.

    headers       32 KiB, within 10 s of the first byte       else 431, 408
    connections   4000 at once                                else 503
    what is sent  is read within 30 s                         else the connection is cut
    between two requests a connection may be idle for 30 s    then it is closed

Rules
- No connection lives without a timer, except while its request is at work: then the endpoint has limits of its own.
- A client that is refused is told why, as `application/problem+json`, and the connection is closed. It is closed as
  well if a response has been sent before all of its request has come: what follows is not read.
"""

from __future__ import annotations

import asyncio
import socket
from email.utils import formatdate
from typing import TYPE_CHECKING, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from holdfast.errors import HoldfastError, TooBusy
from holdfast.gateway import problems
from holdfast.gateway.problems import Malformed, TooSlow

if TYPE_CHECKING:
    from uvicorn.config import Config


LINGER_SECONDS = 2.0  # how long a client may go on sending after the last response


class Limits(Struct, frozen=True, kw_only=True):
    """What a server takes at most."""

    header_bytes_max: int = 32 * 1024
    header_seconds_max: float = 10.0
    idle_seconds_max: int = 30
    send_seconds_max: float = 30.0
    connections_max: int = 4000
    drain_seconds_max: float = 10.0


class NotHttp(Malformed):
    """What was sent is not HTTP/1.1."""

    code = "not_http"
    hint = "Send HTTP/1.1, without TLS: that is for a proxy in front."


class HeadersTooLarge(Malformed):
    """The headers are over the limit."""

    code = "headers_too_large"
    status = 431
    hint = "Send fewer or shorter headers, and put data into the body."


class HeadersTooSlow(TooSlow):
    """The headers did not arrive in time."""


class _Refused(Exception):
    """Ends the parsing of a request that will not be served."""


class SharedState(ServerState):
    """What the connections of one server share."""

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.limits = limits
        self.draining = False  # what comes now is refused
        self.closing = False  # no connection is accepted any more
        self.lost = asyncio.Event()  # set whenever a connection has ended, or while we drain is not new any more
        self._dated_until = 0.0

    def new_connections(self) -> list[HttpConnection]:
        """Those by which no request has come yet."""
        connections = cast("set[HttpConnection]", self.connections)  # we make no others
        return [each for each in connections if each.is_new]

    def keep_dated(self, now: float) -> None:
        """See to it that the `Date` header is right, without a timer that ticks while nothing happens."""
        if now >= self._dated_until:
            self._dated_until = now + 1.0
            self.default_headers = [(b"date", formatdate(usegmt=True).encode())]


class HttpConnection(HttpToolsProtocol):
    """One connection of a client."""

    server_state: SharedState

    def __init__(
        self,
        config: Config,
        server_state: SharedState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = server_state.limits
        self._refusal: HoldfastError | None = None
        self._is_surplus = False  # there were enough connections already
        self._is_over = False  # nothing that still comes is looked at
        self._is_coming = False  # of the newest request not all of the body has come
        self._is_offer = False  # the client would rather speak another protocol
        self._head_bytes = 0  # that came, and are no body
        self._trailer_bytes = 0  # of the newest request
        self._head_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._is_surplus = len(self.connections) > self._limits.connections_max
        # Or the second part of a response waits 40 ms for the client to confirm the first. asyncio does this for
        # sockets that say "TCP", and those of a listener that was made by `socket.create_server` do not.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.server_state.closing:
            transport.abort()
        else:
            self._start_header_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # the class above leaves it armed if the connection broke
        self._stop_header_timer()
        self.resume_writing()
        self.server_state.lost.set()

    # -- what comes

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        self._unset_keepalive_if_required()
        if self._head_timer is None and not self._is_at_work:
            self._start_header_timer()
        self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as offer:
            self._decline(data[offer.args[0] :])
        except HttpParserError:
            self._refuse(self._refusal or NotHttp("what was sent cannot be read as an HTTP/1.1 request"))
        else:
            if self._head_bytes > self._limits.header_bytes_max:
                self._refuse(self._too_large())

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_coming:
            super().on_header(name, value)
            return
        # A trailer. No endpoint reads one, and as a header it would be one that no proxy in front has seen.
        self._trailer_bytes += len(name) + len(value) + 4
        if self._trailer_bytes > self._limits.header_bytes_max:
            self._refusal = self._too_large()
            raise _Refused

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        self._stop_header_timer()
        self._head_bytes = 0
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._limits.header_bytes_max:
            self._refusal = self._too_large()
        elif self._is_surplus:
            self._refusal = TooBusy(f"{self._limits.connections_max} connections are open here already")
        elif self.parser.get_method() == b"CONNECT":
            self._refusal = NotHttp("this is no proxy")
        if self._refusal is not None:
            raise _Refused
        self._is_offer = self.parser.should_upgrade()
        if not self._is_offer:
            self._is_coming = True
            if self.server_state.draining:
                self.server_state.lost.set()
            self.server_state.keep_dated(self.loop.time())
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_coming = False
        self._head_bytes = self._trailer_bytes = 0
        if not self._is_offer:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._cut_if_unread()
        if self._is_coming and not self._is_at_work and not self.transport.is_closing():
            self._hang_up()

    def _decline(self, rest: bytes) -> None:
        """Read the request again as if the offer to change the protocol had not been made.

        The parser takes such a request for one without a body, and what follows for the other protocol. But HTTP/2 is
        offered with any first request by some clients (Java's, for one), and may be ignored.
        """
        kept = [(name, value) for name, value in self.headers if name not in {b"upgrade", b"http2-settings"}]
        lines = [name + b": " + value + b"\r\n" for name, value in kept]
        head = b"%b %b HTTP/1.1\r\n%b\r\n" % (self.parser.get_method(), self.url, b"".join(lines))
        self.parser = HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as the class above
        self.data_received(head + rest)

    @property
    def is_new(self) -> bool:
        """Whether no request has come yet."""
        return self.cycle is None and not self._is_over

    @property
    def _is_at_work(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _start_header_timer(self) -> None:
        self._head_timer = self.loop.call_later(self._limits.header_seconds_max, self._on_headers_missed)

    def _stop_header_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_headers_missed(self) -> None:
        if self._head_bytes:
            self._refuse(HeadersTooSlow(f"the headers did not arrive within {self._limits.header_seconds_max:g} s"))
        else:
            self.transport.close()

    def _too_large(self) -> HeadersTooLarge:
        return HeadersTooLarge(f"the headers are over {self._limits.header_bytes_max:,} bytes")

    def _refuse(self, error: HoldfastError) -> None:
        if self._is_at_work:  # an earlier request of this connection; its response would get mixed up with this one
            self._is_over = True
            self.transport.abort()
            return
        self.server_state.keep_dated(self.loop.time())
        response = problems.response(error, "")
        headers = [*self.server_state.default_headers, *response.raw_headers, (b"connection", b"close")]
        lines = [name + b": " + value + b"\r\n" for name, value in headers]
        self.transport.write(b"".join([STATUS_LINE[response.status_code], *lines, b"\r\n", bytes(response.body)]))
        self._hang_up()

    def _hang_up(self) -> None:
        """Close, but a moment later: a client that is still sending would not hear what was said last."""
        self._is_over = True
        self._unset_keepalive_if_required()
        self._stop_header_timer()
        self.transport.write_eof()
        self._head_timer = self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    # -- what is sent

    def shutdown(self) -> None:
        super().shutdown()
        self._cut_if_unread()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._cut_if_unread()

    def _cut_if_unread(self) -> None:
        """A connection that is to be closed waits for its client to read the rest, but not forever."""
        if self._send_timer is None and self.transport.is_closing() and self.transport.get_write_buffer_size():
            self._send_timer = self.loop.call_later(self._limits.send_seconds_max, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._send_timer is None:
            self._send_timer = self.loop.call_later(self._limits.send_seconds_max, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None
