"""One namespace tries everything on the data of another: it is told that there is none.

Each endpoint has a case; an endpoint without one fails the first test. A case is what the stranger sends, and the
status that this must have. No answer may hold anything of ours but what the stranger has sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import httpx2
import pytest

from holdfast import Pack, Run, hook
from holdfast.gateway.app import ENDPOINTS
from holdfast.journal import Received
from holdfast.kernel import breakers, effect_limits
from tests.gateway.conftest import Gateway, Serve
from tests.integration.conftest import Home, eventually, owner_of

pack = Pack("garden")


@pack.workflow(key="flower:{name}")
async def bloom(name: str, secret: str) -> str:
    return f"{secret} {await hook('water', f'token-of-{name}')}"


@pack.effect(key="paint-of-{name}", remote=True)
async def paint(name: str, secret: str) -> str: ...


@pack.workflow
async def picture(name: str, secret: str) -> str:
    return await paint(name, secret)


class Ours(NamedTuple):
    """What the stranger must not see, and knows all the same."""

    runs: dict[str, str]  # by status
    key_id: str
    task: dict[str, Any]
    needles: frozenset[str]


class Case(NamedTuple):
    path: str
    status: int
    body: Any = None


def on_run(suffix: str, body: Any = None, *, run: str = "waiting") -> Callable[[Ours], Case]:
    return lambda ours: Case(f"/v1/runs/{ours.runs[run]}{suffix}", 404, body)


def fixed(path: str, status: int, body: Any = None) -> Callable[[Ours], Case]:
    return lambda ours: Case(path, status, body)


def on_task(suffix: str, body: dict[str, Any]) -> Callable[[Ours], Case]:
    return lambda ours: Case(f"/v1/tasks/{ours.task['id']}{suffix}", 404, {"fence": ours.task["fence"], **body})


WATER = {"hook": "water", "payload": "rain"}
CASES: dict[str, Callable[[Ours], Case]] = {
    "POST /v1/workflows/{name}/runs": lambda ours: Case(
        "/v1/workflows/garden.bloom/runs",
        404,
        {"input": {"name": "tulip", "secret": "none"}, "replace": ours.runs["waiting"]},
    ),
    "GET /v1/runs": fixed("/v1/runs", 200),
    "GET /v1/runs/{run_id}": on_run(""),
    "GET /v1/runs/{run_id}/input": on_run("/input"),
    "GET /v1/runs/{run_id}/journal": on_run("/journal"),
    "GET /v1/runs/{run_id}/explain": on_run("/explain"),
    "GET /v1/runs/{run_id}/result": on_run("/result", run="completed"),
    "GET /v1/runs/{run_id}/events": on_run("/events", run="completed"),
    "GET /v1/runs/{run_id}/receipt": on_run("/receipt", run="cancelled"),
    "POST /v1/runs/{run_id}/cancel": on_run("/cancel", {}),
    "POST /v1/runs/{run_id}/resume": on_run("/resume", run="cancelled"),
    "POST /v1/runs/{run_id}/retry": on_run("/retry", run="cancelled"),
    "POST /v1/runs/{run_id}/decide": on_run("/decide", {"step": "charge#1", "failed": "no"}),
    "POST /v1/runs/{run_id}/retry-now": on_run("/retry-now", {"step": "charge#1"}),
    "POST /v1/runs/{run_id}/fork": on_run("/fork", {"at": "water#1"}, run="completed"),
    "POST /v1/runs/{run_id}/signal": on_run("/signal", WATER),
    "POST /v1/runs/{run_id}/release-key": on_run("/release-key", {}, run="completed"),
    "POST /v1/bulk": fixed("/v1/bulk", 201, {"verb": "cancel", "runs": {"workflow": "garden.bloom"}}),
    "POST /v1/bulk/dry-run": fixed("/v1/bulk/dry-run", 200, {"verb": "cancel"}),
    "POST /v1/hooks/{token:path}": fixed("/v1/hooks/token-of-tulip", 404, "rain"),
    "GET /v1/workflows": fixed("/v1/workflows", 200),
    "GET /v1/workflows/{name}": fixed("/v1/workflows/garden.bloom", 200),
    "GET /v1/workflows/{name}/holder": fixed("/v1/workflows/garden.bloom/holder?key=flower:tulip", 404),
    "POST /v1/tasks/claim": fixed("/v1/tasks/claim", 200, {"effects": ["garden.paint"], "worker": "w", "limit": 10}),
    "POST /v1/tasks/{task_id}/heartbeat": on_task("/heartbeat", {}),
    "POST /v1/tasks/{task_id}/complete": on_task("/complete", {"result": "stolen"}),
    "POST /v1/tasks/{task_id}/fail": on_task("/fail", {"error": {"type": "E", "message": "m"}, "retry": False}),
    "GET /v1/lanes": fixed("/v1/lanes", 200),
    "GET /v1/lanes/{name:path}": fixed("/v1/lanes/bed-of-tulip", 404),
    "PATCH /v1/lanes/{name:path}": fixed("/v1/lanes/bed-of-tulip", 200, {"paused": True}),
    "GET /v1/workers": fixed("/v1/workers", 200),
    "GET /v1/backlog": fixed("/v1/backlog", 200),
    "GET /v1/breakers": fixed("/v1/breakers", 200),
    "GET /v1/breakers/{name}": fixed("/v1/breakers/name-of-a-breaker", 404),
    "POST /v1/breakers/{name}/open": fixed("/v1/breakers/name-of-a-breaker/open", 404, {}),
    "POST /v1/breakers/{name}/close": fixed("/v1/breakers/name-of-a-breaker/close", 404, {}),
    "GET /v1/effect-limits": fixed("/v1/effect-limits", 200),
    "GET /v1/api-keys": fixed("/v1/api-keys", 200),
    "POST /v1/api-keys": fixed("/v1/api-keys", 201, {"name": "mine", "scope": "admin"}),
    "DELETE /v1/api-keys/{key_id}": lambda ours: Case(f"/v1/api-keys/{ours.key_id}", 404),
    "GET /v1/limits": fixed("/v1/limits", 200),
    "POST /v1/limits": fixed("/v1/limits", 200, {"name": "flower", "rate": {"count": 1, "per": "1h"}}),
    "GET /livez": fixed("/livez", 200),
    "GET /readyz": fixed("/readyz", 200),
    "GET /metrics": fixed("/metrics", 404),
    "GET /openapi.json": fixed("/openapi.json", 200),
    "GET /docs": fixed("/docs", 200),
}


def test_every_endpoint_has_a_case() -> None:
    assert {f"{endpoint.method} {endpoint.path}" for endpoint in ENDPOINTS} == set(CASES)


async def planted(gateway: Gateway) -> Ours:
    """A run that waits, one that has ended, one that was cancelled, a task that is offered, and one that is at work."""
    hf = gateway.hf
    runs = {}
    for name in ("tulip", "rose", "lily"):
        call, colour = bloom(name, f"secret-of-{name}"), f"colour-of-{name}"
        runs[name], _ = await hf.start(call, attributes={"colour": colour}, lane=f"bed-of-{name}")
    await runs["rose"].signal("water", "payload-for-rose")
    await runs["rose"].result()
    await runs["lily"].cancel("reason-of-lily")
    worker = await gateway.client(scope="write")
    for name in ("sun", "moon"):
        runs[name], _ = await hf.start(picture(name, f"secret-of-{name}"))
    claim = {"effects": ["garden.paint"], "worker": "ours", "wait": "30s"}
    [task] = (await worker.post("/v1/tasks/claim", json=claim)).json()["tasks"]
    await eventually(lambda: has_a_hook(runs["tulip"]))
    _, key = await hf.api_keys.create("name-of-a-key", namespace=hf.namespace, scope="admin")
    store = hf.runtime.store
    for rule in (breakers.writing, effect_limits.writing):
        kept: Any = breakers.NEW if rule is breakers.writing else effect_limits.NONE
        await store.write([rule(hf.namespace, "name-of-a-breaker", None, kept, now_ms=store.now_ms())])
    words = (
        "secret-of-",
        "colour-of-",
        "flower:tulip",
        "flower:rose",
        "token-of-",
        "payload-for-",
        "reason-of-",
        "bed-of-",
    )
    ids = (*(run.id for run in runs.values()), key.id, owner_of(hf))
    return Ours(
        {"waiting": runs["tulip"].id, "completed": runs["rose"].id, "cancelled": runs["lily"].id},
        key.id,
        task,
        frozenset((*words, *ids, "paint-of-", "name-of-a-key", "name-of-a-breaker")),
    )


async def has_a_hook(run: Run[Any]) -> bool:
    return len(await run.journal()) > 1


async def seen(http: httpx2.AsyncClient) -> dict[str, Any]:
    """All that there is, as its owner sees it; without what changes by itself."""
    runs = (await http.get("/v1/runs")).json()["runs"]
    shown = {run["id"]: (run["key"], run["holds_key"], run["attributes"]) for run in runs}
    lanes = [(lane["name"], lane["width"], lane["paused"]) for lane in (await http.get("/v1/lanes")).json()["lanes"]]
    places = ["/v1/api-keys", "/v1/breakers", "/v1/effect-limits", *(f"/v1/runs/{run['id']}/journal" for run in runs)]
    workers = [worker["id"] for worker in (await http.get("/v1/workers")).json()["workers"]]
    return {
        "runs": shown,
        "lanes": lanes,
        "workers": workers,
        **{place: (await http.get(place)).json() for place in places},
    }


@pytest.fixture
async def gateway(serve: Serve, home: Home) -> Gateway:
    return await serve(pack, on=home, keys=True, namespace="ours")


async def test_a_stranger_sees_nothing_and_changes_nothing(gateway: Gateway) -> None:
    ours = await planted(gateway)
    owner, stranger = await gateway.client(scope="admin"), await gateway.client(scope="admin", namespace="theirs")
    before = await seen(owner)
    to_be_seen = f"{before} {ours.task}"
    assert not {needle for needle in ours.needles if needle not in to_be_seen}, "else it would prove nothing"

    for endpoint in ENDPOINTS:
        where = f"{endpoint.method} {endpoint.path}"
        case = CASES[where](ours)
        answer = await stranger.request(endpoint.method, case.path, json=case.body)
        assert answer.status_code == case.status, f"{where}: {answer.status_code} {answer.text}"
        sent = f"{case.path} {case.body}"
        told = {needle for needle in ours.needles if needle in answer.text and needle not in sent}
        assert not told, f"{where} has told {told}"

    assert await seen(owner) == before


async def test_a_bulk_verb_of_a_stranger_means_none_of_our_runs(serve: Serve, home: Home, gateway: Gateway) -> None:
    """Not even where their worker lives in the same store."""
    ours = await planted(gateway)
    theirs = await serve(pack, on=home, keys=True, namespace="theirs")
    stranger = await theirs.client(scope="write")
    assert (await stranger.post("/v1/bulk/dry-run", json={"verb": "cancel"})).json()["matched"] == 0
    for body in ({"verb": "cancel"}, {"verb": "resume"}, {"verb": "signal", "hook": "water", "payload": "theirs"}):
        started = await stranger.post("/v1/bulk", json=body)
        report = await (await theirs.hf.get(started.json()["id"])).result("30s")
        assert (started.status_code, report.matched, report.done) == (201, 0, 0)
    waiting = await gateway.hf.get(ours.runs["waiting"])
    assert waiting.finished_at is None
    assert not any(isinstance(entry, Received) for entry in await waiting.journal())
    assert (await gateway.hf.get(ours.runs["cancelled"])).status == "cancelled"


async def test_the_same_key_is_another_run_in_another_namespace(gateway: Gateway) -> None:
    ours = await planted(gateway)
    stranger = await gateway.client(scope="write", namespace="theirs")
    answer = await stranger.post(
        "/v1/workflows/garden.bloom/runs", json={"input": {"name": "tulip", "secret": "another"}}
    )
    assert answer.status_code == 201
    assert answer.json()["id"] not in ours.runs.values()
    assert [run["id"] for run in (await stranger.get("/v1/runs")).json()["runs"]] == [answer.json()["id"]]
    signalled = await stranger.post(
        "/v1/workflows/garden.bloom/runs",
        json={"input": {"name": "tulip", "secret": "another"}, "signal": WATER},
    )
    assert (signalled.status_code, signalled.json()["id"]) == (200, answer.json()["id"])
    assert (await gateway.hf.get(ours.runs["waiting"])).finished_at is None


async def test_a_cursor_of_ours_leads_a_stranger_nowhere(gateway: Gateway) -> None:
    await planted(gateway)
    owner, stranger = await gateway.client(scope="read"), await gateway.client(scope="read", namespace="theirs")
    cursor = (await owner.get("/v1/runs", params={"limit": 1})).json()["next"]
    assert cursor
    answer = await stranger.get("/v1/runs", params={"after": cursor})
    assert (answer.status_code, answer.json()) == (200, {"runs": [], "next": None})


async def test_the_same_idempotency_key_of_two_callers_means_two_things(gateway: Gateway) -> None:
    start = {"input": {"name": "iris", "secret": "x"}}
    responses = [
        await (await gateway.client(scope="write", namespace=namespace)).post(
            "/v1/workflows/garden.bloom/runs", json=start, headers={"Idempotency-Key": "once"}
        )
        for namespace in ("ours", "theirs")
    ]
    assert [answer.status_code for answer in responses] == [201, 201]
    assert responses[0].json()["id"] != responses[1].json()["id"]


async def test_no_caller_can_take_the_key_of_a_request_of_another(gateway: Gateway) -> None:
    """Even one that knows the id of the other's API key, and what its next request will be called."""
    start: dict[str, Any] = {"input": {"name": "sun", "secret": "x"}}
    url = "/v1/workflows/garden.picture/runs"
    token, victim_key = await gateway.hf.api_keys.create("victim", namespace="ours", scope="write")
    victim, squatter = await gateway.client(token=token), await gateway.client(scope="admin")
    squatted = f"idem:{victim_key.id}:next"
    ours = (await squatter.post(url, json=start)).json()["id"]
    for path, body in (
        (url, start | {"key": squatted}),
        (url, start | {"key": squatted, "signal": WATER}),
        (f"/v1/runs/{ours}/fork", {"at": "paint#1", "key": squatted}),
    ):
        refused = await squatter.post(path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (400, "reserved_key"), refused.text
    mine = await victim.post(url, json=start, headers={"Idempotency-Key": "next"})
    assert (mine.status_code, mine.json()["key"]) == (201, squatted)
    again = await victim.post(url, json=start, headers={"Idempotency-Key": "next"})
    assert (again.status_code, again.json()["id"]) == (200, mine.json()["id"])


async def test_no_caller_can_pass_its_payload_off_as_one_that_another_will_send(gateway: Gateway) -> None:
    token, victim_key = await gateway.hf.api_keys.create("victim", namespace="ours", scope="write")
    _, foreign_key = await gateway.hf.api_keys.create("elsewhere", namespace="theirs", scope="write")
    victim, squatter = await gateway.client(token=token), await gateway.client(scope="admin")
    run = (await gateway.hf.start(bloom("iris", "x"))).run
    await eventually(lambda: has_a_hook(run))
    squatted = f"{victim_key.id}:next"
    signal, url = {"hook": "more", "payload": 1}, f"/v1/runs/{run.id}/signal"
    start = {"input": {"name": "iris", "secret": "x"}, "signal": signal | {"dedupe": squatted}}
    for path, body in (
        (url, signal | {"dedupe": squatted}),
        ("/v1/workflows/garden.bloom/runs", start),
        (f"/v1/hooks/token-of-iris?dedupe={squatted}", 1),
    ):
        refused = await squatter.post(path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (400, "malformed_request"), refused.text
    # What only looks alike, or is the caller's own, is as good as any other id.
    for sender, dedupe in ((victim, squatted), (squatter, "0123456789abcdef:1"), (squatter, f"{foreign_key.id}:1")):
        assert (await sender.post(url, json=signal | {"dedupe": dedupe})).status_code == 202
    assert len(await run.journal()) > 1
