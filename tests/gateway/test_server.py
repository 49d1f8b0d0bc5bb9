"""How a server stops: in order, whatever is under way."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from pathlib import Path

import pytest
from httpx2 import AsyncClient
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast import Holdfast, Pack
from holdfast.gateway.limits import Limits
from holdfast.gateway.listener import bind
from holdfast.gateway.server import HttpServer
from holdfast.gateway.wait_limit import WaitLimit
from holdfast.server import serve as serve_until_asked
from tests.gateway.conftest import PATIENCE_SECONDS, Launch, Serve

GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = b'{"input": {}}'
POST = b"POST /v1/workflows/p.waits/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


async def test_sigterm_answers_what_is_open_and_exits_with_zero(launch: Launch, tmp_path: Path) -> None:
    gateway = await launch("tests.gateway.packs", tmp_path / "home.db")
    port = int(gateway.url.rpartition(":")[2])
    run = (await gateway.http.post("/v1/workflows/p.waits/runs")).json()

    async with asyncio.timeout(PATIENCE_SECONDS), gateway.http.stream("GET", f"/v1/runs/{run['id']}/events") as stream:
        lines = stream.aiter_lines()
        while not (await anext(lines)).startswith("data:"):
            pass
        reader, writer = await at_work(port, POST + b"Content-Length: %d\r\n" % len(BODY))
        writer.write(BODY[:5])
        poll = f"GET /v1/runs/{run['id']}/result?wait=60s HTTP/1.1\r\nHost: localhost\r\n"
        poll_reader, poll_writer = await at_work(port, poll.encode())
        idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", port)
        idle_writer.write(GET)
        assert await idle_reader.readline() == b"HTTP/1.1 200 OK\r\n"

        gateway.process.terminate()

        async for _ in lines:
            pass  # the stream ends as a stream should, or this raises
        assert (await poll_reader.read()).startswith(b"HTTP/1.1 202 Accepted\r\n")
        await idle_reader.read()
        # A request is still at work. Meanwhile others are refused, and those who watch over the process are told why.
        for path, status in (("/readyz", 503), ("/livez", 200), ("/v1/runs", 503), ("/", 503)):
            async with AsyncClient(base_url=gateway.url) as client:
                said = await client.get(path)
            assert (said.status_code, said.headers["connection"]) == (status, "close"), path
            if path == "/readyz":
                assert said.json()["parts"] == {"gateway": "closing", "store": "ok", "worker": "ok"}
            if path == "/v1/runs":
                assert (said.json()["code"], said.headers["retry-after"]) == ("too_busy", "1")

        writer.write(BODY[5:])
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 201 Created\r\n")
        assert b"\r\nconnection: close\r\n" in answer
        assert await gateway.ended() == 0
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        for each in (writer, poll_writer, idle_writer):
            each.close()


async def at_work(port: int, head: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection whose request is being handled: the server asks for its body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head + b"Expect: 100-continue\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    return reader, writer


async def hang(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.Event().wait()


async def test_what_does_not_end_in_time_is_cut_without_an_outcry(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    server = HttpServer(WaitLimit(1), limits=Limits(drain_seconds_max=0.05))
    url = await server.start(hang, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(GET)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not server._state.tasks:
            await asyncio.sleep(0.001)
        await server.stop()
        with contextlib.suppress(ConnectionResetError):  # it may be told in either way
            assert await reader.read() == b""
    assert not server._state.tasks
    assert not server._state.connections
    assert [record.getMessage() for record in caplog.records] == []
    writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET /livez HT", GET], ids=["nothing", "half a request", "a request before"])
async def test_a_connection_with_nothing_under_way_is_closed_at_once(serve: Serve, sent: bytes) -> None:
    gateway = await serve(limits=Limits(drain_seconds_max=3600, header_seconds_max=3600, idle_seconds_max=3600))
    async with asyncio.timeout(PATIENCE_SECONDS):
        reader, writer = await asyncio.open_connection(*gateway.address)
        writer.write(sent)
        if sent == GET:
            await reader.readuntil(b'{"status":"ok"}')
        else:
            while [each._head_bytes for each in gateway.server._state.connections] != [len(sent)]:
                await asyncio.sleep(0.001)
        await gateway.server.stop()
        assert await reader.read() == b""
        writer.close()


async def test_a_long_poll_answers_when_the_server_stops(serve: Serve) -> None:
    from tests.gateway.packs import pack

    gateway = await serve(pack, limits=Limits(drain_seconds_max=3600))
    run = (await gateway.http.post("/v1/workflows/p.waits/runs")).json()
    poll = asyncio.create_task(gateway.http.get(f"/v1/runs/{run['id']}/result?wait=60s"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not gateway.context.wait_limit.taken:
            await asyncio.sleep(0.001)
        await gateway.server.stop()
        answer = await poll
    assert (answer.status_code, answer.headers["connection"]) == (202, "close")
    assert answer.json()["id"] == run["id"]


async def test_every_answer_is_dated_and_names_no_server(serve: Serve) -> None:
    gateway = await serve()
    for path in ("/livez", "/nowhere"):
        answer = await gateway.http.get(path)
        assert "date" in answer.headers
        assert "server" not in answer.headers


async def test_head_answers_as_get_does_without_the_body(serve: Serve) -> None:
    gateway = await serve(Pack("p"))
    for path in ("/livez", "/v1/runs", "/openapi.json", "/v1/runs/nobody"):
        got, head = await gateway.http.get(path), await gateway.http.head(path)
        assert (head.status_code, head.headers["content-type"]) == (got.status_code, got.headers["content-type"])
        assert head.content == b""
    refused = await gateway.http.head("/v1/hooks/some-token")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


async def test_a_connection_that_was_just_made_is_told_that_we_stop() -> None:
    server = HttpServer(WaitLimit(1))
    url = await server.start(hang, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not server._state.connections:
            await asyncio.sleep(0)
        stopping = asyncio.create_task(server.stop())
        while not server._state.draining:
            await asyncio.sleep(0)
        writer.write(b"GET /v1/runs HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await reader.readline() == b"HTTP/1.1 503 Service Unavailable\r\n"
        await stopping
    writer.close()


async def test_a_connection_that_is_made_while_the_last_request_ends_is_told_so_too() -> None:
    last = asyncio.Event()

    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        await last.wait()
        await Response("done")(scope, receive, send)

    server, listener = HttpServer(WaitLimit(1)), bind("127.0.0.1", 0)
    await server.start(waits, "127.0.0.1", 0, shared=listener.dup())
    async with asyncio.timeout(PATIENCE_SECONDS):
        first, first_writer = await asyncio.open_connection(*listener.getsockname())
        first_writer.write(GET)
        while not server._state.tasks:
            await asyncio.sleep(0)
        stopping = asyncio.create_task(server.stop())
        late, late_writer = await asyncio.open_connection(*listener.getsockname())
        while len(server._state.connections) < 2:
            await asyncio.sleep(0)
        last.set()
        assert await first.readline() == b"HTTP/1.1 200 OK\r\n"
        await first.read()  # this one is closed
        while server._listening is not None or len(server._state.connections) > 1:
            await asyncio.sleep(0)
        late_writer.write(b"GET /v1/runs HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await late.readline() == b"HTTP/1.1 503 Service Unavailable\r\n"
        await stopping
    for each in (first_writer, late_writer, listener):
        each.close()


async def test_a_connection_by_which_nothing_comes_holds_up_no_stop() -> None:
    server = HttpServer(WaitLimit(1))
    url = await server.start(hang, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not server._state.connections:
            await asyncio.sleep(0)
        await server.stop()
        assert await reader.read() == b""
    writer.close()


async def test_the_collector_passes_over_what_was_there_before_the_server_only_while_it_serves() -> None:
    ready = asyncio.Event()
    async with Holdfast("memory://", packs=[Pack("p")]) as hf:
        serving = asyncio.create_task(serve_until_asked(hf, port=0, on_ready=lambda _: ready.set()))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await ready.wait()
        passed_over = gc.get_freeze_count()
        serving.cancel()
        await asyncio.wait([serving])
        assert passed_over > 0
        assert gc.get_freeze_count() == 0
