"""What a gateway responds about the stored runs. It serves a copy of the file and executes nothing: all stands still.

It is started by its command, since the names inside of it may move.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60.0
SERVE = ("serve", "tests.compatibility.served", "--roles", "gateway", "--no-dashboard", "--open")
PROBLEM = "urn:holdfast:problem:"
# Sentences for people, which may be written better: those of a refusal, and those of a story or a wait.
OF_A_REFUSAL = {"title", "detail", "hint"}
OF_A_STORY = {"headline", "text"}


def requests(runs: Mapping[str, str]) -> list[tuple[str, str, Any]]:
    """Method, path and body, none of which changes anything but a start, which is the last."""
    of_each = ("", "/input", "/journal", "/result", "/receipt", "/explain")
    return [
        *(("GET", f"/v1/runs/{run_id}{part}", None) for run_id in runs.values() for part in of_each),
        ("GET", "/v1/runs", None),
        ("GET", "/v1/runs?limit=3&status=completed", None),
        ("GET", "/v1/runs?workflow=shop.timer&status=waiting", None),
        ("GET", "/v1/runs/unknown", None),
        ("GET", f"/v1/runs/{runs['finished']}/events", None),
        ("GET", "/v1/workflows", None),
        ("GET", "/v1/workflows/shop.tracked", None),
        ("GET", "/v1/workflows/shop.choosing/holder?key=choosing", None),
        ("GET", "/v1/workflows/shop.unknown", None),
        ("GET", "/v1/workers", None),
        ("GET", "/v1/api-keys", None),
        ("GET", "/v1/nowhere", None),
        ("POST", f"/v1/runs/{runs['finished']}/retry", None),
        ("POST", f"/v1/runs/{runs['buying']}/resume", None),
        ("POST", f"/v1/runs/{runs['approval']}/signal", {"hook": "approve", "payload": "not a bool"}),
        ("POST", "/v1/hooks/no-such-token", {"payload": 1}),
        ("POST", "/v1/tasks/unknown/complete", {"fence": 1, "result": 1}),
        ("POST", "/v1/workflows/shop.finished/runs", {"input": {"order": "another"}, "key": "finished"}),
        ("POST", "/v1/workflows/shop.finished/runs", {"input": {"order": "finished"}}),
        ("POST", "/v1/workflows/shop.finished/runs", {"input": {"ordre": "finished"}}),
    ]


async def responses(file: Path, runs: Mapping[str, str]) -> list[str]:
    """One line for each request: what was sent, and status, media type and body of the response."""
    async with _serving(file) as http:
        return [await _response(http, *request) for request in requests(runs)]


async def _response(http: httpx2.AsyncClient, method: str, path: str, body: Any) -> str:
    response = await http.request(method, path, **({} if body is None else {"json": body}))
    media = response.headers.get("content-type")
    sent = json.dumps(_for_machines(response.json())) if "json" in media else response.text
    return json.dumps([method, path, body, response.status_code, media, sent])


def _for_machines(node: Any) -> Any:
    """The body of a response, without sentences."""
    match node:
        case dict():
            is_refusal = str(node.get("type")).startswith(PROBLEM)
            left_out = OF_A_REFUSAL if is_refusal else OF_A_STORY
            return {name: "..." if name in left_out else _for_machines(value) for name, value in node.items()}
        case list():
            return [_for_machines(each) for each in node]
        case _:
            return node


@asynccontextmanager
async def _serving(file: Path) -> AsyncIterator[httpx2.AsyncClient]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = ("--url", f"sqlite:///{file}", "--port", str(port))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", *SERVE, *where, cwd=ROOT, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS, trust_env=False
        ) as http:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not await _is_ready(http):
                    assert process.returncode is None, "the gateway has ended"
                    await asyncio.sleep(0.1)
            yield http
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _is_ready(http: httpx2.AsyncClient) -> bool:
    try:
        return (await http.get("/readyz")).status_code == 200
    except httpx2.TransportError:
        return False
