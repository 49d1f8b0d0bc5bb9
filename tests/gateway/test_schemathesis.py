"""schemathesis reads the gateway's own OpenAPI document, and tries to prove it wrong: all checks, all phases."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.gateway.conftest import Launch

CONFIG = Path(__file__).with_name("schemathesis.toml")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("keys", [False, True], ids=["open", "with keys"])
async def test_the_gateway_does_what_its_document_says(launch: Launch, tmp_path: Path, keys: bool) -> None:
    db = tmp_path / "home.db"
    # Long polls are cut short, so that most of the time is spent on requests.
    options = ["--wait-max", "0.2", *(["--keys"] if keys else [])]
    gateway = await launch("tests.gateway.fuzzed", db, *options)
    key: list[str] = []
    if keys:
        async with Holdfast(f"sqlite:///{db}", worker=False) as hf:
            token, _ = await hf.api_keys.create("schemathesis", namespace="default", scope="admin")
        key = ["--header", f"Authorization: Bearer {token}"]
    program = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"]
    target = ["--config-file", str(CONFIG), "run", f"{gateway.url}/openapi.json", *key]
    checks = ["--checks=all", "--seed=1", "--max-examples=5", "--no-shrink", "--generation-database=none"]
    output = ["--no-color", "--warnings=off", "--output-truncate=false", f"--report-dir={tmp_path}"]
    process = await asyncio.create_subprocess_exec(
        *(*program, *target, *checks, *output),
        cwd=tmp_path,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
