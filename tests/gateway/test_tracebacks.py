"""Tracebacks over HTTP: for those who read journals, and not in what a program passes on to its own callers."""

from __future__ import annotations

from holdfast import Client
from tests.gateway.conftest import Gateway, Serve
from tests.gateway.works import Works, settled, started


async def test_who_may_read_sees_the_traceback_in_the_journal_and_in_the_story(serve: Serve, works: Works) -> None:
    gateway = await serve(works.pack, keys=True)
    run = await (await gateway.hf.start(works.fail("no"))).run.wait(timeout=30)
    reader = await gateway.client(scope="read")
    [*_, last] = (await reader.get(f"/v1/runs/{run.id}/explain")).json()["lines"]
    assert "raise ValueError(message)" in last["traceback"]
    [*_, entry] = (await reader.get(f"/v1/runs/{run.id}/journal")).json()["entries"]
    assert entry["error"]["traceback"] == last["traceback"]


async def test_who_may_not_read_sees_nothing(serve: Serve, works: Works) -> None:
    gateway = await serve(works.pack, keys=True)
    run = await (await gateway.hf.start(works.fail("no"))).run.wait(timeout=30)
    stranger = await gateway.client(scope="admin", namespace="elsewhere")
    for path in ("", "/explain", "/journal", "/events"):
        answer = await stranger.get(f"/v1/runs/{run.id}{path}")
        assert (answer.status_code, "raise" in answer.text) == (404, False)
    assert (await gateway.http.get(f"/v1/runs/{run.id}/explain")).status_code == 401


async def test_a_run_a_list_a_start_and_a_problem_say_the_line_and_no_more(gateway: Gateway) -> None:
    start = await gateway.http.post("/v1/workflows/fail/runs?wait=30s", json={"input": {"message": "no"}})
    path = f"/v1/runs/{start.json()['id']}"
    for answer in (start, *[await gateway.http.get(each) for each in (path, "/v1/runs", f"{path}/result")]):
        assert '"line":"works.py:' in answer.text
        assert "traceback" not in answer.text
        assert "raise ValueError" not in answer.text


async def test_a_client_explains_with_the_traceback(gateway: Gateway) -> None:
    run = await settled(gateway, await started(gateway, "fail", message="no"))
    async with Client(gateway.url) as client:
        story = await client.explain(run["id"])
    assert story == await gateway.hf.explain(run["id"])
    assert "raise ValueError(message)" in str(story)
