"""POST /v1/hooks/{token} and POST /v1/runs/{id}/signal: payloads, delivered durably and once."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote

import pytest

from holdfast import Client
from holdfast.events import RunLetGo
from holdfast.warnings import HookNotOpen
from tests.gateway.conftest import Gateway, Serve
from tests.gateway.works import Works, entries, problem, started
from tests.integration.conftest import Home, eventually, heard


async def _waits(gateway: Gateway, order: str) -> dict[str, Any]:
    """A run that waits for its approval."""
    run = await started(gateway, "ask", order=order)

    async def is_open() -> bool:
        return "opened" in [entry["what"] for entry in await entries(gateway, run)]

    await eventually(is_open)
    return run


async def _received(gateway: Gateway, run: dict[str, Any]) -> list[str]:
    return [entry["hook"] for entry in await entries(gateway, run) if entry["what"] == "received"]


async def test_whoever_has_the_token_reaches_the_run(gateway: Gateway) -> None:
    run = await _waits(gateway, "o-1")
    answer = await gateway.http.post("/v1/hooks/approve/o-1", json=True)
    assert (answer.status_code, answer.json()["id"]) == (202, run["id"])
    signal = await gateway.http.post(f"/v1/runs/{run['id']}/signal", json={"hook": "more", "payload": {"n": 1}})
    assert (signal.status_code, signal.json()["id"]) == (202, run["id"])
    result = await gateway.http.get(f"/v1/runs/{run['id']}/result?wait=30s")
    assert result.json() == {"result": [True, {"n": 1}]}


async def test_a_token_may_have_any_characters(gateway: Gateway) -> None:
    for order in ("a/b", "a b", "ü/%2F?#", "../x", "%"):
        run = await _waits(gateway, order)
        answer = await gateway.http.post(f"/v1/hooks/{quote(f'approve/{order}', safe='')}", json=False)
        assert (answer.status_code, answer.json()["id"]) == (202, run["id"])


async def test_any_json_is_a_payload(gateway: Gateway) -> None:
    payloads: list[Any] = [None, 0, "text", [], {"a": [None, 1.5, "ü"]}]
    for n, payload in enumerate(payloads):
        run = await _waits(gateway, f"o-{n}")
        await gateway.http.post(f"/v1/hooks/approve/o-{n}", json=True)
        await gateway.http.post(f"/v1/runs/{run['id']}/signal", json={"hook": "more", "payload": payload})
        result = await gateway.http.get(f"/v1/runs/{run['id']}/result?wait=30s")
        assert result.json() == {"result": [True, payload]}


async def test_a_payload_that_is_sent_again_is_delivered_once(gateway: Gateway) -> None:
    run = await _waits(gateway, "o-1")
    named, header = {"params": {"dedupe": "p-1"}}, {"headers": {"Idempotency-Key": "p-1"}}
    for how in (named, named, header, header):  # the header counts for its caller, the parameter for everybody
        answer = await gateway.http.post("/v1/hooks/approve/o-1", json=True, **how)
        assert (answer.status_code, answer.json()["id"]) == (202, run["id"])
    signal = {"hook": "other", "payload": 1}
    for body, headers in (
        (signal, {"Idempotency-Key": "s-1"}),
        (signal, {"Idempotency-Key": "s-1"}),
        (signal | {"dedupe": "d-1"}, {"Idempotency-Key": "s-2"}),
        (signal | {"dedupe": "d-1"}, {"Idempotency-Key": "s-3"}),
        (signal, {}),
    ):
        answer = await gateway.http.post(f"/v1/runs/{run['id']}/signal", json=body, headers=headers)
        assert answer.status_code == 202

    async def all_came() -> bool:
        return sorted(await _received(gateway, run)) == ["approval"] * 2 + ["other"] * 3

    await eventually(all_came)


async def test_a_payload_that_does_not_fit_is_refused_at_the_door(gateway: Gateway) -> None:
    run = await _waits(gateway, "o-1")
    problem(await gateway.http.post("/v1/hooks/approve/o-1", json="yes"), 422, "payload_refused")
    signal = {"hook": "approval", "payload": "yes"}
    problem(await gateway.http.post(f"/v1/runs/{run['id']}/signal", json=signal), 422, "payload_refused")
    assert await _received(gateway, run) == []


async def test_a_token_that_nobody_holds_is_unknown(gateway: Gateway) -> None:
    problem(await gateway.http.post("/v1/hooks/approve/nobody", json=True), 404, "unknown_hook")
    run = await _waits(gateway, "o-1")
    await gateway.http.post(f"/v1/runs/{run['id']}/cancel")
    problem(await gateway.http.post("/v1/hooks/approve/o-1", json=True), 404, "unknown_hook")
    signal = {"hook": "approval", "payload": True}
    problem(await gateway.http.post(f"/v1/runs/{run['id']}/signal", json=signal), 409, "not_allowed_now")
    problem(await gateway.http.post("/v1/runs/nobody/signal", json=signal), 404, "unknown_run")


async def test_what_is_no_payload_is_refused(gateway: Gateway) -> None:
    await _waits(gateway, "o-1")
    json = {"Content-Type": "application/json"}
    for data in (b"", b"{", b"\xff", b'"\\ud800"', b"NaN", b"[" * 100_000):
        answer = await gateway.http.post("/v1/hooks/approve/o-1", content=data, headers=json)
        problem(answer, 400, "malformed_request")
    form = await gateway.http.post("/v1/hooks/approve/o-1", data={"a": "b"})
    problem(form, 415, "not_json")
    for query in ("dedupe=", f"dedupe={'x' * 256}", "other=1", "dedupe=a&dedupe=b"):
        answer = await gateway.http.post(f"/v1/hooks/approve/o-1?{query}", json=True)
        problem(answer, 400, "malformed_request")
    long = await gateway.http.post(f"/v1/hooks/{'x' * 256}", json=True)
    assert long.status_code == 400


async def test_a_hook_that_the_run_does_not_wait_for_is_a_warning_in_the_response(serve: Serve, home: Home) -> None:
    home.paced(idle_ms=0)
    gateway = await serve(Works().pack, on=home)
    run = await _waits(gateway, "o-1")
    await heard(gateway.hf).until(RunLetGo)
    path = f"/v1/runs/{run['id']}/signal"
    sent = await gateway.http.post(path, json={"hook": "aproväl", "payload": True})
    assert sent.json()["id"] == run["id"]
    said = unquote(sent.headers["Holdfast-Warning"])
    assert "no open hook 'aproväl': it waits for 'approval'. Did you mean 'approval'?" in said
    right = await gateway.http.post(path, json={"hook": "approval", "payload": True})
    assert "Holdfast-Warning" not in right.headers


async def test_a_client_is_warned_as_a_holdfast_is(serve: Serve, home: Home) -> None:
    home.paced(idle_ms=0)
    gateway = await serve(Works().pack, on=home)
    waits = await _waits(gateway, "o-1")
    await heard(gateway.hf).until(RunLetGo)
    async with Client(gateway.url) as client:
        run = await client.get(waits["id"])
        with pytest.warns(HookNotOpen, match="it waits for 'approval'"):
            await run.signal("aproval", True)
