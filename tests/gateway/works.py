"""Workflows to be asked for over HTTP, and a ledger that knows what their effects did."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2

from holdfast import Pack, continue_as_new, hook, sleep
from tests.integration.conftest import PATIENCE_SECONDS
from tests.integration.ledgers import ONCE, Ledger

if TYPE_CHECKING:
    from tests.gateway.conftest import Gateway

LARGE = 300_000  # more than is kept in the journal itself


class Works:
    """Effects are known to the ledger as `act:<name>`; one that it holds begins, and waits there."""

    def __init__(self) -> None:
        self.pack = pack = Pack("w")
        self.ledger = ledger = Ledger()

        @pack.effect(key="act:{name}", retry=ONCE)
        async def act(name: str) -> str:
            return await ledger.act()

        @pack.effect(retry=ONCE)
        async def put_back(name: str) -> None:
            await ledger.act(f"put back:{name}")

        @pack.effect(key="act:{name}", retry=ONCE, undo=put_back)
        async def take(name: str) -> str:
            return await ledger.act()

        @pack.workflow
        async def plain(name: str) -> str:
            """Without a key.

            It acts, and says so.
            """
            return await act(name)

        @pack.workflow(key="order:{order}")
        async def order(order: str, lines: list[int] | None = None) -> dict[str, Any]:
            """Takes, and acts."""
            return {"taken": await take(f"stock-{order}"), "acted": await act(order), "lines": lines}

        @pack.workflow(key="ask:{order}")
        async def ask(order: str) -> list[Any]:
            """Waits for two answers."""
            approval = hook("approval", f"approve/{order}", type=bool)
            return [await approval, await hook("more")]

        @pack.workflow
        async def large(size: int, text: str = "") -> str:
            return "é" * size

        @pack.workflow
        async def fail(message: str) -> None:
            raise ValueError(message)

        @pack.workflow
        async def stand_still() -> None:
            await asyncio.get_running_loop().create_future()

        @pack.workflow(key="day:{name}")
        async def day(name: str) -> None:
            await sleep("1d")

        @pack.workflow(key="entity:{name}")
        async def entity(name: str, generation: int = 0) -> int:
            await hook("go")
            if generation == 2:
                return generation
            return continue_as_new(entity(name, generation + 1))

        self.order = order
        self.fail = fail


async def started(gateway: Gateway, workflow: str, **input: Any) -> dict[str, Any]:
    """A run that was just started."""
    answer = await gateway.http.post(f"/v1/workflows/{workflow}/runs", json={"input": input})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def settled(gateway: Gateway, run: dict[str, Any]) -> dict[str, Any]:
    """The run once it has ended or is blocked."""
    await gateway.http.get(f"/v1/runs/{run['id']}/result?wait=30s")
    answer = await gateway.http.get(f"/v1/runs/{run['id']}")
    return answer.json()


async def entries(gateway: Gateway, run: dict[str, Any]) -> list[dict[str, Any]]:
    """The journal of the run."""
    return (await gateway.http.get(f"/v1/runs/{run['id']}/journal")).json()["entries"]


def problem(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """What the answer refuses, if it does so with this status and this code."""
    told = answer.json()
    assert (answer.status_code, told.get("code")) == (status, code), answer.text
    return told


class Heard:
    """One event of a stream."""

    def __init__(self, fields: dict[str, str]) -> None:
        self.id = int(fields["id"]) if "id" in fields else None
        self.event = fields["event"]
        self.text = fields["data"]

    def __repr__(self) -> str:
        return f"{self.id} {self.event} {self.text}"


@asynccontextmanager
async def listening(
    http: httpx2.AsyncClient, run_id: str, *, after: int | None = None, query: str = ""
) -> AsyncIterator[AsyncIterator[Heard]]:
    """The events of a run, as they come; heartbeats are passed over."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        http.stream("GET", f"/v1/runs/{run_id}/events{query}", headers=headers) as response,
    ):
        assert response.status_code == 200, await response.aread()
        yield _heard(response)


async def _heard(response: httpx2.Response) -> AsyncIterator[Heard]:
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if not line:
            if "event" in fields:
                yield Heard(fields)
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
