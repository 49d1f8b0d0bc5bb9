"""GET /v1/workflows, /v1/workers, /v1/backlog: what can be started, who does it, and how much there is."""

from __future__ import annotations

import os

from tests.gateway.conftest import Gateway, Serve
from tests.gateway.works import Works, problem, settled, started
from tests.integration.conftest import Home, SqliteHome


async def test_workflows_show_what_they_take_and_return(gateway: Gateway) -> None:
    shown = {each["name"]: each for each in (await gateway.http.get("/v1/workflows")).json()["workflows"]}
    assert {"w.plain", "w.order", "w.ask", "w.fail"} <= shown.keys()
    order = shown["w.order"]
    assert (order["doc"], order["key"], order["queue"]) == ("Takes, and acts.", "order:{order}", "default")
    assert shown["w.plain"]["doc"] == "Without a key.\n\nIt acts, and says so."
    assert "order" in str(order["input_schema"])
    assert shown["w.plain"]["result_schema"] == {"type": "string"}
    for name in ("w.order", "order"):
        assert (await gateway.http.get(f"/v1/workflows/{name}")).json() == order


async def test_a_workflow_that_nobody_knows_is_not_shown(gateway: Gateway) -> None:
    for name in ("unheard", "w.unheard", "%00", "x" * 2000, "ü"):
        problem(await gateway.http.get(f"/v1/workflows/{name}"), 404, "unknown_workflow")


async def test_the_run_that_holds_a_key_is_found_whatever_the_key(gateway: Gateway) -> None:
    for key in ("plain", "with/slashes/", "ü 漢字 %2F", "..", "a\nb", "nul\0", "?&=#"):
        started = await gateway.http.post("/v1/workflows/plain/runs", json={"input": {"name": "a"}, "key": key})
        for name in ("plain", "w.plain"):
            answer = await gateway.http.get(f"/v1/workflows/{name}/holder", params={"key": key})
            assert (answer.status_code, answer.json()["id"]) == (200, started.json()["id"])


async def test_a_key_that_nobody_holds_leads_nowhere(gateway: Gateway) -> None:
    run = await started(gateway, "order", order="o-1")
    problem(await gateway.http.get("/v1/workflows/order/holder?key=order:o-2"), 404, "unknown_run")
    problem(await gateway.http.get("/v1/workflows/unheard/holder?key=k"), 404, "unknown_workflow")
    problem(await gateway.http.get("/v1/workflows/w.unheard/holder?key=k"), 404, "unknown_run")
    for query in ("", "?key=", f"?key={'x' * 256}", "?key=a&key=b", "?name=a"):
        problem(await gateway.http.get(f"/v1/workflows/order/holder{query}"), 400, "malformed_request")
    await settled(gateway, run)
    released = await gateway.http.post(f"/v1/runs/{run['id']}/release-key", json={"reason": "by hand"})
    assert (released.status_code, released.json()["holds_key"]) == (200, False)
    problem(await gateway.http.get("/v1/workflows/order/holder?key=order:o-1"), 404, "unknown_run")


async def test_live_workers_are_shown(serve: Serve, works: Works, home: Home) -> None:
    gateway = await serve(works.pack, on=home)
    [worker] = (await gateway.http.get("/v1/workers")).json()["workers"]
    assert worker["id"] == gateway.hf.runtime.owner
    assert worker["pid"] == os.getpid()
    assert "w.order" in worker["workflows"]
    assert worker["joined_at"] < worker["lease_until"]


async def test_the_backlog_counts_what_there_is_to_do(serve: Serve, works: Works, sqlite_home: SqliteHome) -> None:
    gateway = await serve(works.pack, on=sqlite_home, worker=False)
    assert (await gateway.http.get("/v1/workers")).json() == {"workers": []}
    for name in ("a", "b"):
        await started(gateway, "plain", name=name)
    backlog = (await gateway.http.get("/v1/backlog")).json()
    assert {status: count for status, count in backlog["statuses"].items() if count} == {"pending": 2}
    [depth] = backlog["depths"]
    assert (depth["workflow"], depth["queue"], depth["ready"]) == ("w.plain", "default", 2)
    assert depth["oldest_at"] is not None


async def test_other_methods_are_refused_with_those_that_there_are(gateway: Gateway) -> None:
    for method, path, allowed in (
        ("POST", "/v1/workflows", "GET, HEAD"),
        ("DELETE", "/v1/runs/some-run", "GET, HEAD"),
        ("GET", "/v1/hooks/token", "POST"),
        ("GET", "/v1/workflows/plain/runs", "POST"),
        ("PUT", "/v1/runs", "GET, HEAD"),
        ("OPTIONS", "/v1/runs/some-run/cancel", "POST"),
    ):
        answer = await gateway.http.request(method, path)
        problem(answer, 405, "no_such_method")
        assert answer.headers["allow"] == allowed
    head = await gateway.http.head("/v1/runs/some-run/cancel")
    assert (head.status_code, head.content) == (405, b"")
