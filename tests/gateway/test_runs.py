"""/v1/runs: finding runs, looking at them, and moving them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from holdfast.gateway.endpoints import GatewaySettings
from tests.gateway.conftest import Gateway, Serve
from tests.gateway.works import Works, entries, problem, settled, started
from tests.integration.conftest import Home, SqliteHome, eventually


async def _listed(gateway: Gateway, **query: Any) -> list[str]:
    answer = await gateway.http.get("/v1/runs", params=query)
    assert answer.status_code == 200, answer.text
    return [run["id"] for run in answer.json()["runs"]]


# -- finding


async def test_runs_are_found_by_all_that_is_known_about_them(serve: Serve, works: Works, home: Home) -> None:
    gateway = await serve(works.pack, on=home)

    async def start(workflow: str, key: str, attributes: dict[str, Any], **input: Any) -> dict[str, Any]:
        body = {"input": input, "key": key, "attributes": attributes}
        return (await gateway.http.post(f"/v1/workflows/{workflow}/runs", json=body)).json()

    due = {"at": "2026-01-02T00:00:00Z"}
    one = await start("plain", "a/1", {"customer": "ü", "total": 10, "paid": True, "due": due}, name="one")
    one = await settled(gateway, one)
    two = await start("day", "a/2", {"customer": "c-2", "total": 20.5}, name="two")
    three = await start("day", "b/3", {"total": 30}, name="three")
    a, b, c = one["id"], two["id"], three["id"]

    assert await _listed(gateway) == [c, b, a]
    assert await _listed(gateway, newest_first="false") == [a, b, c]
    assert await _listed(gateway, workflow="day") == await _listed(gateway, workflow="w.day") == [c, b]
    assert await _listed(gateway, workflow="w.unheard") == []
    assert await _listed(gateway, status="completed") == [a]
    live = ["pending", "running", "waiting"]
    assert await _listed(gateway, status=live) == [c, b]
    assert await _listed(gateway, key_prefix="a/") == [b, a]
    assert await _listed(gateway, created_after=two["created_at"]) == [c, b]
    assert await _listed(gateway, created_before=two["created_at"]) == [a]
    assert await _listed(gateway, finished_after=one["finished_at"]) == [a]
    assert await _listed(gateway, finished_before=one["finished_at"]) == []
    for wanted, found in (
        ({"customer": "ü"}, [a]),
        ({"paid": True}, [a]),
        ({"paid": 1}, []),
        ({"due": due}, [a]),
        ({"due": {"ge": due, "lt": {"at": "2026-01-03T00:00:00Z"}}}, [a]),
        ({"total": 20.5}, [b]),
        ({"total": {"gt": 10, "le": 30}}, [c, b]),
        ({"total": {"ge": 10}, "customer": "c-2"}, [b]),
        ({"nothing": "here"}, []),
    ):
        assert await _listed(gateway, attributes=json.dumps(wanted)) == found, wanted


async def test_a_run_shows_the_effect_that_runs_and_by_which_instance(gateway: Gateway, works: Works) -> None:
    works.ledger.hold("act:a")
    run = await started(gateway, "plain", name="a")
    await works.ledger.until_begun("act:a")
    [worker] = (await gateway.http.get("/v1/workers")).json()["workers"]
    shown = (await gateway.http.get(f"/v1/runs/{run['id']}")).json()
    listed = (await gateway.http.get("/v1/runs")).json()["runs"][0]
    told = (await gateway.http.get(f"/v1/runs/{run['id']}/explain")).json()
    assert worker["instance"] == gateway.hf.runtime.instance
    for each in (shown, listed, told):
        [wait] = each["waiting_on"]
        effect = wait["effect"]
        assert (wait["kind"], wait["step"], wait["instance"]) == ("running", "act#1", worker["instance"])
        assert (effect["name"], effect["attempt"], effect["timeout_ms"], effect["remote"], effect["lost"]) == (
            "w.act",
            1,
            None,
            False,
            False,
        )
        assert effect["since"] >= run["created_at"]
        assert wait["text"].startswith("effect act#1, attempt 1, running since ")
    works.ledger.let_go()
    assert (await settled(gateway, run))["waiting_on"] == []


async def test_pages_follow_each_other_whatever_happens_meanwhile(gateway: Gateway) -> None:
    ids = [(await started(gateway, "plain", name=f"{n}"))["id"] for n in range(5)]
    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = (await gateway.http.get("/v1/runs", params={"limit": 2, **after})).json()
        seen += [run["id"] for run in page["runs"]]
        await started(gateway, "plain", name="later")
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert seen == ids[::-1]


async def test_a_search_that_cannot_be_meant_is_refused(gateway: Gateway) -> None:
    for query in (
        "limit=0",
        "limit=1001",
        "limit=many",
        "status=finished",
        "after=here",
        "after=1",
        "newest_first=maybe",
        "created_after=yesterday",
        "created_after=2026-01-01T00:00:00",
        "colour=red",
        "limit=1&limit=2",
        f"key_prefix={'x' * 256}",
        "attributes={",
        "attributes=[]",
        'attributes={"a":[1]}',
        'attributes={"a":{}}',
        'attributes={"a":{"ge":1,"gt":2}}',
        'attributes={"a":{"ge":"text"}}',
        'attributes={"a":{"at":"2026-01-01T00:00:00Z","ge":1}}',
        'attributes={"a":null}',
        "attributes=" + '{"a":' * 2000,
    ):
        refused = await gateway.http.get(f"/v1/runs?{query}")
        assert refused.status_code == 400, f"{query[:80]}: {refused.text}"
    problem(await gateway.http.get("/v1/runs?workflow=unheard"), 404, "unknown_workflow")


async def test_a_run_that_nobody_knows_is_404_on_every_route(gateway: Gateway) -> None:
    gets = ("", "/input", "/journal", "/explain", "/receipt", "/result", "/events")
    posts: dict[str, Any] = {
        "/cancel": {},
        "/resume": None,
        "/retry": None,
        "/decide": {"step": "s", "not_performed": True},
        "/retry-now": {},
        "/fork": {"at": "s"},
        "/signal": {"hook": "h"},
        "/release-key": {},
    }
    for rubbish in ("nobody", "%00", "..%2F..", "x" * 5000, "%FF", "ü", "%20", "'; DROP TABLE runs"):
        for what in gets:
            answer = await gateway.http.get(f"/v1/runs/{rubbish}{what}")
            assert answer.status_code == 404, f"{rubbish}{what}: {answer.text}"
        for what, body in posts.items():
            answer = (
                await gateway.http.post(f"/v1/runs/{rubbish}{what}", json=body)
                if body is not None
                else (await gateway.http.post(f"/v1/runs/{rubbish}{what}"))
            )
            assert answer.status_code == 404, f"{rubbish}{what}: {answer.text}"


# -- looking


async def test_a_run_shows_what_it_was_given_what_it_did_and_its_story(gateway: Gateway) -> None:
    run = await started(gateway, "order", order="o/1 ü", lines=[1])
    run = await settled(gateway, run)
    assert (run["status"], run["waiting_on"], run["next_actions"]) == ("completed", [], ["fork", "release_key"])
    path = f"/v1/runs/{run['id']}"
    assert (await gateway.http.get(f"{path}/input")).json() == {"order": "o/1 ü", "lines": [1]}
    journal = (await gateway.http.get(f"{path}/journal")).json()
    assert journal["first"] == 0
    assert [entry["what"] for entry in journal["entries"]] == ["started", "performed", "performed", "completed"]
    story = (await gateway.http.get(f"{path}/explain")).json()
    assert (story["run_id"], len(story["lines"])) == (run["id"], 4)
    receipt = (await gateway.http.get(f"{path}/receipt")).json()
    assert receipt["outcome"] == "completed_first"


async def test_a_journal_that_began_anew_says_where_it_begins(serve: Serve, works: Works, home: Home) -> None:
    gateway = await serve(works.pack, on=home)
    run = await started(gateway, "entity", name="a")
    for _ in range(2):
        await gateway.http.post(f"/v1/runs/{run['id']}/signal", json={"hook": "go"})

    async def third_generation() -> dict[str, Any] | None:
        journal = (await gateway.http.get(f"/v1/runs/{run['id']}/journal")).json()
        return journal if journal["entries"][0].get("generation") == 2 else None

    journal = await eventually(third_generation)
    assert journal["first"] > 0
    assert journal["entries"][0]["what"] == "continued"
    assert (await gateway.http.get(f"/v1/runs/{run['id']}/input")).json() == {"name": "a", "generation": 2}


async def test_runs_of_workflows_that_this_gateway_has_no_code_for(
    serve: Serve, works: Works, sqlite_home: SqliteHome
) -> None:
    """They are found, looked at and cancelled all the same."""
    async with sqlite_home.holdfast(works.pack, worker=False) as elsewhere:
        run = (await elsewhere.start(works.order("o-1"))).run
    gateway = await serve(on=sqlite_home, worker=False)
    assert await _listed(gateway) == [run.id]
    assert (await gateway.http.get(f"/v1/runs/{run.id}/input")).json() == {"order": "o-1", "lines": None}
    assert (await gateway.http.get("/v1/workflows/w.order/holder?key=order:o-1")).json()["id"] == run.id
    cancelled = await gateway.http.post(f"/v1/runs/{run.id}/cancel", json={"reason": "nobody does it"})
    assert (cancelled.status_code, cancelled.json()["outcome"]) == (200, "no_effects")
    assert (await gateway.http.get(f"/v1/runs/{run.id}")).json()["status"] == "cancelled"


# -- cancel, resume


async def _undoing(gateway: Gateway, works: Works, **deadline: Any) -> dict[str, Any]:
    """A run that is being cancelled: what it took is not put back before the ledger lets go."""
    works.ledger.hold("act:o-1", "put back:stock-o-1")
    run = await started(gateway, "order", order="o-1")
    await works.ledger.until_begun("act:o-1")
    body = {"reason": "changed my mind", **deadline}
    asked = await gateway.http.post(f"/v1/runs/{run['id']}/cancel?wait=0s", json=body)
    assert (asked.status_code, asked.json()["id"]) == (202, run["id"])
    assert asked.headers["location"] == f"/v1/runs/{run['id']}/receipt"
    assert asked.headers["retry-after"] == "1"
    await works.ledger.until_begun("put back:stock-o-1")
    return run


async def test_a_cancellation_answers_with_its_receipt(serve: Serve, works: Works, home: Home) -> None:
    gateway = await serve(works.pack, on=home)
    run = await _undoing(gateway, works)
    path = f"/v1/runs/{run['id']}"
    problem(await gateway.http.get(f"{path}/receipt"), 409, "not_allowed_now")
    cancelling = asyncio.create_task(gateway.http.post(f"{path}/cancel", json={"reason": "once more"}))
    await eventually(lambda: gateway.context.wait_limit.taken == 1)
    works.ledger.let_go()
    receipt = (await cancelling).json()
    assert (receipt["outcome"], receipt["reason"], receipt["stopped"]) == ("unknown", "changed my mind", False)
    lefts = {left["key"]: left["state"] for left in receipt["effects"]}
    assert lefts == {"act:stock-o-1": "undone", "act:o-1": "unknown"}
    assert (await gateway.http.get(f"{path}/receipt")).json() == receipt
    again = await gateway.http.post(f"{path}/cancel")
    assert (again.status_code, again.json()) == (200, receipt)


async def test_a_cancellation_that_takes_longer_goes_on_without_the_request(
    serve: Serve, works: Works, sqlite_home: SqliteHome
) -> None:
    settings = GatewaySettings(require_keys=False, wait_seconds_max=0.05)
    gateway = await serve(works.pack, on=sqlite_home, settings=settings)
    run = await _undoing(gateway, works, deadline="1d")
    assert (await gateway.http.post(f"/v1/runs/{run['id']}/cancel", json={"deadline": "1d"})).status_code == 202
    works.ledger.let_go()

    async def has_ended() -> bool:
        return (await gateway.http.get(f"/v1/runs/{run['id']}/receipt")).status_code == 200

    await eventually(has_ended)


async def test_a_cancellation_is_durable_even_if_the_gateway_is_closing(gateway: Gateway, works: Works) -> None:
    works.ledger.hold("act:o-1", "put back:stock-o-1")
    run = await started(gateway, "order", order="o-1")
    await works.ledger.until_begun("act:o-1")
    gateway.context.wait_limit.close()
    assert (await gateway.http.post(f"/v1/runs/{run['id']}/cancel")).status_code == 202
    await works.ledger.until_begun("put back:stock-o-1")
    works.ledger.let_go()


async def test_when_the_deadline_has_passed_the_run_is_stopped_and_the_receipt_says_so(
    gateway: Gateway, works: Works
) -> None:
    run = await _undoing(gateway, works, deadline=0.05)
    receipt = (await gateway.http.post(f"/v1/runs/{run['id']}/cancel")).json()
    assert (receipt["stopped"], receipt["outcome"]) == (True, "unknown")
    works.ledger.let_go()


async def test_a_cancelled_run_is_resumed_if_nothing_was_done_about_it(gateway: Gateway) -> None:
    run = await started(gateway, "ask", order="o-1")
    problem(await gateway.http.post(f"/v1/runs/{run['id']}/resume"), 409, "not_allowed_now")
    await gateway.http.post(f"/v1/runs/{run['id']}/cancel")
    resumed = await gateway.http.post(f"/v1/runs/{run['id']}/resume")
    assert (resumed.status_code, resumed.json()["finished_at"]) == (200, None)
    await gateway.http.post("/v1/hooks/approve/o-1", json=True)
    await gateway.http.post(f"/v1/runs/{run['id']}/signal", json={"hook": "more", "payload": 1})
    result = await gateway.http.get(f"/v1/runs/{run['id']}/result?wait=30s")
    assert result.json() == {"result": [True, 1]}


# -- retry, fork, release


async def test_a_failed_run_is_tried_again(gateway: Gateway) -> None:
    run = await started(gateway, "fail", message="no")
    assert (await settled(gateway, run))["status"] == "failed"
    retried = await gateway.http.post(f"/v1/runs/{run['id']}/retry")
    assert (retried.status_code, retried.json()["id"]) == (200, run["id"])
    assert (await settled(gateway, run))["status"] == "failed"
    assert "retried" in [entry["what"] for entry in await entries(gateway, run)]
    done = await started(gateway, "plain", name="a")
    await settled(gateway, done)
    problem(await gateway.http.post(f"/v1/runs/{done['id']}/retry"), 409, "not_allowed_now")


async def test_a_run_is_forked_from_a_step(gateway: Gateway, works: Works) -> None:
    run = await started(gateway, "order", order="o-1")
    await settled(gateway, run)
    [_, first, second, _] = await entries(gateway, run)
    fork = await gateway.http.post(f"/v1/runs/{run['id']}/fork", json={"at": second["step"]})
    assert (fork.status_code, fork.json()["key"]) == (201, "order:o-1")
    assert fork.headers["location"] == f"/v1/runs/{fork.json()['id']}"
    assert (await settled(gateway, fork.json()))["status"] == "completed"
    assert works.ledger.begun == {"act:stock-o-1": 1, "act:o-1": 2}
    assert (await gateway.http.get(f"/v1/runs/{run['id']}")).json()["holds_key"] is False
    other = await gateway.http.post(f"/v1/runs/{run['id']}/fork", json={"at": first["step"], "key": "other"})
    assert (other.status_code, other.json()["key"]) == (201, "other")
    assert (await gateway.http.post(f"/v1/runs/{run['id']}/fork", json={"at": "nowhere"})).status_code in {400, 409}


async def test_a_fork_cannot_take_the_key_of_a_run_that_lives(gateway: Gateway, works: Works) -> None:
    works.ledger.hold("act:o-1")
    run = await started(gateway, "order", order="o-1")
    await works.ledger.until_begun("act:o-1")
    [_, first] = await entries(gateway, run)
    problem(await gateway.http.post(f"/v1/runs/{run['id']}/fork", json={"at": first["step"]}), 409, "not_allowed_now")
    works.ledger.let_go()


async def test_a_key_is_released_by_those_who_may(serve: Serve, works: Works, sqlite_home: SqliteHome) -> None:
    gateway = await serve(works.pack, on=sqlite_home, keys=True)
    writer, admin = await gateway.client(scope="write"), await gateway.client(scope="admin")
    run = (await writer.post("/v1/workflows/order/runs?wait=30s", json={"input": {"order": "o-1"}})).json()
    path = f"/v1/runs/{run['id']}/release-key"
    problem(await writer.post(path, json={}), 403, "not_permitted")
    released = await admin.post(path, json={"reason": "by hand"})
    assert (released.status_code, released.json()["holds_key"]) == (200, False)
    again = await writer.post("/v1/workflows/order/runs", json={"input": {"order": "o-1"}})
    assert again.status_code == 201


async def test_a_move_that_cannot_be_meant_is_refused(gateway: Gateway) -> None:
    run = await started(gateway, "day", name="a")
    moves: list[tuple[str, Any]] = [
        ("cancel", {"deadline": "soon"}),
        ("cancel", {"deadline": -1}),
        ("cancel", {"reason": 1}),
        ("cancel", {"reason": "x" * 1001}),
        ("cancel", {"why": "x"}),
        ("cancel", []),
        ("cancel?wait=61s", {}),
        ("fork", {}),
        ("fork", {"at": ""}),
        ("fork", {"at": 1}),
        ("fork", {"at": "x", "key": "x" * 256}),
        ("decide", {}),
        ("decide", {"step": "s"}),
        ("decide", {"step": "s", "failed": "x", "not_performed": True}),
        ("retry-now", {"step": ""}),
        ("retry-now", {"step": 1}),
        ("retry-now", {"reason": "x" * 1001}),
        ("retry-now", {"at": "s"}),
        ("signal", {}),
        ("signal", {"hook": ""}),
        ("signal", {"hook": "h", "dedupe": ""}),
        ("signal", {"hook": "h", "payload": 1, "more": 1}),
        ("release-key", {"reason": ["x"]}),
        ("resume", {}),  # takes no body
        ("retry", {}),
    ]
    for path, body in moves:
        refused = await gateway.http.post(f"/v1/runs/{run['id']}/{path}", json=body)
        assert refused.status_code == 400, f"{path} {body}: {refused.text}"
    assert (await gateway.http.get(f"/v1/runs/{run['id']}")).json()["finished_at"] is None
