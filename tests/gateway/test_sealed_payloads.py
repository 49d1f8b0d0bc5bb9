"""A gateway with the seal returns payloads; one without it says which key is missing."""

from __future__ import annotations

import pytest

from holdfast import Client
from holdfast.errors import SealedPayload
from holdfast.journal import Performed
from tests.cli.locks import Lock
from tests.gateway.conftest import Gateway, Serve
from tests.gateway.works import Works
from tests.integration.conftest import SqliteHome


async def test_with_and_without_the_seal(serve: Serve, works: Works, sqlite_home: SqliteHome) -> None:
    with_seal: Gateway = await serve(works.pack, on=sqlite_home, seal=Lock())
    without: Gateway = await serve(on=sqlite_home, worker=False)
    started = await with_seal.http.post("/v1/workflows/order/runs?wait=30s", json={"input": {"order": "canary"}})
    async with Client(with_seal.url) as client:
        run = await client.get(started.json()["id"])
        result, given = await run.result(), await run.input()
    async with Client(without.url) as client:
        run = await client.get(run.id)
        assert run.status == "completed"
        assert {repr(entry.value) for entry in await run.journal() if isinstance(entry, Performed)} == {
            "<sealed under key k1>"
        }
        for read in (run.result, run.input):
            with pytest.raises(SealedPayload, match="key 'k1'"):
                await read()
    response = await without.http.get(f"/v1/runs/{run.id}/input")
    assert (response.status_code, response.json()["code"]) == (409, "sealed_payload")
    async with Client(with_seal.url) as client:
        again = await client.get(run.id)
        assert (await again.result(), await again.input()) == (result, given)
