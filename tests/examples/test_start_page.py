"""docs/start.md, done as the page says."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from holdfast import Holdfast, UnknownRun
from tests.examples.pages import ROOT, blocks

PAGE = ROOT / "docs" / "start.md"


@pytest.fixture
def shop(tmp_path):
    [block] = [block for block in blocks(PAGE) if block.info == "python file"]
    (tmp_path / "shop.py").write_text(block.body)
    return tmp_path


def start(directory) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(
        [sys.executable, "shop.py"], cwd=directory, env=environment, stdout=subprocess.PIPE, text=True
    )


async def until_it_waits(hf: Holdfast) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                if (await hf.find("shop.checkout", "checkout:o-1")).status == "waiting":
                    return
            except UnknownRun:
                pass
            await asyncio.sleep(0.02)


@pytest.mark.faults
async def test_the_order_of_the_first_five_minutes_survives_a_kill(shop):
    first = start(shop)
    assert first.stdout is not None
    assert {first.stdout.readline(), first.stdout.readline()} == {
        f"process {first.pid} started a run that is running\n",
        "  charging 4200 under the key charge:o-1\n",
    }

    async with Holdfast(f"sqlite:///{shop}/shop.db", worker=False) as hf:
        await until_it_waits(hf)
        first.send_signal(signal.SIGKILL)
        assert first.wait() == -signal.SIGKILL
        assert first.stdout.read() == ""
        first.stdout.close()

        second = start(shop)
        said, _ = await asyncio.to_thread(second.communicate, timeout=60)
        assert said.splitlines() == [
            f"process {second.pid} found a run that is waiting",
            "  shipping under the key ship:o-1",
            "['payment of o-1', 'parcel of o-1']",
        ]
        third = start(shop)
        said, _ = await asyncio.to_thread(third.communicate, timeout=60)
        assert said.splitlines() == [
            f"process {third.pid} found a run that is completed",
            "['payment of o-1', 'parcel of o-1']",
        ]
        journal = await (await hf.find("shop.checkout", "checkout:o-1")).journal()
        assert [type(entry).__name__ for entry in journal] == [
            "Started",
            "Performed",
            "Elapsed",
            "Performed",
            "Completed",
        ]
