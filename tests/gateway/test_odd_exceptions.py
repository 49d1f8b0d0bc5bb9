"""Whatever was raised in a run, every page, endpoint and command can show it."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from holdfast import Client, RunFailed
from holdfast.gateway.server import HttpServer
from holdfast.server import application
from tests.cli.conftest import Cli, Said
from tests.gateway.conftest import Serve
from tests.integration.conftest import SqliteHome
from tests.integration.test_odd_exceptions import odd, of_an_effect
from tests.odd_exceptions import ODD

# A command takes as long as a hundred requests, and shows what the endpoints show.
COMMANDED = ("a 900-deep group", "a group of 5,000", "words with surrogates", "words without measure", "a long name")


async def test_whatever_was_raised_is_shown_by_every_page_endpoint_and_command(serve: Serve, sqlite_home: SqliteHome):
    gateway = await serve(odd, on=sqlite_home)
    runs = {name: (await gateway.hf.start(of_an_effect(name)))[0] for name in ODD}
    for name, run in runs.items():
        assert (await run.wait()).status == "failed", name
    server = HttpServer(gateway.context.wait_limit)
    url = await server.start(application(gateway.context), "127.0.0.1", 0)
    try:
        async with httpx2.AsyncClient(base_url=url, timeout=30, trust_env=False) as http:
            for name, run in runs.items():
                for path in (f"/v1/runs/{run.id}", f"/v1/runs/{run.id}/journal", f"/v1/runs/{run.id}/explain"):
                    answer = await http.get(path)
                    assert answer.status_code == 200, (name, path, answer.text)
                assert (await http.get(f"/runs/{run.id}")).status_code == 200, name
        async with Client(url) as client:
            for run in runs.values():
                with pytest.raises(RunFailed):
                    await (await client.get(run.id)).result()
        said = await asyncio.to_thread(_said, url, [runs[name].id for name in COMMANDED])
        assert [each for each in said if each.code != 0] == []
    finally:
        await server.stop()


def _said(url: str, run_ids: list[str]) -> list[Said]:
    cli = Cli(HOLDFAST_URL=url)
    return [cli(command, run_id) for run_id in run_ids for command in ("show", "explain", "journal")]
