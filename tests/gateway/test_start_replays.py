"""An Idempotency-Key beside a business key: it names one request, whose repetitions are marked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest

from holdfast.errors import StoreUnavailable
from holdfast.events import RequestReplayed, RunAdmitted
from holdfast.kernel.documents import Writing
from holdfast.kernel.start_requests import KIND, RETENTION_MS
from holdfast.ports.store import Store
from tests.builders import FakeClock
from tests.gateway.conftest import Gateway, Serve
from tests.gateway.works import Works, entries, problem, settled, started
from tests.integration.conftest import Home, SqliteHome, heard


async def post(
    http: httpx2.AsyncClient | Gateway, workflow: str = "order", *, header: str = "4f-1", query: str = "", **body: Any
) -> httpx2.Response:
    client = http.http if isinstance(http, Gateway) else http
    return await client.post(f"/v1/workflows/{workflow}/runs{query}", json=body, headers={"Idempotency-Key": header})


def seen(reply: httpx2.Response) -> tuple[int, str, str | None]:
    return reply.status_code, reply.json()["id"], reply.headers.get("idempotency-replayed")


def order(order: str = "o-1", **more: Any) -> dict[str, Any]:
    return {"input": {"order": order, **more}}


async def test_a_repetition_is_the_first_response_again_and_is_marked(gateway: Gateway) -> None:
    first, again = await post(gateway, **order()), await post(gateway, **order())
    assert seen(first) == (201, first.json()["id"], None)
    assert seen(again) == (201, first.json()["id"], "true")
    assert again.headers["location"] == first.headers["location"]
    assert [(event.method, event.path, event.status) for event in heard(gateway.hf).all(RequestReplayed)] == [
        ("POST", "/v1/workflows/order/runs", 201)
    ]
    assert len(heard(gateway.hf).all(RunAdmitted)) == 1


@pytest.mark.parametrize(
    "other",
    [
        order("o-2"),
        order(lines=[2]),
        order() | {"key": "another"},
        order() | {"delay": "1h"},
        order() | {"attributes": {"customer": "c-1"}},
        order() | {"request_id": "r-1"},
    ],
    ids=str,
)
async def test_another_body_under_the_same_header_is_refused_and_starts_nothing(
    gateway: Gateway, other: dict[str, Any]
) -> None:
    await post(gateway, **order())
    refused = problem(await post(gateway, **other), 422, "request_mismatch")
    assert "Take a new key" in refused["hint"]
    assert len(heard(gateway.hf).all(RunAdmitted)) == 1


async def test_another_workflow_under_the_same_header_is_refused(gateway: Gateway) -> None:
    await post(gateway, **order())
    problem(await post(gateway, "ask", **order()), 422, "request_mismatch")
    assert len(heard(gateway.hf).all(RunAdmitted)) == 1


async def test_the_order_of_fields_white_space_and_the_wait_make_no_other_request(gateway: Gateway) -> None:
    headers = {"Idempotency-Key": "4f-1", "Content-Type": "application/json"}
    url = "/v1/workflows/order/runs"
    replies = [
        await gateway.http.post(address, content=text, headers=headers)
        for address, text in (
            (url, b'{"input": {"order": "o-1", "lines": [1]}, "priority": 1}'),
            (url, b'{ "priority":1, "input": { "lines": [1],\n"order":"o-1"}}'),
            (f"{url}?wait=30s", b'{"input": {"order": "o-1", "lines": [1]}, "priority": 1}'),
        )
    ]
    assert [seen(reply)[::2] for reply in replies] == [(201, None), (201, "true"), (201, "true")]
    assert replies[2].json()["result"]["lines"] == [1]
    problem(await gateway.http.post(f"{url}?join=false", content=b"{}", headers=headers), 422, "input_refused")


async def test_a_request_that_joined_is_replayed_as_one_that_joined(gateway: Gateway, works: Works) -> None:
    works.ledger.hold("act:o-1")
    run = await started(gateway, "order", order="o-1")
    replies = [await post(gateway, **order()) for _ in range(2)]
    assert {seen(reply) for reply in replies} == {(200, run["id"], "true")}
    assert len(heard(gateway.hf).all(RequestReplayed)) == 1
    works.ledger.let_go()


async def test_a_repetition_returns_its_run_though_another_has_the_key_by_now(gateway: Gateway) -> None:
    first = await post(gateway, "day", input={"name": "a"})
    body = {"input": {"name": "a"}, "replace": first.json()["id"]}
    successor = await gateway.http.post("/v1/workflows/day/runs", json=body)
    assert successor.status_code == 201
    again = await post(gateway, "day", input={"name": "a"})
    assert seen(again) == (201, first.json()["id"], "true")
    assert (await settled(gateway, again.json()))["status"] == "cancelled"


async def test_a_replacement_is_repeated_without_replacing_again(gateway: Gateway) -> None:
    run = await started(gateway, "day", name="a")
    replies = [await post(gateway, "day", input={"name": "a"}, replace=run["id"]) for _ in range(3)]
    assert len({reply.json()["id"] for reply in replies}) == 1
    assert [seen(reply)[::2] for reply in replies] == [(201, None), (201, "true"), (201, "true")]


async def test_a_repetition_delivers_no_second_signal(gateway: Gateway) -> None:
    body = {"input": {"order": "o-1"}, "signal": {"hook": "approval", "payload": True}}
    replies = [await post(gateway, "ask", **body) for _ in range(3)]
    assert [seen(reply)[::2] for reply in replies] == [(201, None), (201, "true"), (201, "true")]
    assert [entry["what"] for entry in await entries(gateway, replies[0].json())].count("received") <= 1
    problem(await post(gateway, "ask", **body | {"signal": {"hook": "more"}}), 422, "request_mismatch")


async def test_a_start_that_was_refused_is_made_when_it_is_repeated_and_its_header_stays_its_own(
    gateway: Gateway, works: Works
) -> None:
    works.ledger.hold("act:o-1")
    run = await started(gateway, "order", order="o-1")
    problem(await post(gateway, query="?join=false", **order()), 409, "in_flight")
    problem(await post(gateway, query="?join=false", **order("o-2")), 422, "request_mismatch")
    works.ledger.let_go()
    await settled(gateway, run)
    assert seen(await post(gateway, query="?join=false", **order())) == (200, run["id"], "true")


async def test_an_input_that_does_not_fit_uses_no_header_up(gateway: Gateway) -> None:
    problem(await post(gateway, input={"order": 7}), 422, "input_refused")
    assert (await post(gateway, **order())).status_code == 201


async def test_two_callers_may_choose_the_same_header(serve: Serve, works: Works, sqlite_home: SqliteHome) -> None:
    gateway = await serve(works.pack, on=sqlite_home, keys=True)
    ada, bob = await gateway.client(scope="write"), await gateway.client(scope="write")
    first, other = await post(ada, **order("o-1")), await post(bob, **order("o-2"))
    assert {first.status_code, other.status_code} == {201}
    assert seen(await post(ada, **order("o-1"))) == (201, first.json()["id"], "true")
    assert seen(await post(bob, **order("o-2"))) == (201, other.json()["id"], "true")
    elsewhere = await gateway.client(scope="write", namespace="elsewhere")
    assert (await post(elsewhere, **order("o-1"))).headers.get("idempotency-replayed") is None


async def test_gateways_beside_each_other_and_after_a_restart_know_the_request(
    serve: Serve, works: Works, home: Home
) -> None:
    gateways = [await serve(works.pack, on=home), await serve(works.pack, on=home)]
    replies = await asyncio.gather(*(post(gateways[n % 2], **order()) for n in range(20)))
    assert {reply.status_code for reply in replies} == {201}
    [run_id] = {reply.json()["id"] for reply in replies}
    for gateway in (*gateways, await serve(works.pack, on=home)):
        assert seen(await post(gateway, **order())) == (201, run_id, "true")
        problem(await post(gateway, **order("o-2")), 422, "request_mismatch")
    await settled(gateways[0], replies[0].json())
    assert works.ledger.most() == 1


async def test_of_two_bodies_at_once_under_one_header_one_is_started(serve: Serve, works: Works, home: Home) -> None:
    gateways = [await serve(works.pack, on=home), await serve(works.pack, on=home)]
    for trial in range(10):
        replies = await asyncio.gather(
            *(post(gateways[n], header=f"h-{trial}", **order(f"{trial}-{n}")) for n in range(2))
        )
        assert sorted(reply.status_code for reply in replies) == [201, 422]


def forgetful(store: Store) -> Store:
    """A store that cannot keep what a header has led to."""
    write = store.write

    async def written(writings: Sequence[Writing]) -> list[bool]:
        if any(writing.document.kind == KIND and writing.replaces is not None for writing in writings):
            raise StoreUnavailable("not now")
        return await write(writings)

    store.write = written  # pyright: ignore[reportAttributeAccessIssue]
    return store


async def test_what_could_not_be_kept_is_found_by_the_request(serve: Serve, works: Works, home: Home) -> None:
    clock = home.clock = FakeClock()
    gateway = await serve(works.pack, on=home, through=forgetful, worker=False)
    first = await post(gateway, **order())
    assert seen(first) == (201, first.json()["id"], None)
    clock.advance(1)
    assert seen(await post(gateway, **order())) == (201, first.json()["id"], "true")
    problem(await post(gateway, **order("o-2")), 422, "request_mismatch")


async def test_after_a_day_the_header_is_free_and_a_repetition_is_still_the_same_run(
    serve: Serve, works: Works, home: Home
) -> None:
    clock = home.clock = FakeClock()
    gateway = await serve(works.pack, on=home, worker=False)
    first, kept = await post(gateway, **order()), await post(gateway, header="4f-2", **order("o-2"))
    clock.advance(RETENTION_MS - 1)
    problem(await post(gateway, **order("o-3")), 422, "request_mismatch")
    clock.advance(1)
    assert seen(await post(gateway, **order("o-3")))[::2] == (201, None)
    assert seen(await post(gateway, header="4f-2", **order("o-2"))) == (201, kept.json()["id"], "true")
    problem(await post(gateway, **order()), 422, "request_mismatch")
    assert (await post(gateway, header="4f-3", **order())).json()["id"] == first.json()["id"]


async def test_a_header_counts_no_longer_than_its_run_is_kept(serve: Serve, works: Works, home: Home) -> None:
    clock = home.clock = FakeClock()
    gateway = await serve(works.pack, on=home, worker=False)
    body = order() | {"retention": "1h"}
    first = await post(gateway, **body)
    assert (await gateway.http.post(f"{first.headers['location']}/cancel")).status_code == 200
    clock.advance(3_600_000)
    assert seen(await post(gateway, **body)) == (201, first.json()["id"], "true")
    await gateway.hf.runtime.store.prune(100)
    second = await post(gateway, **body)
    assert seen(second)[::2] == (201, None)
    assert second.json()["id"] != first.json()["id"]
    assert seen(await post(gateway, **body)) == (201, second.json()["id"], "true")
