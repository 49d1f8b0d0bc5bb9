"""Remote workers over HTTP: what goes over the wire, and how mistakes are answered."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from holdfast import Pack, Retry
from holdfast.gateway.endpoints import GatewaySettings
from tests.gateway.conftest import PATIENCE_SECONDS, Gateway, Serve
from tests.integration.conftest import Home, eventually

EFFECT = "studio.resize"
DEEP = "[" * 5000 + "]" * 5000


@pytest.fixture
def studio() -> Pack:
    pack = Pack("studio")

    @pack.effect(key="resize:{image}", retry=Retry(attempts=2, base=0.0), remote=True)
    async def resize(image: str) -> str: ...

    @pack.workflow(key="thumbnail:{image}")
    async def thumbnail(image: str) -> str:
        return await resize(image)

    return pack


async def start(gateway: Gateway, image: str = "cat.png") -> str:
    answer = await gateway.http.post("/v1/workflows/studio.thumbnail/runs", json={"input": {"image": image}})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


async def claim(http: httpx2.AsyncClient, **options: Any) -> dict[str, Any]:
    """The next task."""
    body = {"effects": [EFFECT], "worker": "w-1", "wait": f"{PATIENCE_SECONDS / 2:g}s"} | options
    answer = await http.post("/v1/tasks/claim", json=body)
    assert answer.status_code == 200, answer.text
    [task] = answer.json()["tasks"]
    return task


async def say(http: httpx2.AsyncClient, task: dict[str, Any], verb: str, **body: Any) -> httpx2.Response:
    return await http.post(f"/v1/tasks/{task['id']}/{verb}", json={"fence": task["fence"]} | body)


async def result_of(gateway: Gateway, run_id: str) -> httpx2.Response:
    return await gateway.http.get(f"/v1/runs/{run_id}/result", params={"wait": "20s"})


async def test_a_task_is_claimed_kept_alive_and_completed(serve: Serve, studio: Pack, home: Home) -> None:
    gateway = await serve(studio, on=home)
    waiting = asyncio.create_task(claim(gateway.http))  # a long poll: there is nothing to do yet
    await eventually(lambda: gateway.hf._replica._task_watch._seekers)
    run_id = await start(gateway)
    task = await waiting
    assert {name: task[name] for name in ("effect", "key", "run", "attempt", "input", "last_heartbeat")} == {
        "effect": EFFECT,
        "key": "resize:cat.png",
        "run": run_id,
        "attempt": 1,
        "input": {"image": "cat.png"},
        "last_heartbeat": None,
    }
    beat = await say(gateway.http, task, "heartbeat", details={"row": 7})
    assert beat.json()["wanted"] is True
    assert beat.json()["lease_until"] >= task["lease_until"]
    responses = [await say(gateway.http, task, "complete", result="small.png") for _ in range(2)]
    assert [(answer.status_code, answer.json()) for answer in responses] == [(200, {"id": task["id"]})] * 2
    assert (await result_of(gateway, run_id)).json() == {"result": "small.png"}


async def test_a_failure_is_retried_and_the_last_one_is_the_run_s(serve: Serve, studio: Pack) -> None:
    gateway = await serve(studio)
    run_id = await start(gateway)
    first = await claim(gateway.http)
    await say(gateway.http, first, "heartbeat", details=[1])
    assert (await say(gateway.http, first, "fail", error={"type": "Busy"})).status_code == 200
    second = await claim(gateway.http)
    assert (second["attempt"], second["key"], second["last_heartbeat"]) == (2, first["key"], [1])
    await say(gateway.http, second, "fail", error={"type": "OutOfPaper", "message": "none left"}, retry=False)
    problem = (await result_of(gateway, run_id)).json()
    assert problem["code"] == "run_failed"
    assert "OutOfPaper: none left" in problem["error"]["message"]


async def test_a_stale_fence_is_answered_with_a_conflict(serve: Serve, studio: Pack) -> None:
    gateway = await serve(studio)
    await start(gateway)
    task = await claim(gateway.http)
    for verb, body in (("heartbeat", {}), ("complete", {"result": 1}), ("fail", {"error": {"type": "E"}})):
        answer = await say(gateway.http, task, verb, **body | {"fence": task["fence"] - 1})
        assert (answer.status_code, answer.json()["code"]) == (409, "not_allowed_now")


async def test_a_cancelled_run_is_told_to_the_worker_and_its_completion_refused(serve: Serve, studio: Pack) -> None:
    gateway = await serve(studio)
    run_id = await start(gateway)
    task = await claim(gateway.http, lease="300ms")
    receipt = (await gateway.http.post(f"/v1/runs/{run_id}/cancel", json={})).json()
    assert receipt["outcome"] == "unknown"
    assert (await say(gateway.http, task, "heartbeat")).json()["wanted"] is False
    refused = await say(gateway.http, task, "complete", result="too late")
    assert (refused.status_code, refused.json()["code"]) == (409, "not_allowed_now")
    assert "not wanted any more" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("claim", "{}", 400),
        ("claim", '{"effects": [], "worker": "w"}', 400),
        ("claim", '{"effects": ["a.b"], "worker": ""}', 400),
        ("claim", '{"effects": ["a.b"], "worker": "w", "wait": "61s"}', 400),
        ("claim", '{"effects": ["a.b"], "worker": "w", "wait": "soon"}', 400),
        ("claim", '{"effects": ["a.b"], "worker": "w", "wait": -1}', 400),
        ("claim", '{"effects": ["a.b"], "worker": "w", "lease": "1ms"}', 400),
        ("claim", '{"effects": ["a.b"], "worker": "w", "limit": 101}', 400),
        ("claim", '{"effects": ["a.b"], "worker": "w", "hurry": true}', 400),
        ("claim", "not json", 400),
        ("studio.resize.0/heartbeat", '{"fence": 1}', 404),
        ("nothing/complete", '{"fence": 1, "result": 1}', 404),
        ("nothing/complete", '{"fence": "1"}', 400),
        ("nothing/complete", "{}", 400),
        ("nothing/complete", f'{{"fence": 1, "result": {DEEP}}}', 400),
        ("%C3%A9%20%00/fail", '{"fence": 1, "error": {"type": "E"}}', 404),
        ("nothing/fail", '{"fence": 1, "error": "E"}', 400),
        ("nothing/fail", '{"fence": -1, "error": {"type": "E"}}', 400),
        ("nothing/fail", '{"fence": 1, "error": {"type": "E"}, "retry_after": "later"}', 400),
    ],
)
async def test_a_mistake_is_answered_with_a_problem(serve: Serve, path: str, body: str, status: int) -> None:
    gateway = await serve(worker=False)
    headers = {"Content-Type": "application/json"}
    answer = await gateway.http.post(f"/v1/tasks/{path}", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


async def test_values_nested_as_deeply_as_anybody_can_read_are_no_fault_of_the_gateway(
    serve: Serve, studio: Pack
) -> None:
    gateway = await serve(studio)
    await start(gateway)
    task = await claim(gateway.http)
    headers = {"Content-Type": "application/json"}
    for depth in range(900, 1000, 3):  # the depth that can be read depends on who reads
        body = f'{{"fence": {task["fence"]}, "details": {"[" * depth}{"]" * depth}}}'
        answer = await gateway.http.post(f"/v1/tasks/{task['id']}/heartbeat", content=body, headers=headers)
        assert answer.status_code in {200, 400, 422}, (depth, answer.text)
    assert (await say(gateway.http, task, "complete", result="small.png")).status_code == 200


async def test_a_claim_ends_when_the_gateway_closes_and_leaves_when_the_caller_does(serve: Serve) -> None:
    gateway = await serve(worker=False)
    with pytest.raises(httpx2.ReadTimeout):
        await gateway.http.post(
            "/v1/tasks/claim", json={"effects": [EFFECT], "worker": "w", "wait": "20s"}, timeout=0.2
        )
    await eventually(lambda: gateway.context.wait_limit.taken == 0)
    waiting = asyncio.create_task(
        gateway.http.post("/v1/tasks/claim", json={"effects": [EFFECT], "worker": "w", "wait": "20s"})
    )
    await eventually(lambda: gateway.context.wait_limit.taken == 1)
    gateway.context.wait_limit.close()
    assert (await waiting).json() == {"tasks": []}


async def test_only_so_many_may_wait(serve: Serve) -> None:
    gateway = await serve(worker=False, settings=GatewaySettings(require_keys=False, waiting_max=0))
    asked = {"effects": [EFFECT], "worker": "w"}
    assert (await gateway.http.post("/v1/tasks/claim", json=asked | {"wait": 1})).status_code == 503
    assert (await gateway.http.post("/v1/tasks/claim", json=asked)).json() == {"tasks": []}


async def test_a_key_reaches_the_tasks_of_its_namespace_only_and_must_be_allowed_to_write(
    serve: Serve, studio: Pack
) -> None:
    gateway = await serve(studio, keys=True)
    own, reader, stranger = [
        await gateway.client(scope="write"),
        await gateway.client(scope="read"),
        await gateway.client(scope="admin", namespace="another"),
    ]
    await own.post("/v1/workflows/studio.thumbnail/runs", json={"input": {"image": "cat.png"}})
    task = await claim(own)
    for verb, body in (("heartbeat", {}), ("complete", {"result": "x"}), ("fail", {"error": {"type": "E"}})):
        assert (await say(stranger, task, verb, **body)).status_code == 404
        assert (await say(reader, task, verb, **body)).status_code == 403
        assert (await say(gateway.http, task, verb, **body)).status_code == 401
    asked = {"effects": [EFFECT], "worker": "w"}
    assert (await stranger.post("/v1/tasks/claim", json=asked)).json() == {"tasks": []}
    assert (await reader.post("/v1/tasks/claim", json=asked)).status_code == 403
    assert (await say(own, task, "complete", result="small")).status_code == 200
