"""What holds across processes: the same key in each, other ids in a forked one, whole lines in a shared ledger."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.testing import Ledger

SCRIPT = """
from datetime import datetime, UTC
from holdfast.kernel.keys import parse
key = parse("{a}:{b}:{c}", parameters=frozenset("abc"), owner="x")
print(key.fill({"a": "grün:%", "b": datetime(2024, 7, 1, tzinfo=UTC), "c": 1.1}))
"""


@pytest.mark.parametrize(
    "environment",
    [
        {"TZ": "UTC", "PYTHONHASHSEED": "1"},
        {"TZ": "Asia/Kolkata", "PYTHONHASHSEED": "2", "LC_ALL": "C"},
    ],
)
def test_the_key_is_the_same_in_every_process_and_time_zone(environment):
    """K18. The expected text is written down: a version that changed it would strand every live key."""
    printed = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", SCRIPT],
        env=os.environ | environment,
        capture_output=True,
        check=True,
        encoding="utf-8",
    ).stdout
    assert printed.strip() == "grün%3A%25:2024-07-01T00%3A00%3A00+00%3A00:1.1"


FORK = """
import os
from holdfast.adapters.machine import SystemIds
ids = SystemIds()
child = os.fork()
if child:
    os.waitpid(child, 0)
print(ids.nonce(), flush=True)
"""


def test_a_forked_process_draws_other_ids_than_its_parent():
    """Tried in a process of its own, which has no threads."""
    printed = subprocess.run([sys.executable, "-c", FORK], capture_output=True, check=True, text=True).stdout.split()
    assert len(printed) == 2
    assert len(set(printed)) == 2


PROCESSES = 4
LINES = 200


def write_all(path: str, name: int) -> None:
    ledger = Ledger(path)
    for number in range(LINES):
        ledger.write(writer=name, number=number, padding="x" * 500)


def test_lines_of_several_processes_are_whole_and_in_the_order_of_each(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=write_all, args=(str(ledger.path), name)) for name in range(PROCESSES)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert ledger.count() == PROCESSES * LINES
    for name, writer in enumerate(writers):
        assert [line["number"] for line in ledger.lines(writer=name)] == list(range(LINES))
        assert {line["pid"] for line in ledger.lines(writer=name)} == {writer.pid}
