"""docs/guides/calling-over-http.md is true: each `curl` of it is made, and the JSON behind it is part of the answer."""

from __future__ import annotations

import asyncio
import json
import shlex
from argparse import ArgumentParser
from typing import Any

import httpx2

from examples.shop import shop
from holdfast import Holdfast
from holdfast.gateway.endpoints import GatewaySettings
from holdfast.gateway.server import HttpServer
from holdfast.server import application, context
from tests.examples.pages import ROOT, blocks

PAGE = ROOT / "docs" / "guides" / "calling-over-http.md"
PATIENCE_SECONDS = 30.0
ADDRESS = "http://127.0.0.1:8787"


def _curl() -> ArgumentParser:
    """As much of curl's command line as the page uses."""
    parser = ArgumentParser()
    parser.add_argument("curl")
    parser.add_argument("url")
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-X", dest="method")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-d", dest="data")
    return parser


async def test_each_request_of_the_page_is_answered_as_it_says() -> None:
    async with Holdfast("memory://", packs=[shop]) as hf:
        shared = context(hf, settings=GatewaySettings(require_keys=False))
        server = HttpServer(shared.wait_limit)
        url = await server.start(application(shared, dashboard=False), "127.0.0.1", 0)
        try:
            async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=60) as http:
                made = await _all_made(http)
        finally:
            await server.stop()
    assert made >= 9


async def _all_made(http: httpx2.AsyncClient) -> int:
    made, answer = 0, dict[str, Any]()
    for block in blocks(PAGE):
        if block.info == "sh" and block.body.startswith("curl"):
            answer = await _made(http, block.body.replace("$RUN", answer.get("id", "")))
            made += 1
        elif block.info == "json":
            _assert_part(json.loads(block.body), answer)
    return made


async def _made(http: httpx2.AsyncClient, command: str) -> dict[str, Any]:
    wanted = _curl().parse_args(shlex.split(command.replace("\\\n", " ")))
    method = wanted.method or ("GET" if wanted.data is None else "POST")
    headers = dict(header.split(": ", 1) for header in wanted.headers)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            reply = await http.request(method, wanted.url.removeprefix(ADDRESS), headers=headers, content=wanted.data)
            if reply.json().get("code") != "unknown_hook":  # the order is on its way to its hook: a reader is slower
                break
            await asyncio.sleep(0.05)
    assert reply.status_code < 500, reply.text
    return reply.json()


def _assert_part(expected: Any, found: Any) -> None:
    """`expected` is a part of `found`; an ellipsis stands for anything, and an empty list for any list."""
    if isinstance(expected, dict):
        for name, value in expected.items():
            assert name in found, found
            _assert_part(value, found[name])
    elif expected not in ("…", [], None):
        assert found == expected
