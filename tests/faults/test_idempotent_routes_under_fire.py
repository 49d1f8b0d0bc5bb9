"""Idempotent routes in two real server processes on one SQLite file, which are killed, stopped and raced."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import msgspec
import pytest
from httpx2 import AsyncClient, Response, TransportError

from tests.faults.cases import Case
from tests.faults.processes import DEADLINE, Process, until
from tests.faults.web_app_process import AppPlan

pytestmark = pytest.mark.faults
GO = "go"


class Server:
    """One process of the application, and a client of it."""

    def __init__(self, case: Case, **options: Any) -> None:
        plan = AppPlan(path=str(case.path), ledger=str(case.ledger.path), flag=str(case.flag(GO)), **options)
        self.process: Process = case.processes.run_module("tests.faults.web_app_process", msgspec.to_builtins(plan))
        self._client: AsyncClient | None = None

    async def ready(self) -> Server:
        port = (await self.process.says("ready"))["port"]
        self._client = AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE)
        return self

    async def charge(self, order: str) -> Response:
        assert self._client
        return await self._client.post("/charges", json={"order": order}, headers={"Idempotency-Key": order})

    async def charge_until_answered(self, order: str) -> Response:
        """As a patient client does it: again and again while it is at work."""
        async with asyncio.timeout(DEADLINE):
            while (answer := await self.charge(order)).status_code == 409:
                assert answer.json()["code"] == "in_flight"
                assert "Retry-After" in answer.headers
                await asyncio.sleep(0.05)
        return answer

    async def close(self) -> None:
        if self._client:
            await self._client.aclose()


async def two_servers(case: Case, **options: Any) -> tuple[Server, Server]:
    one, other = Server(case, **options), Server(case, **options)
    return await one.ready(), await other.ready()


def is_replayed(answer: Response) -> bool:
    return answer.headers.get("Idempotency-Replayed") == "true"


def executed_by(case: Case) -> list[int]:
    """Who has executed it, as the world saw it."""
    return [line["pid"] for line in case.ledger.lines()]


@pytest.mark.parametrize("join", [False, True], ids=["reject", "join"])
async def test_a_server_killed_in_the_middle_of_a_handler_costs_one_more_execution(new_case, join):
    case = new_case("killed")
    one, other = await two_servers(case, join=join, lease="2s")
    first = asyncio.create_task(one.charge("o-1"))
    await until(lambda: executed_by(case), "the first execution", one.process)
    one.process.signal(signal.SIGKILL)
    await one.process.ended()
    with pytest.raises(TransportError):
        await first
    case.raise_flag(GO)
    answer = await other.charge_until_answered("o-1")
    assert (answer.status_code, is_replayed(answer)) == (201, False)
    assert answer.json() == {"order": "o-1", "by": other.process.pid}
    again = await other.charge("o-1")
    assert (again.json(), is_replayed(again)) == (answer.json(), True)
    assert executed_by(case) == [one.process.pid, other.process.pid]
    assert len(other.process.logged("request taken over")) == 1
    await asyncio.gather(one.close(), other.close())


async def test_a_server_killed_after_its_answer_was_kept_costs_none(new_case):
    case = new_case("answered")
    case.raise_flag(GO)
    one, other = await two_servers(case)
    first = await one.charge("o-1")
    one.process.signal(signal.SIGKILL)
    await one.process.ended()
    again = await other.charge("o-1")
    assert (again.status_code, again.json(), is_replayed(again)) == (201, first.json(), True)
    assert executed_by(case) == [one.process.pid]
    await asyncio.gather(one.close(), other.close())


async def test_a_server_that_slept_through_its_lease_neither_keeps_nor_sends_its_answer(new_case):
    case = new_case("stopped")
    one, other = await two_servers(case, lease="2s")
    first = asyncio.create_task(one.charge("o-1"))
    await until(lambda: executed_by(case), "the first execution", one.process)
    one.process.signal(signal.SIGSTOP)
    await until(one.process.is_stopped, "the stop", one.process)
    case.raise_flag(GO)
    answer = await other.charge_until_answered("o-1")
    assert answer.json()["by"] == other.process.pid
    one.process.signal(signal.SIGCONT)
    late = await first
    assert (late.json(), is_replayed(late)) == (answer.json(), True)
    assert (await other.charge("o-1")).json() == answer.json()
    assert executed_by(case) == [one.process.pid, other.process.pid]
    assert one.process.logged("request overtaken")
    await asyncio.gather(one.close(), other.close())


@pytest.mark.parametrize("join", [False, True], ids=["reject", "join"])
async def test_fifty_duplicates_over_both_servers_are_executed_once(new_case, join):
    case = new_case("fifty")
    one, other = await two_servers(case, join=join)
    asked = [asyncio.create_task(server.charge_until_answered("o-1")) for server in (one, other) * 25]
    await until(lambda: executed_by(case), "the first execution", one.process, other.process)
    case.raise_flag(GO)
    answers = await asyncio.gather(*asked)
    assert len({answer.content for answer in answers}) == 1
    assert sum(not is_replayed(answer) for answer in answers) == 1
    assert len(executed_by(case)) == 1
    await asyncio.gather(one.close(), other.close())
