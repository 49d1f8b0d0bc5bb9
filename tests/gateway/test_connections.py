"""What a connection may do, spoken over a socket of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
import pytest
from starlette.types import Receive, Scope, Send

from holdfast.gateway.limits import Limits
from holdfast.gateway.server import HttpServer
from holdfast.gateway.wait_limit import WaitLimit
from tests.gateway.conftest import PATIENCE_SECONDS, Gateway, Serve
from tests.gateway.packs import pack

GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
PATIENT = Limits(header_seconds_max=3600, idle_seconds_max=3600, send_seconds_max=3600)  # so that size alone is tested
HURRIED = Limits(header_seconds_max=0.2, idle_seconds_max=3600, send_seconds_max=3600)


class Line:
    """A connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next response."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await self._reader.readexactly(int(headers["content-length"]))
        return int(head[0].split()[1]), headers, body

    async def problem(self) -> tuple[int, str]:
        """The status and the code of a problem, behind which the connection is closed."""
        status, headers, body = await self.answer()
        assert headers["content-type"] == "application/problem+json"
        assert headers["connection"] == "close"
        assert "date" in headers
        assert await self.rest() == b""
        return status, msgspec.json.decode(body)["code"]

    async def rest(self) -> bytes:
        """All that comes until the other side hangs up."""
        return await self._reader.read()


@asynccontextmanager
async def line_to(gateway: Gateway) -> AsyncGenerator[Line]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        reader, writer = await asyncio.open_connection(*gateway.address)
        try:
            yield Line(reader, writer)
        finally:
            writer.close()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Big: " + b"x" * 33_000 + b"\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"X-Many: 0123456789\r\n" * 2_000 + b"\r\n",
        b"GET /livez?" + b"q" * 33_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nX-Endless: " + b"x" * 40_000,
        b"GET /" + b"x" * 40_000,
    ],
    ids=["one large header", "many headers", "a long query", "a header without end", "a path without end"],
)
async def test_headers_over_the_limit_are_refused(serve: Serve, head: bytes) -> None:
    gateway = await serve(limits=PATIENT)
    async with line_to(gateway) as line:
        await line.send(head)
        assert await line.problem() == (431, "headers_too_large")


async def test_headers_without_end_behind_a_request_at_work_are_not_collected(serve: Serve) -> None:
    gateway = await serve(pack, limits=PATIENT)
    run = (await gateway.http.post("/v1/workflows/p.waits/runs")).json()
    async with line_to(gateway) as line:
        await line.send(f"GET /v1/runs/{run['id']}/result?wait=60s HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError):  # it may be told in either way
            await line.send(b"GET / HTTP/1.1\r\nX-Endless: ")
            while True:
                await line.send(b"x" * 40_000)


async def test_trailers_without_end_are_not_collected(serve: Serve) -> None:
    gateway = await serve(pack, limits=PATIENT)
    for trailer in (b"X-Many: 0123456789\r\n" * 2_000, b"X-Endless: " + b"x" * 40_000):
        async with line_to(gateway) as line:
            await line.send(b"POST /v1/workflows/p.waits/runs HTTP/1.1\r\nHost: localhost\r\n")
            await line.send(b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
            with contextlib.suppress(ConnectionError):
                while True:
                    await line.send(trailer)


async def test_a_trailer_is_no_header(serve: Serve) -> None:
    gateway = await serve(pack, keys=True, limits=PATIENT)
    token, _ = await gateway.hf.api_keys.create("test", namespace="default", scope="admin")
    async with line_to(gateway) as line:
        await line.send(b"POST /v1/workflows/p.waits/runs HTTP/1.1\r\nHost: localhost\r\n")
        await line.send(b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
        await line.send(f"0\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        assert (await line.answer())[0] == 401
        await line.send(GET)
        assert (await line.answer())[0] == 200


async def test_headers_below_the_limit_and_a_body_above_it_are_fine(serve: Serve) -> None:
    gateway = await serve(limits=PATIENT)
    async with line_to(gateway) as line:
        head = b"POST /v1/api-keys HTTP/1.1\r\nHost: localhost\r\nX-Big: " + b"x" * 30_000 + b"\r\n"
        await line.send(head + b"Content-Length: 100000\r\n\r\n" + b" " * 100_000)
        assert (await line.answer())[0] == 415  # its body has no media type, but it was read
        await line.send(GET)
        assert (await line.answer())[0] == 200


async def test_a_request_that_is_answered_before_it_has_come_is_the_last_of_its_connection(serve: Serve) -> None:
    gateway = await serve(limits=PATIENT)
    async with line_to(gateway) as line:
        await line.send(b"POST /v1/api-keys HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\n")
        for _ in range(32):
            await line.send(b"x" * 50_000)
        assert (await line.answer())[0] == 413
        assert await line.rest() == b""  # what comes late is neither a request nor the headers of one


@pytest.mark.parametrize("head", [b"G", b"GET /livez HTTP/1.1\r\n", GET[:-1]], ids=["a byte", "a line", "all but one"])
async def test_headers_that_do_not_come_in_time_are_refused(serve: Serve, head: bytes) -> None:
    gateway = await serve(limits=HURRIED)
    async with line_to(gateway) as line:
        await line.send(head)
        assert await line.problem() == (408, "too_slow")


async def test_headers_that_trickle_in_are_refused_however_steadily_they_come(serve: Serve) -> None:
    gateway = await serve(limits=HURRIED)
    async with line_to(gateway) as line:
        await line.send(b"GET /livez HTTP/1.1\r\n")
        answer = asyncio.create_task(line.problem())
        while not answer.done():
            await line.send(b"X-Slow: 1\r\n")
            await asyncio.wait([answer], timeout=0.01)
        assert answer.result() == (408, "too_slow")


async def test_a_second_request_has_the_same_time_for_its_headers(serve: Serve) -> None:
    gateway = await serve(limits=HURRIED)
    async with line_to(gateway) as line:
        await line.send(GET)
        assert (await line.answer())[0] == 200
        await line.send(GET[:-1])
        assert await line.problem() == (408, "too_slow")


async def test_empty_lines_do_not_keep_a_connection_alive(serve: Serve) -> None:
    gateway = await serve(limits=HURRIED)
    async with line_to(gateway) as line:
        await line.send(GET)
        assert (await line.answer())[0] == 200
        await line.send(b"\r\n")
        assert await line.problem() == (408, "too_slow")


async def test_a_connection_that_sends_nothing_is_closed(serve: Serve) -> None:
    gateway = await serve(limits=HURRIED)
    async with line_to(gateway) as line:
        assert await line.rest() == b""


async def test_a_connection_that_stays_idle_after_a_request_is_closed(serve: Serve) -> None:
    gateway = await serve(limits=Limits(header_seconds_max=3600, idle_seconds_max=0))
    async with line_to(gateway) as line:
        await line.send(GET)
        assert (await line.answer())[0] == 200
        assert await line.rest() == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"hello\r\n\r\n",
        b"GET /livez SPDY/9\r\n\r\n",
        b"GET /liv\xc3\xa9z HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost : x\r\n\r\n",
    ],
    ids=["TLS", "a word", "another version", "a path beyond ASCII", "no length", "two lengths", "a space in a name"],
)
async def test_what_is_not_http_is_refused(serve: Serve, sent: bytes) -> None:
    gateway = await serve(limits=PATIENT)
    async with line_to(gateway) as line:
        await line.send(sent)
        assert await line.problem() == (400, "not_http")


async def test_one_connection_too_many_is_told_to_come_back(serve: Serve) -> None:
    gateway = await serve(limits=Limits(connections_max=2))
    async with line_to(gateway) as first, line_to(gateway) as second:
        for line in (first, second):
            await line.send(GET)
            assert (await line.answer())[0] == 200
        async with line_to(gateway) as third:
            await third.send(GET)
            status, headers, _ = await third.answer()
            assert (status, headers["retry-after"]) == (503, "1")
            assert await third.rest() == b""
        await first.send(GET)
        assert (await first.answer())[0] == 200


async def test_several_requests_at_once_on_one_connection_are_answered_in_order(serve: Serve) -> None:
    gateway = await serve()
    async with line_to(gateway) as line:
        await line.send(GET + GET.replace(b"/livez", b"/nowhere") + GET)
        assert [(await line.answer())[0] for _ in range(3)] == [200, 404, 200]


async def test_an_offer_of_http_2_is_ignored_and_the_body_is_read(serve: Serve) -> None:
    # The HTTP client of Java makes this offer with its first request.
    gateway = await serve()
    async with line_to(gateway) as line:
        offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n"
        await line.send(b"POST /v1/api-keys HTTP/1.1\r\nHost: localhost\r\n" + offer)
        await line.send(
            b"Content-Type: application/json\r\nContent-Length: 30\r\n\r\n" + b'{"name": "java", "scope": 1}  '
        )
        status, _, body = await line.answer()
        assert status == 400
        assert b"scope" in body, body
        await line.send(GET)
        assert (await line.answer())[0] == 200


async def test_nothing_of_a_body_is_read_before_the_caller_is_known(serve: Serve) -> None:
    gateway = await serve(keys=True)
    async with line_to(gateway) as line:
        await line.send(b"POST /v1/api-keys HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
        assert (await line.answer())[0] == 401  # though no byte of the body has been sent


async def test_who_does_not_read_what_is_sent_is_cut_off() -> None:
    ended = asyncio.Event()

    async def flood(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await _now(receive)) is None:
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        ended.set()

    server = HttpServer(WaitLimit(1), limits=Limits(send_seconds_max=0.2))
    url = await server.start(flood, "127.0.0.1", 0)
    port = int(url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as deaf:
        deaf.sendall(GET)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await ended.wait()
    await server.stop()


async def test_what_was_answered_but_not_read_does_not_keep_a_connection_open() -> None:
    lost = asyncio.Event()

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        body = b"x" * 16 * 1024 * 1024
        headers = [(b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    server = HttpServer(WaitLimit(1), limits=Limits(send_seconds_max=0.2))
    server._state.lost = lost
    url = await server.start(large, "127.0.0.1", 0)
    port = int(url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as deaf:
        deaf.sendall(GET)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await lost.wait()
    await server.stop()


async def _now(receive: Receive) -> str | None:
    """The next message, if it is a disconnect that is there already."""
    try:
        async with asyncio.timeout(0.001):
            while (message := await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        return None
    return message["type"]


async def test_no_part_of_an_answer_waits_for_the_one_before_to_be_confirmed(serve: Serve) -> None:
    gateway = await serve()
    async with line_to(gateway) as line:
        await line.send(GET)
        assert (await line.answer())[0] == 200
        [connection] = gateway.server._state.connections
        sock = connection.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_who_is_refused_hears_why_even_if_they_go_on_sending(serve: Serve) -> None:
    gateway = await serve(limits=PATIENT)
    async with line_to(gateway) as line:
        await line.send(b"GET /livez HTTP/1.1\r\nX-Endless: ")
        for _ in range(64):
            await line.send(b"x" * 65536)
        assert await line.problem() == (431, "headers_too_large")


@pytest.mark.parametrize("way", ["idle", "stop"])
async def test_a_client_that_reads_nothing_more_is_cut_off_however_little_it_left(serve: Serve, way: str) -> None:
    """A few bytes are enough to keep a connection that is to be closed waiting for its client."""
    gateway = await serve(limits=Limits(idle_seconds_max=1, send_seconds_max=0.3, drain_seconds_max=10.0))
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.setblocking(False)
    loop = asyncio.get_running_loop()
    connections = gateway.server._state.connections
    async with asyncio.timeout(PATIENCE_SECONDS):
        before = set(connections)
        await loop.sock_connect(deaf, gateway.address)
        while not (mine := set(connections) - before):
            await asyncio.sleep(0.01)
        [connection] = mine
        request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
        while not connection.transport.get_write_buffer_size():
            await loop.sock_sendall(deaf, request)
            await asyncio.sleep(0.01)
        if way == "stop":
            await gateway.server.stop()
        while connection in connections:
            await asyncio.sleep(0.01)
    deaf.close()
