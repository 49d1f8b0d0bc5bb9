"""POST /v1/workflows/{name}/runs: once per key, whatever is repeated."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.events import RunAdmitted
from holdfast.gateway.endpoints import GatewaySettings
from tests.gateway.conftest import Gateway, Serve
from tests.gateway.works import LARGE, Works, entries, problem, settled, started
from tests.integration.conftest import SqliteHome, eventually, heard


async def test_a_run_is_started_and_says_where_it_is(gateway: Gateway) -> None:
    answer = await gateway.http.post("/v1/workflows/w.plain/runs", json={"input": {"name": "a"}})
    run = answer.json()
    assert (answer.status_code, run["workflow"], run["key"], run["holds_key"]) == (201, "w.plain", None, False)
    assert answer.headers["location"] == f"/v1/runs/{run['id']}"
    assert "idempotency-replayed" not in answer.headers
    again = await gateway.http.get(answer.headers["location"])
    assert again.json()["id"] == run["id"]


async def test_two_starts_without_a_key_are_two_runs(gateway: Gateway) -> None:
    ids = {(await started(gateway, "plain", name="a"))["id"] for _ in range(2)}
    assert len(ids) == 2


async def test_the_key_of_the_workflow_makes_a_second_start_the_same_run(gateway: Gateway, works: Works) -> None:
    works.ledger.hold("act:o-1")
    run = await started(gateway, "order", order="o-1")
    assert run["key"] == "order:o-1"
    again = await gateway.http.post("/v1/workflows/order/runs", json={"input": {"order": "o-1"}})
    assert (again.status_code, again.json()["id"]) == (200, run["id"])
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["location"] == f"/v1/runs/{run['id']}"
    works.ledger.let_go()
    assert (await settled(gateway, run))["status"] == "completed"
    late = await gateway.http.post("/v1/workflows/order/runs", json={"input": {"order": "o-1"}})
    assert (late.status_code, late.json()["id"], late.json()["status"]) == (200, run["id"], "completed")
    assert works.ledger.most() == 1


async def test_the_same_key_with_another_input_is_refused(gateway: Gateway) -> None:
    run = await started(gateway, "order", order="o-1")
    other = await gateway.http.post("/v1/workflows/order/runs", json={"input": {"order": "o-1", "lines": [2]}})
    assert problem(other, 422, "input_mismatch")["run_id"] == run["id"]


async def test_whoever_does_not_want_to_join_is_told_to_come_back(gateway: Gateway, works: Works) -> None:
    works.ledger.hold("act:o-1")
    run = await started(gateway, "order", order="o-1")
    url = "/v1/workflows/order/runs?join=false"
    refused = await gateway.http.post(url, json={"input": {"order": "o-1"}})
    assert problem(refused, 409, "in_flight")["run_id"] == run["id"]
    assert refused.headers["retry-after"] == "1"
    other = await gateway.http.post(url, json={"input": {"order": "o-1", "lines": [2]}})
    problem(other, 422, "input_mismatch")
    works.ledger.let_go()
    await settled(gateway, run)
    done = await gateway.http.post(url, json={"input": {"order": "o-1"}})
    assert (done.status_code, done.json()["status"]) == (200, "completed")


async def test_a_signal_is_not_delivered_to_a_run_that_is_not_to_be_joined(gateway: Gateway) -> None:
    run = await started(gateway, "ask", order="o-1")
    body = {"input": {"order": "o-1"}, "signal": {"hook": "more", "payload": 1}}
    problem(await gateway.http.post("/v1/workflows/ask/runs?join=false", json=body), 409, "in_flight")
    assert "received" not in [entry["what"] for entry in await entries(gateway, run)]


# -- Idempotency-Key


async def test_an_idempotency_key_is_the_key_of_a_run_that_has_no_other(gateway: Gateway, works: Works) -> None:
    async def post(**more: Any) -> Any:
        body = {"input": {"name": "a"}} | more
        return await gateway.http.post("/v1/workflows/plain/runs", json=body, headers={"Idempotency-Key": "4f-1"})

    first, again, other = await post(), await post(), await post(input={"name": "b"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert first.json()["key"] == "idem:local:4f-1"
    assert again.headers["idempotency-replayed"] == "true"
    problem(other, 422, "input_mismatch")


@pytest.mark.parametrize("named", [{"key": "k-1"}, {"request_id": "r-1"}])
async def test_beside_a_key_it_names_the_request_so_that_a_lost_reply_is_given_again(
    gateway: Gateway, named: dict[str, Any]
) -> None:
    async def post(header: str) -> Any:
        body, headers = {"input": {"name": "a"}} | named, {"Idempotency-Key": header}
        return await gateway.http.post("/v1/workflows/plain/runs", json=body, headers=headers)

    first, again = await post("4f-1"), await post("4f-1")
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["id"] == again.json()["id"]
    assert [reply.headers.get("idempotency-replayed") for reply in (first, again)] == [None, "true"]
    assert first.json()["key"] == named.get("key")
    if "key" in named:
        another = await post("4f-2")
        assert (another.status_code, another.json()["id"]) == (200, first.json()["id"])


async def test_an_idempotency_key_that_cannot_be_kept_is_refused(gateway: Gateway) -> None:
    for values in [""], ["x" * 201], ["tab\tbed"], ["ü"], ["a", "b"]:
        headers = [("Idempotency-Key", value.encode()) for value in values]
        answer = await gateway.http.post("/v1/workflows/plain/runs", json={"input": {"name": "a"}}, headers=headers)
        problem(answer, 400, "malformed_request")
    assert heard(gateway.hf).all(RunAdmitted) == []


@pytest.mark.parametrize("length", [200, 255])
async def test_the_longest_names_of_a_request_can_be_kept(gateway: Gateway, length: int) -> None:
    header = {"Idempotency-Key": "x" * 200}
    body = {"input": {"name": "a"}} | ({} if length == 200 else {"request_id": "é" * length})
    first = await gateway.http.post("/v1/workflows/plain/runs", json=body, headers=header)
    again = await gateway.http.post("/v1/workflows/plain/runs", json=body, headers=header)
    assert first.status_code == 201, first.text
    assert first.json()["id"] == again.json()["id"]


async def test_many_at_once_with_one_key_start_one_run(gateway: Gateway, works: Works) -> None:
    async def post() -> Any:
        return await gateway.http.post("/v1/workflows/order/runs?wait=30s", json={"input": {"order": "o-1"}})

    replies = await asyncio.gather(*(post() for _ in range(30)))
    assert sorted(reply.status_code for reply in replies) == [200] * 29 + [201]
    assert len({reply.json()["id"] for reply in replies}) == 1
    assert {reply.json()["result"]["taken"] for reply in replies} == {"act:stock-o-1"}
    assert works.ledger.most() == 1


# -- what else a start may say


async def test_all_that_a_start_may_say_is_kept(gateway: Gateway, works: Works) -> None:
    body = {
        "input": {"name": "a"},
        "key": "k/ü 1",
        "attributes": {"customer": "c-1", "total": 12.5, "paid": True, "due": {"at": "2026-01-01T00:00:00Z"}},
        "retention": "2h",
        "delay": 3600,
        "priority": 7,
    }
    run = (await gateway.http.post("/v1/workflows/plain/runs", json=body)).json()
    assert (run["key"], run["priority"], run["status"]) == ("k/ü 1", 7, "pending")
    assert run["attributes"] == body["attributes"]
    [row] = await gateway.hf._replica._ports.store.runs([run["id"]])
    assert row.retention_ms == 7_200_000
    assert row.wake_at_ms == row.created_at_ms + 3_600_000


async def test_the_trace_that_causes_a_start_is_kept(gateway: Gateway) -> None:
    header = f"00-{'a' * 32}-{'b' * 16}-01"
    for value in (header, "rubbish"):
        answer = await gateway.http.post(
            "/v1/workflows/plain/runs", json={"input": {"name": "a"}}, headers={"traceparent": value}
        )
        assert answer.status_code == 201
        known = answer.json()["attributes"].get("holdfast.traceparent")
        assert known == (header if value == header else None)


async def test_a_run_is_replaced_by_its_successor(gateway: Gateway, works: Works) -> None:
    works.ledger.hold("act:o-1")
    run = await started(gateway, "order", order="o-1")
    body = {"input": {"order": "o-1", "lines": [2]}, "replace": run["id"]}
    successor = await gateway.http.post("/v1/workflows/order/runs", json=body)
    assert (successor.status_code, successor.json()["key"]) == (201, "order:o-1")
    assert (await settled(gateway, run))["status"] == "cancelled"
    works.ledger.let_go()  # not before: an effect that returns at that moment may complete the run first
    third = {"input": {"order": "o-1", "lines": [3]}, "replace": run["id"]}
    overtaken = problem(await gateway.http.post("/v1/workflows/order/runs", json=third), 409, "overtaken")
    assert overtaken["run_id"] == successor.json()["id"]
    nobody = await gateway.http.post("/v1/workflows/order/runs", json=body | {"replace": "nobody"})
    problem(nobody, 404, "unknown_run")


async def test_a_signal_travels_with_the_start_and_once_per_request(gateway: Gateway) -> None:
    body = {"input": {"order": "o-1"}, "signal": {"hook": "approval", "payload": True}}
    run = (await gateway.http.post("/v1/workflows/ask/runs", json=body)).json()
    body["signal"] = {"hook": "more", "payload": {"n": [1, None]}}
    for _ in range(3):  # the reply was lost, twice
        told = await gateway.http.post("/v1/workflows/ask/runs", json=body, headers={"Idempotency-Key": "s-1"})
        assert (told.status_code, told.json()["id"]) == (200, run["id"])
    result = await gateway.http.get(f"/v1/runs/{run['id']}/result?wait=30s")
    assert result.json() == {"result": [True, {"n": [1, None]}]}
    assert [entry["what"] for entry in await entries(gateway, run)].count("received") == 2


# -- waiting


async def test_a_start_may_wait_for_the_result(gateway: Gateway) -> None:
    answer = await gateway.http.post("/v1/workflows/plain/runs?wait=30s", json={"input": {"name": "a"}})
    run = answer.json()
    assert (answer.status_code, run["status"], run["result"]) == (201, "completed", "act:a")
    assert "error" not in run


async def test_a_start_that_waited_says_how_the_run_ended(gateway: Gateway) -> None:
    failed = await gateway.http.post("/v1/workflows/fail/runs?wait=30s", json={"input": {"message": "no"}})
    assert (failed.status_code, failed.json()["status"]) == (201, "failed")
    assert failed.json()["error"] == {"type": "ValueError", "message": "no", "line": "works.py:66"}
    blocked = await gateway.http.post("/v1/workflows/stand_still/runs?wait=30", json={})
    assert (blocked.json()["status"], blocked.json()["error"]["type"]) == ("blocked", "waits_for_nothing")


async def test_a_start_waits_no_longer_than_it_is_told(gateway: Gateway, works: Works) -> None:
    works.ledger.hold("act:a")
    answer = await gateway.http.post("/v1/workflows/plain/runs?wait=20ms", json={"input": {"name": "a"}})
    assert (answer.status_code, answer.json()["status"]) == (201, "running")
    assert "result" not in answer.json()
    works.ledger.let_go()


async def test_a_start_that_waits_is_answered_when_the_run_is_cancelled(gateway: Gateway) -> None:
    waiting = asyncio.create_task(gateway.http.post("/v1/workflows/day/runs?wait=30s", json={"input": {"name": "a"}}))
    holder = await eventually(lambda: _holder(gateway, "day", "day:a"))
    await gateway.http.post(f"/v1/runs/{holder['id']}/cancel")
    answer = (await waiting).json()
    assert answer["status"] == "cancelled"
    assert not {"result", "error"} & answer.keys()


async def _holder(gateway: Gateway, workflow: str, key: str) -> dict[str, Any] | None:
    answer = await gateway.http.get(f"/v1/workflows/{workflow}/holder", params={"key": key})
    return answer.json() if answer.status_code == 200 else None


async def test_if_nobody_else_can_wait_nothing_is_started(serve: Serve, works: Works, sqlite_home: SqliteHome) -> None:
    gateway = await serve(works.pack, on=sqlite_home, settings=GatewaySettings(require_keys=False, waiting_max=1))
    works.ledger.hold("act:a")
    url, body = "/v1/workflows/plain/runs?wait=30s", {"input": {"name": "a"}}
    waiting = asyncio.create_task(gateway.http.post(url, json=body))
    await works.ledger.until_begun("act:a")
    refused = await gateway.http.post(url, json=body)
    problem(refused, 503, "too_busy")
    assert refused.headers["retry-after"] == "1"
    assert len(heard(gateway.hf).all(RunAdmitted)) == 1
    works.ledger.let_go()
    assert (await waiting).json()["result"] == "act:a"
    assert gateway.context.wait_limit.taken == 0


async def test_whoever_hangs_up_gives_their_place_back_and_the_run_goes_on(gateway: Gateway, works: Works) -> None:
    works.ledger.hold("act:a")
    waiting = asyncio.create_task(
        gateway.http.post("/v1/workflows/plain/runs?wait=30s", json={"input": {"name": "a"}, "key": "k"})
    )
    await works.ledger.until_begun("act:a")
    waiting.cancel()
    await eventually(lambda: gateway.context.wait_limit.taken == 0)
    works.ledger.let_go()
    run = (await gateway.http.get("/v1/workflows/plain/holder?key=k")).json()
    assert (await settled(gateway, run))["status"] == "completed"


async def test_a_large_input_and_a_large_result_pass(gateway: Gateway) -> None:
    body = {"input": {"size": LARGE, "text": "ü" * LARGE}}
    answer = await gateway.http.post("/v1/workflows/large/runs?wait=30s", json=body)
    assert answer.json()["result"] == "é" * LARGE
    kept = await gateway.http.get(f"/v1/runs/{answer.json()['id']}/input")
    assert kept.json() == body["input"]


# -- what is refused


async def test_a_workflow_that_nobody_knows_cannot_be_started(gateway: Gateway) -> None:
    problem(await gateway.http.post("/v1/workflows/unheard/runs", json={}), 404, "unknown_workflow")


async def test_an_input_that_does_not_fit_is_refused_with_what_is_wrong(gateway: Gateway) -> None:
    for given, what in (
        ({}, "`name`"),
        ({"name": 1}, "$.name"),
        ({"name": "a", "more": 1}, "'more'"),
        ([], "array"),
        (None, "null"),
        ("name", "str"),
    ):
        refused = await gateway.http.post("/v1/workflows/plain/runs", json={"input": given})
        assert what in problem(refused, 422, "input_refused")["detail"]
    assert heard(gateway.hf).all(RunAdmitted) == []


CANNOT_BE_MEANT: list[Any] = [
    {"key": ""},
    {"key": "x" * 256},
    {"key": 1},
    {"colour": "red"},
    {"attributes": {"a": [1]}},
    {"attributes": {"holdfast.parent": "p"}},
    {"attributes": {"due": {"at": "2026-01-01"}}},
    {"attributes": {f"a{n}": n for n in range(33)}},
    {"retention": "soon"},
    {"delay": -1},
    {"delay": "1e3s"},
    {"priority": 1.5},
    {"priority": 2_000_000},
    {"signal": {"payload": 1}},
    {"signal": {"hook": "h"}},  # there is no key to send it to
    {"replace": 7},
    [],
    "text",
]


async def test_a_start_that_cannot_be_meant_is_refused(gateway: Gateway) -> None:
    for body in CANNOT_BE_MEANT:
        whole = {"input": {"name": "a"}} | body if isinstance(body, dict) else body
        refused = await gateway.http.post("/v1/workflows/plain/runs", json=whole)
        assert refused.status_code == 400, f"{body}: {refused.text}"
    for query in ("wait=soon", "wait=-1", "wait=61s", "wait=2m", "wait=nan", "wait=1&wait=2", "join=perhaps", "x=1"):
        refused = await gateway.http.post(f"/v1/workflows/plain/runs?{query}", json={"input": {"name": "a"}})
        problem(refused, 400, "malformed_request")
    assert heard(gateway.hf).all(RunAdmitted) == []


DEEP = b"[" * 100_000 + b"]" * 100_000


async def test_a_body_that_is_no_good_json_starts_nothing(gateway: Gateway) -> None:
    for data in (
        b"{",
        b"\x00",
        b'{"input": {"name": "\xff"}}',
        b'{"input": {"name": "\\ud800"}}',
        b'{"input": {"name": NaN}}',
        b'{"input": {"name": ' + DEEP + b"}}",
        b'{"input": {"name": "a"}, "signal": {"hook": "h", "payload": ' + DEEP + b"}}",
        b'{"input": {"order": "a"}, "signal": {"hook": "h", "payload": "\\ud800"}}',
        b'{"key": "\\ud800"}',
    ):
        refused = await gateway.http.post(
            "/v1/workflows/plain/runs", content=data, headers={"Content-Type": "application/json"}
        )
        assert refused.status_code in {400, 422}, f"{data[:80]!r}: {refused.text}"
    assert heard(gateway.hf).all(RunAdmitted) == []
