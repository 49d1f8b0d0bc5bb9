"""What a process costs its servers in connections: as many as the pages say, however much is at work."""

from __future__ import annotations

import asyncio
import re

import pytest

from holdfast import Holdfast, Pack
from holdfast.lab.cluster.servers import start_redis
from tests.examples.pages import ROOT

PAGE = (ROOT / "docs" / "reference" / "cadences.md").read_text(encoding="utf-8")
pack = Pack("connections")


@pack.effect
async def done(number: int) -> int:
    return number


@pack.workflow(key="work:{number}")
async def work(number: int) -> int:
    return await done(number)


def told(to: str) -> int:
    return int(re.search(rf"^\| {re.escape(to)} \| (\d)", PAGE, re.MULTILINE)[1])


@pytest.mark.parametrize("has_bus", [False, True], ids=["by Pub/Sub", "with NATS"])
async def test_a_process_keeps_as_many_connections_as_the_page_says(has_bus, request, tmp_path):
    server = start_redis(tmp_path)
    bus = request.getfixturevalue("nats_server").url if has_bus else None
    try:
        async with Holdfast(server.url, packs=[pack], bus=bus) as hf:
            started = await asyncio.gather(*(hf.start(work(number)) for number in range(100)))
            await asyncio.gather(*(each.run.result() for each in started))
            asking = 1  # the connection that asks how many there are
            count = len(str(await asyncio.to_thread(server.ask, "CLIENT", "LIST")).splitlines()) - asking
    finally:
        server.kill()
    assert count == told("each Redis primary") + (0 if has_bus else told("one Redis server, if there is no bus"))
