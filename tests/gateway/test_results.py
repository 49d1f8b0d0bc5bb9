"""GET /v1/runs/{id}/result: what came of it, as soon as it is there."""

from __future__ import annotations

import asyncio

from holdfast.gateway.endpoints import GatewaySettings
from tests.gateway.conftest import Gateway, Serve
from tests.gateway.works import LARGE, Works, problem, settled, started
from tests.integration.conftest import Home, SqliteHome, eventually


async def test_a_result_is_there_when_the_run_has_completed(gateway: Gateway) -> None:
    run = await started(gateway, "order", order="o-1", lines=[1, 2])
    answer = await gateway.http.get(f"/v1/runs/{run['id']}/result?wait=30s")
    assert answer.status_code == 200
    assert answer.json() == {"result": {"taken": "act:stock-o-1", "acted": "act:o-1", "lines": [1, 2]}}
    assert (await gateway.http.get(f"/v1/runs/{run['id']}/result")).json() == answer.json()


async def test_while_it_goes_on_the_answer_is_the_run(gateway: Gateway, works: Works) -> None:
    works.ledger.hold("act:a")
    run = await started(gateway, "plain", name="a")
    for wait in ("", "?wait=10ms", "?wait=0"):
        answer = await gateway.http.get(f"/v1/runs/{run['id']}/result{wait}")
        assert (answer.status_code, answer.json()["id"]) == (202, run["id"])
        assert answer.headers["retry-after"] == "1"
    works.ledger.let_go()


async def test_whoever_waits_is_answered_as_soon_as_it_ends(serve: Serve, works: Works, home: Home) -> None:
    gateway = await serve(works.pack, on=home)
    works.ledger.hold("act:a")
    run = await started(gateway, "plain", name="a")
    polls = [asyncio.create_task(gateway.http.get(f"/v1/runs/{run['id']}/result?wait=30s")) for _ in range(3)]
    await eventually(lambda: gateway.context.wait_limit.taken == 3)
    works.ledger.let_go()
    assert [(await poll).json() for poll in polls] == [{"result": "act:a"}] * 3
    assert gateway.context.wait_limit.taken == 0


async def test_a_poll_is_answered_by_a_run_that_ends_in_another_process(
    serve: Serve, works: Works, sqlite_home: SqliteHome
) -> None:
    """The gateway has no worker; it hears of the end by the store."""
    gateway = await serve(works.pack, on=sqlite_home, worker=False)
    run = await started(gateway, "plain", name="a")
    assert run["waiting_on"][0]["kind"] == "no_worker"
    poll = asyncio.create_task(gateway.http.get(f"/v1/runs/{run['id']}/result?wait=30s"))
    await eventually(lambda: gateway.context.wait_limit.taken == 1)
    async with sqlite_home.holdfast(works.pack):
        assert (await poll).json() == {"result": "act:a"}


async def test_how_a_run_ended_is_told_as_a_problem(gateway: Gateway) -> None:
    failed = await started(gateway, "fail", message="no")
    told = problem(await gateway.http.get(f"/v1/runs/{failed['id']}/result?wait=30s"), 409, "run_failed")
    assert (told["run_id"], told["error"]) == (
        failed["id"],
        {"type": "ValueError", "message": "no", "line": "works.py:66"},
    )

    cancelled = await started(gateway, "day", name="a")
    await gateway.http.post(f"/v1/runs/{cancelled['id']}/cancel")
    told = problem(await gateway.http.get(f"/v1/runs/{cancelled['id']}/result"), 409, "run_cancelled")
    assert told["run_id"] == cancelled["id"]

    blocked = await started(gateway, "stand_still")
    assert (await settled(gateway, blocked))["status"] == "blocked"
    problem(await gateway.http.get(f"/v1/runs/{blocked['id']}/result"), 409, "waits_for_nothing")


async def test_a_large_result_comes_whole(gateway: Gateway) -> None:
    run = await started(gateway, "large", size=LARGE)
    assert (await gateway.http.get(f"/v1/runs/{run['id']}/result?wait=30s")).json() == {"result": "é" * LARGE}


async def test_the_result_of_a_workflow_that_this_gateway_does_not_know(
    serve: Serve, works: Works, sqlite_home: SqliteHome
) -> None:
    async with sqlite_home.holdfast(works.pack) as elsewhere:
        run = (await elsewhere.start(works.order("o-1"))).run
        gateway = await serve(on=sqlite_home, worker=False)
        answer = await gateway.http.get(f"/v1/runs/{run.id}/result?wait=30s")
        assert answer.json()["result"]["acted"] == "act:o-1"


async def test_a_gateway_that_closes_answers_whoever_waits(gateway: Gateway, works: Works) -> None:
    works.ledger.hold("act:a")
    run = await started(gateway, "plain", name="a")
    poll = asyncio.create_task(gateway.http.get(f"/v1/runs/{run['id']}/result?wait=60s"))
    await eventually(lambda: gateway.context.wait_limit.taken == 1)
    gateway.context.wait_limit.close()
    assert (await poll).status_code == 202
    works.ledger.let_go()


async def test_there_are_only_so_many_places(serve: Serve, works: Works, sqlite_home: SqliteHome) -> None:
    gateway = await serve(works.pack, on=sqlite_home, settings=GatewaySettings(require_keys=False, waiting_max=1))
    run = await started(gateway, "day", name="a")
    poll = asyncio.create_task(gateway.http.get(f"/v1/runs/{run['id']}/result?wait=30s"))
    await eventually(lambda: gateway.context.wait_limit.taken == 1)
    refused = await gateway.http.get(f"/v1/runs/{run['id']}/result?wait=30s")
    problem(refused, 503, "too_busy")
    stream = await gateway.http.get(f"/v1/runs/{run['id']}/events")
    problem(stream, 503, "too_busy")
    assert (await gateway.http.get(f"/v1/runs/{run['id']}/result")).status_code == 202  # it does not wait
    poll.cancel()
    await eventually(lambda: gateway.context.wait_limit.taken == 0)


async def test_nobody_waits_longer_than_the_gateway_lets_them(gateway: Gateway) -> None:
    run = await started(gateway, "plain", name="a")
    for wait in ("61s", "1d", "soon", "-1s", "", "1e9", "9999999999s"):
        refused = await gateway.http.get(f"/v1/runs/{run['id']}/result", params={"wait": wait})
        problem(refused, 400, "malformed_request")


async def test_a_run_that_nobody_knows_has_no_result(gateway: Gateway) -> None:
    problem(await gateway.http.get("/v1/runs/nobody/result?wait=1s"), 404, "unknown_run")
