"""An import changes nothing in the process, and loads what is asked for, and no more.

What Holdfast arranges for workflows begins where a worker begins. How long an import takes is measured by
`python -m bench --only startup`; here is counted what makes it long.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

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
    # `import holdfast` alone would load no other module, and so could not fail.
    _runs("holdfast.assembly, holdfast.gateway_client, holdfast.pack, holdfast.workflow, holdfast.effects", WORKER)


def test_neither_does_the_import_of_what_is_built_on_it():
    _runs("holdfast.gateway, holdfast.dashboard, holdfast.asgi, holdfast.cli, holdfast.runtime, holdfast.journal")


# What no program should load before it needs it. Most of it is in extras, and each costs milliseconds.
HEAVY = {
    *("apsw", "click", "hiredis", "httpx2", "jinja2", "nats", "opentelemetry", "prometheus_client", "pydantic", "rich"),
    *("starlette", "typer", "uvicorn", "uvloop", "email", "http", "importlib.metadata", "multiprocessing", "tomllib"),
    *("holdfast.asgi", "holdfast.blocking", "holdfast.buses", "holdfast.cli", "holdfast.dashboard", "holdfast.gateway"),
    *("holdfast.lab", "holdfast.server", "holdfast.stores", "holdfast.telemetry.metrics", "holdfast.telemetry.traces"),
    "holdfast.testing",
}
REMOTE = {"holdfast.gateway_client", "holdfast.wire"}
ENGINE = {"holdfast.assembly", "holdfast.engine.replica", "holdfast.engine.runs", "holdfast.engine.worker"}


def loaded(statement: str) -> set[str]:
    """The modules that a statement loads in a fresh process, beside those of asyncio and msgspec."""
    script = f"import asyncio, msgspec, json, sys; known = set(sys.modules); {statement}"
    script += "; print(json.dumps(sorted(set(sys.modules) - known)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def within(packages: set[str], modules: set[str]) -> set[str]:
    return {module for module in modules for package in packages if f"{module}.".startswith(f"{package}.")}


def test_the_package_loads_none_of_its_modules_until_a_name_is_asked_for():
    assert loaded("import holdfast") == {"holdfast"}
    assert "holdfast.errors" in loaded("import holdfast; holdfast.errors.RunFailed")
    assert within(HEAVY | REMOTE | ENGINE, loaded("from holdfast import UsageError, errors, events")) == set()


# The numbers are what is needed now and a few more. Raise one when what is new has to be there from the start.
@pytest.mark.parametrize(
    ("statement", "unwanted", "own_max", "others_max"),
    [
        ("from holdfast import Holdfast, Pack", HEAVY | REMOTE, 196, 25),
        ("from holdfast import Pack, sleep", HEAVY | REMOTE | ENGINE, 46, 15),
        ("from holdfast import Client", HEAVY | ENGINE, 118, 25),
    ],
)
def test_a_program_loads_only_what_it_needs(statement: str, unwanted: set[str], own_max: int, others_max: int):
    modules = loaded(statement)
    assert within(unwanted, modules) == set()
    own = within({"holdfast"}, modules)
    assert len(own) <= own_max
    assert len(modules - own) <= others_max, sorted(modules - own)


def test_the_walk_sees_what_is_unwanted():
    """Otherwise the tests above would hold whatever the code does."""
    everything = loaded("from holdfast import *; import holdfast.cli.runs, holdfast.blocking, holdfast.stores.sqlite")
    assert {"apsw", "typer", "rich", "holdfast.cli", "holdfast.stores"} <= within(HEAVY, everything)
    assert everything >= ENGINE | REMOTE
