"""The limit for code that computes without an await is a setting: a real worker, told by its environment or a file."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.errors import HeldUpItsWorker
from tests.faults.workflows_busy import BUSY, beside, busy, spin

pytestmark = pytest.mark.faults

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def worker(directory: Path, **environment: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """A process of `holdfast worker` on a file in this directory."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", "worker", BUSY),
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "HOLDFAST_URL": f"sqlite:///{directory}/holdfast.db",
            **environment,
        },
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


@pytest.mark.parametrize("said_by", ["environment", "file"])
async def test_a_worker_interrupts_busy_code_after_the_time_that_its_settings_say(tmp_path: Path, said_by: str) -> None:
    environment = {"HOLDFAST_BUSY_LIMIT": "200ms"} if said_by == "environment" else {}
    if said_by == "file":
        (tmp_path / "holdfast.toml").write_text('busy_limit = "200ms"\n')
    async with (
        Holdfast(f"sqlite:///{tmp_path}/holdfast.db", packs=[busy], worker=False) as hf,
        worker(tmp_path, **environment),
    ):
        stuck = (await hf.start(spin("a", 1.0))).run  # half of what it may without the setting
        with pytest.raises(HeldUpItsWorker, match=r"workflows_busy\.py:\d+"):
            await stuck.result("60s")
        others = [(await hf.start(beside(f"b-{n}"))).run for n in range(3)]
        assert [await run.result("60s") for run in others] == ["b-0", "b-1", "b-2"]  # the process lives
