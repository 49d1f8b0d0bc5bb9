"""Gateways that are killed: a start is repeated and remains one run, a stream goes on elsewhere, a poll returns."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.faults.cases import Case
from tests.faults.crash_at_store_call import Point
from tests.faults.gateway_process import GatewayPlan
from tests.faults.processes import DEADLINE, KILLED, Process, until

pytestmark = pytest.mark.faults

DEATHS: dict[str, dict[str, Any]] = {
    "before the commit": {"point": Point("commit", 1, "before")},
    "after the commit": {"point": Point("commit", 1, "after")},
    "before the answer": {"dies_before_the_answer": True},
}


class Gate:
    """A gateway process, and a client of it."""

    def __init__(self, process: Process, url: str) -> None:
        self.process = process
        self.http = httpx2.AsyncClient(base_url=url, timeout=DEADLINE, trust_env=False)

    async def start(self, workflow: str, *, key: str | None = None, wait: str = "", **input: Any) -> httpx2.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        return await self.http.post(f"/v1/workflows/{workflow}/runs{wait}", json={"input": input}, headers=headers)


@pytest.fixture
async def gates() -> AsyncIterator[list[Gate]]:
    gates: list[Gate] = []
    yield gates
    for gate in gates:
        await gate.http.aclose()


@pytest.fixture
def opened(case: Case, gates: list[Gate]) -> Any:
    async def opened(**options: Any) -> Gate:
        plan = GatewayPlan(path=str(case.path), ledger=str(case.ledger.path), **options)
        process = await case.processes.fork(plan, module="tests.faults.gateway_process")
        gates.append(gate := Gate(process, (await process.says("ready"))["url"]))
        return gate

    return opened


async def _leaves(gate: Gate) -> None:
    await gate.http.aclose()
    await gate.process.leaves()


@pytest.mark.parametrize("workflow", ["plain", "keyed"])
@pytest.mark.parametrize("death", DEATHS)
async def test_a_start_repeated_after_its_gateway_was_killed_is_one_run(
    case: Case, opened: Any, death: str, workflow: str
) -> None:
    """The client knows nothing but its Idempotency-Key; the ledger knows what was done."""
    doomed, other = await opened(**DEATHS[death]), await opened()
    with pytest.raises(httpx2.TransportError):
        await doomed.start(workflow, key="4f-1", name="a")
    assert await doomed.process.ended() == KILLED, doomed.process
    replies = [await other.start(workflow, key="4f-1", wait="?wait=60s", name="a") for _ in range(2)]
    [(run_id, status)] = case.ask("SELECT id, status FROM runs")
    assert {reply.json()["id"] for reply in replies} == {run_id}
    assert {reply.json()["result"] for reply in replies} == {"a 0"}
    assert status == "completed"
    was_created = death != "before the commit"
    # The header is the key where there is none: a repetition finds the run. Beside a key it names the request.
    assert [reply.status_code for reply in replies] == (
        [200 if was_created else 201, 200] if workflow == "plain" else [201, 201]
    )
    marks = [reply.headers.get("idempotency-replayed") for reply in replies]
    assert marks == ["true" if was_created else None, "true"]
    await _leaves(other)
    case.ledger.check(lost={doomed.process.pid} | case.processes.overtaken())
    assert {line["call"] for line in case.ledger.calls()} == {case.ledger.calls()[0]["call"]}


async def test_another_body_is_refused_though_the_gateway_that_took_the_first_was_killed(
    case: Case, opened: Any
) -> None:
    doomed, other = await opened(**DEATHS["before the commit"]), await opened()
    with pytest.raises(httpx2.TransportError):
        await doomed.start("keyed", key="4f-1", name="a")
    assert await doomed.process.ended() == KILLED, doomed.process
    refused = await other.start("keyed", key="4f-1", name="b")
    assert (refused.status_code, refused.json()["code"]) == (422, "request_mismatch")
    assert case.ask("SELECT id FROM runs") == []
    await _leaves(other)


async def test_64_starts_of_one_key_through_two_gateways_are_one_run(case: Case, opened: Any) -> None:
    gates = [await opened(), await opened()]
    replies = await asyncio.gather(
        *(gates[n % 2].start("keyed", key=f"request-{n}", wait="?wait=60s", name="a") for n in range(64))
    )
    assert sorted(reply.status_code for reply in replies) == [200] * 63 + [201]
    assert {(reply.json()["id"], reply.json()["result"]) for reply in replies} == {(replies[0].json()["id"], "a 0")}
    assert len(case.ask("SELECT id FROM runs")) == 1
    for gate in gates:
        await _leaves(gate)
    case.ledger.check(lost=case.processes.overtaken())
    assert len(case.ledger.calls()) == 1


async def test_a_poll_is_answered_by_a_run_that_finishes_in_another_process(case: Case, opened: Any) -> None:
    gate = await opened(worker=False)
    waiting = asyncio.create_task(gate.start("plain", wait="?wait=60s", name="a"))
    await until(lambda: case.path.exists() and case.statuses(), "the run", gate.process)
    [run_id] = case.statuses()
    poll = asyncio.create_task(gate.http.get(f"/v1/runs/{run_id}/result?wait=60s"))
    worker = await opened()
    assert (await waiting).json()["result"] == "a 0"
    assert (await poll).json() == {"result": "a 0"}
    assert {line["pid"] for line in case.ledger.calls()} == {worker.process.pid}
    await _leaves(gate)
    await _leaves(worker)


async def test_a_reader_whose_gateways_are_killed_misses_nothing_and_sees_nothing_twice(
    case: Case, opened: Any
) -> None:
    """It goes on at another process each time, behind the last event that it has seen, while the run goes on."""
    kills, steps = 10, 4
    chance = random.Random(4)
    worker = await opened()
    run_id = (await worker.start("steps", name="a", count=(kills + 1) * steps)).json()["id"]
    seen: list[tuple[int, str]] = []

    async def go_on() -> None:
        for n in range(steps):
            answer = await worker.http.post(f"/v1/runs/{run_id}/signal", json={"hook": "go", "payload": n})
            assert answer.status_code == 202, answer.text

    for _ in range(kills):
        gate = await opened(worker=False)
        going = asyncio.create_task(go_on())
        with pytest.raises(httpx2.TransportError):
            await _follow_and_kill(gate, run_id, seen, after=chance.randrange(1, 2 * steps))  # a step is two events
        assert await gate.process.ended() == KILLED
        await going
    last = await opened(worker=False)
    going = asyncio.create_task(go_on())
    assert [event["event"] async for event in _follow(last, run_id, seen)][-2:] == ["completed", "end"]
    await going
    journal = (await worker.http.get(f"/v1/runs/{run_id}/journal")).json()
    assert [cursor for cursor, _ in seen] == list(range(len(journal["entries"])))
    assert [json.loads(data) for _, data in seen] == journal["entries"]
    await _leaves(worker)


async def _follow_and_kill(gate: Gate, run_id: str, seen: list[tuple[int, str]], *, after: int) -> None:
    """Kill the gateway in the middle. What is on its way still arrives, and counts."""
    async for event in _follow(gate, run_id, seen):
        assert event["event"] != "end"
        after -= 1
        if after == 0:
            gate.process.signal(signal.SIGKILL)


async def _follow(gate: Gate, run_id: str, seen: list[tuple[int, str]]) -> AsyncIterator[dict[str, str]]:
    """The events behind those that were seen, until there are no more, or the connection breaks."""
    headers = {"Last-Event-ID": str(seen[-1][0])} if seen else {}
    async with gate.http.stream("GET", f"/v1/runs/{run_id}/events", headers=headers) as response:
        assert response.status_code == 200
        async for event in _events(response):
            if "id" in event:
                seen.append((int(event["id"]), event["data"]))
            yield event


async def _events(response: httpx2.Response) -> AsyncIterator[dict[str, str]]:
    """The whole events of a stream that may break off in the middle of one."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        if not line and "event" in fields:
            yield fields
        fields = fields | {name: value} if line else {}
