"""An import changes nothing in the process: what Holdfast arranges for workflows begins where a worker begins."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import asyncio, gc, json, logging, signal, sys, time, warnings

def seen():
    tasks = asyncio.tasks
    return [
        [asyncio.as_completed, asyncio.as_completed.__code__, tasks.as_completed, tasks._GatheringFuture.__hash__],
        [asyncio.sleep, asyncio.gather, asyncio.wait, asyncio.timeout, time.sleep, time.time],
        [list(gc.callbacks), asyncio.get_event_loop_policy(), sys.excepthook, sys.unraisablehook],
        [signal.getsignal(number) for number in signal.valid_signals()],
        [list(logging.getLogger().handlers), logging.getLogger().level],
        [list(logging.getLogger("holdfast").handlers), list(warnings.filters), list(sys.path)],
        hooks,
    ]

hooks = []
theirs = sys.addaudithook
sys.addaudithook = lambda hook: (hooks.append(repr(hook)), theirs(hook))
warnings.simplefilter("ignore")
before = seen()
before[-1] = []
import IMPORTED
after = seen()
assert before == after, [(was, now) for was, now in zip(before, after) if was != now]
WORKER
"""

WORKER = """
from holdfast import Holdfast
async def main():
    async with Holdfast("memory://"):
        pass
asyncio.run(main())
assert seen() != before, "a worker arranges nothing: this test sees nothing"
"""


def _runs(imported: str, worker: str = "") -> None:
    script = SCRIPT.replace("IMPORTED", imported).replace("WORKER", worker)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_an_import_changes_nothing_in_the_process_and_a_worker_does():
    _runs("holdfast", WORKER)


def test_neither_does_the_import_of_what_is_built_on_it():
    _runs("holdfast.gateway, holdfast.dashboard, holdfast.asgi, holdfast.cli, holdfast.runtime, holdfast.journal")
