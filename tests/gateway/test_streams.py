"""GET /v1/runs/{id}/events: what happens to a run, as it happens; nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import aclosing
from typing import Any

from holdfast.gateway.endpoints import GatewaySettings
from tests.gateway.conftest import PATIENCE_SECONDS, Gateway, Serve
from tests.gateway.works import Heard, Works, listening, problem, settled, started
from tests.integration.conftest import Home, SqliteHome, eventually


async def _journal(gateway: Gateway, run: dict[str, Any]) -> list[tuple[int, Any]]:
    shown = (await gateway.http.get(f"/v1/runs/{run['id']}/journal")).json()
    return list(enumerate(shown["entries"], shown["first"]))


async def _all(gateway: Gateway, run: dict[str, Any], **where: Any) -> list[Heard]:
    async with listening(gateway.http, run["id"], **where) as events:
        return [event async for event in events]


def _told(events: list[Heard]) -> list[tuple[int | None, Any]]:
    return [(event.id, json.loads(event.text)) for event in events]


async def test_a_stream_is_the_journal_and_ends_with_the_run(serve: Serve, works: Works, home: Home) -> None:
    gateway = await serve(works.pack, on=home)
    works.ledger.hold("act:o-1")
    run = await started(gateway, "order", order="o-1")
    following = asyncio.create_task(_all(gateway, run))
    await works.ledger.until_begun("act:o-1")
    works.ledger.let_go()
    *events, end = await following
    assert _told(events) == await _journal(gateway, run)
    assert [event.event for event in events] == [entry["what"] for _, entry in _told(events)]
    assert (end.event, end.id, json.loads(end.text)["status"]) == ("end", None, "completed")
    assert json.loads(end.text) == (await gateway.http.get(f"/v1/runs/{run['id']}")).json()
    assert gateway.context.wait_limit.taken == 0


async def test_events_come_as_they_happen(serve: Serve, works: Works, home: Home) -> None:
    """The next signal is sent when the last one was told: nobody polls."""
    gateway = await serve(works.pack, on=home)
    run = await started(gateway, "entity", name="a")
    async with listening(gateway.http, run["id"]) as events:
        assert (await anext(events)).event == "started"
        for generation in range(3):
            await gateway.http.post(f"/v1/runs/{run['id']}/signal", json={"hook": "go", "payload": generation})
            assert (await anext(events)).event in {"received", "continued"}
        assert [event.event async for event in events][-2:] == ["completed", "end"]


async def test_whoever_comes_back_goes_on_behind_the_last_that_they_saw(gateway: Gateway) -> None:
    run = await started(gateway, "order", order="o-1")
    await settled(gateway, run)
    whole = await _journal(gateway, run)
    for cursor, _ in whole:
        assert _told(await _all(gateway, run, after=cursor))[:-1] == whole[cursor + 1 :]
        assert _told(await _all(gateway, run, query=f"?after={cursor}"))[:-1] == whole[cursor + 1 :]
    # A browser repeats its URL when it comes back: what it has seen since counts more.
    assert _told(await _all(gateway, run, after=2, query="?after=0"))[:-1] == whole[3:]
    assert [event.event for event in await _all(gateway, run, after=1_000_000)] == ["end"]


async def test_any_replica_tells_the_same(serve: Serve, works: Works, sqlite_home: SqliteHome) -> None:
    """A reader that goes from one gateway to another with each event, while the run goes on in a third."""
    replicas = [await serve(on=sqlite_home, worker=False) for _ in range(2)]
    home = await serve(works.pack, on=sqlite_home)
    works.ledger.hold("act:stock-o-1", "act:o-1")
    run = await started(home, "order", order="o-1")
    seen: list[tuple[int | None, Any]] = []
    for n in range(4):
        after = seen[-1][0] if seen else None
        async with listening(replicas[n % 2].http, run["id"], after=after) as events:
            seen += _told([await anext(events)])
        works.ledger.let_go(["act:stock-o-1", "act:o-1"][min(n, 1)])
    assert seen == await _journal(home, run)


async def test_a_stream_beats_while_nothing_happens(serve: Serve, works: Works, sqlite_home: SqliteHome) -> None:
    settings = GatewaySettings(require_keys=False, heartbeat_seconds=0.02)
    gateway = await serve(works.pack, on=sqlite_home, settings=settings)
    run = await started(gateway, "day", name="a")
    beats = 0
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        gateway.http.stream("GET", f"/v1/runs/{run['id']}/events") as response,
        aclosing(response.aiter_lines()) as lines,
    ):
        assert response.headers["cache-control"] == "no-store"
        assert await anext(lines) == "retry: 1000"
        async for line in lines:
            beats += line.startswith(":")
            if beats == 3:
                break


async def test_a_gateway_that_closes_ends_its_streams_without_an_end(gateway: Gateway) -> None:
    run = await started(gateway, "day", name="a")
    async with listening(gateway.http, run["id"]) as events:
        assert (await anext(events)).event == "started"
        gateway.context.wait_limit.close()
        assert [event async for event in events] == []  # so the reader comes back, to another replica
    assert gateway.context.wait_limit.taken == 0


async def test_whoever_follows_for_long_has_to_show_their_key_again(
    serve: Serve, works: Works, sqlite_home: SqliteHome
) -> None:
    settings = GatewaySettings(require_keys=True, stream_seconds_max=2.0)  # in that time the first event is read
    gateway = await serve(works.pack, on=sqlite_home, keys=True, settings=settings)
    writer = await gateway.client(scope="write")
    run = (await writer.post("/v1/workflows/day/runs", json={"input": {"name": "a"}})).json()
    token, key = await gateway.hf.api_keys.create("reader", namespace=gateway.hf.namespace, scope="read")
    reader = await gateway.client(token=token)
    async with listening(reader, run["id"]) as events:
        assert (await anext(events)).event == "started"
        await gateway.hf.api_keys.revoke(gateway.hf.namespace, key.id)
        assert [event async for event in events] == []
    problem(await reader.get(f"/v1/runs/{run['id']}/events"), 401, "not_authenticated")


async def test_a_reader_that_goes_away_leaves_nothing_behind(gateway: Gateway) -> None:
    run = await started(gateway, "day", name="a")
    async with listening(gateway.http, run["id"]) as events:
        assert (await anext(events)).event == "started"
        assert gateway.context.wait_limit.taken == 1
    await eventually(lambda: gateway.context.wait_limit.taken == 0)
    await eventually(lambda: not gateway.hf._replica.subscriptions._following)


async def test_a_reader_that_does_not_read_holds_up_nobody_else(gateway: Gateway) -> None:
    run = await started(gateway, "entity", name="a")
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect(gateway.address)
    slow.sendall(f"GET /v1/runs/{run['id']}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    await eventually(lambda: gateway.context.wait_limit.taken == 1)

    def is_held_up() -> bool:
        return any(connection.flow.write_paused for connection in gateway.server._state.connections)

    for n in range(100):  # until no buffer on the way takes more
        if is_held_up():
            break
        payload = {"n": n, "text": "x" * 250_000}
        await gateway.http.post(f"/v1/runs/{run['id']}/signal", json={"hook": "other", "payload": payload})
    assert is_held_up()
    async with listening(gateway.http, run["id"]) as events:
        assert (await anext(events)).event == "started"
    await gateway.http.post(f"/v1/runs/{run['id']}/cancel")
    assert (await _all(gateway, run))[-1].event == "end"
    assert is_held_up()
    slow.close()
    await eventually(lambda: gateway.context.wait_limit.taken == 0)


async def test_a_cursor_that_is_none_is_refused(gateway: Gateway) -> None:
    run = await started(gateway, "plain", name="a")
    for cursor in ("x", "-1", "1.5", "9" * 19, "\u0661"):
        headers = [("Last-Event-ID", cursor.encode())]
        problem(await gateway.http.get(f"/v1/runs/{run['id']}/events", headers=headers), 400, "malformed_request")
    for query in ("?after=x", "?after=-1", "?after=1&after=2", "?cursor=1"):
        problem(await gateway.http.get(f"/v1/runs/{run['id']}/events{query}"), 400, "malformed_request")
    assert gateway.context.wait_limit.taken == 0
