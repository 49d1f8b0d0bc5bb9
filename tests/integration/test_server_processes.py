"""The processes of a local cluster, as faults are done to them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from holdfast.lab.cluster.processes import ServerProcess, wait_until

THREADS = 8
BUSY = f"""
import threading
def busy():
    while True:
        pass
for _ in range({THREADS}):
    threading.Thread(target=busy, daemon=True).start()
threading.Event().wait()
"""


@pytest.fixture
def process(tmp_path: Path):
    process = ServerProcess("busy", [sys.executable, "-c", BUSY], log=tmp_path / "log")
    process.start()
    yield process
    process.kill()


def states(process: ServerProcess) -> list[str]:
    stats = Path(f"/proc/{process.pid}/task").glob("*/stat")
    return [stat.read_text().rpartition(")")[2].split()[0] for stat in stats]


def test_a_process_that_was_stopped_stands_still(process) -> None:
    wait_until(lambda: len(states(process)) > THREADS, seconds=30, what=lambda: "its threads have not begun")
    for _ in range(50):
        process.stop_signal()
        assert set(states(process)) == {"T"}
        process.cont()


def test_a_process_that_is_dead_can_be_stopped_without_waiting(process) -> None:
    process.kill()
    process.stop_signal()
    assert process.state == "dead"
