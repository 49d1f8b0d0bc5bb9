"""Which part of the work a function belongs to: the causes of the account, in the order in which a run meets them.

A pattern is a path below `src/holdfast`, or a path and a function. Where several fit, one that names a function is
stronger than one that does not, and an earlier one than a later. Code of other libraries counts for the code that
called it, but for asyncio and its helpers, which are a cause of their own.

A test holds that every module of the engine has a cause, and that every pattern fits a module.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import CodeType

import holdfast

PACKAGE = Path(holdfast.__file__).parent
BENCH = Path(__file__).parents[1]


@dataclass(frozen=True)
class Cause:
    """A part of the work. `words` say what is done there."""

    name: str
    words: str
    patterns: tuple[str, ...] = ()


CALL = Cause(
    "the call",
    "calls are built from their arguments, keys are filled in, options are checked: by `start` and for each effect",
    (
        "client.py",
        "run.py",
        "calls.py",
        "pack.py",
        "resources.py",
        "signatures.py",
        "assembly.py",
        "blocking.py",
        "runtime.py",
        "engine/api/service.py",
        "engine/api/start_options.py",
        "engine/api/scope.py",
        "engine/api/backend.py",
        "engine/api/registry.py",
        "engine/api/queries.py",
        "engine/api/at_work.py",
        "kernel/keys.py",
        "kernel/key_types.py",
    ),
)
ADMISSION = Cause(
    "admission",
    "what is wanted becomes a Change, and a taken key is resolved",
    ("engine/api/admission.py", "kernel/starts.py", "kernel/ids.py"),
)
PAYLOADS = Cause(
    "payloads",
    "inputs, arguments and results are encoded, decoded and named by a digest",
    ("adapters/payloads.py", "engine/values.py"),
)
COMMITTER = Cause(
    "the committer",
    "Changes are gathered into batches, and what became of each is handed back",
    ("engine/committer.py",),
)
STORE = Cause(
    "the store",
    "guards are checked and rows are written, on the writing thread; its time includes SQLite's",
    ("stores/*",),
)
BUILDING = Cause(
    "building the run",
    "a slot, a claim, a look at the lease, and the objects that a run in memory consists of",
    (
        "engine/worker/worker.py",
        "engine/worker/claims.py",
        "engine/worker/held.py",
        "engine/worker/lease.py",
        "engine/worker/mail.py",
        "engine/worker/slots.py",
        "engine/worker/handing.py",
        "engine/worker/waker.py",
        "engine/worker/watchdog.py",
        "engine/runs/activation.py:Activation.__init__",
        "engine/runs/activation.py:Activation._load",
        "engine/runs/loaded_run.py:LoadedRun.of",
        "engine/runs/in_flight.py:StepsInFlight.__init__",
        "engine/runs/performer.py:Performer.__init__",
        "engine/runs/host.py",
        "engine/code/machine.py:Machine.__post_init__",
        "engine/code/loop.py:WorkflowLoop.__init__",
        "engine/ports.py",
    ),
)
LOOP = Cause(
    "the workflow loop",
    "the code of the run is started, given its entries and executed until it is quiet",
    ("engine/code/*", "engine/cancelling.py", "workflow.py", "kernel/replay.py", "kernel/hooks.py", "kernel/waits.py"),
)
PERFORMING = Cause(
    "performing effects",
    "an attempt is begun, watched and ended",
    (
        "engine/runs/in_flight.py",
        "engine/runs/performer.py",
        "engine/runs/open_resources.py",
        "engine/runs/threads.py",
        "engine/runs/heartbeats.py",
        "engine/attempts.py",
        "engine/remote/*",
        "engine/flow/*",
        "engine/runs/held_effects.py",
        "effects.py",
        "kernel/retries.py",
        "kernel/tasks.py",
    ),
)
RECORDING = Cause(
    "recording",
    "what has arrived becomes entries, and those one Change at the fence of the run",
    (
        "engine/runs/activation.py",
        "engine/runs/loaded_run.py",
        "engine/runs/never_awaited.py",
        "engine/runs/completions.py",
        "engine/runs/leftovers.py",
        "engine/failures.py",
        "kernel/journal.py",
        "kernel/steps.py",
        "kernel/transitions.py",
        "kernel/changes.py",
        "kernel/runs.py",
        "kernel/messages.py",
        "kernel/cancels.py",
        "kernel/markers.py",
        "kernel/attributes.py",
        "journal.py",
    ),
)
RESULTS = Cause(
    "results",
    "those who wait are told that the run has ended",
    ("engine/api/waiters.py", "engine/api/subscriptions.py", "engine/wakeups.py"),
)
CLOCK = Cause(
    "clock and ids", "the time, ids and nonces", ("adapters/machine.py", "kernel/times.py", "kernel/units.py")
)
EVENTS = Cause(
    "events",
    "what happens is said, to metrics, logs and traces",
    ("events.py", "telemetry/*", "engine/tracing.py", "kernel/traces.py"),
)
ASYNCIO = Cause("asyncio", "tasks, futures and the event loop of the process, uvloop if it is installed")
COLLECTOR = Cause("Python's collector", "cycles are looked for; it executes no bytecode of ours")
YOURS = Cause("your code", "the workflow and its effect, which does nothing here")
OTHER = Cause(
    "other",
    "what is on no other line",
    (
        "engine/api/signals.py",
        "engine/api/operations.py",
        "engine/api/bulk.py",
        "engine/api/lanes.py",
        "engine/worker/child_lanes.py",
        "engine/bulk_pack.py",
        "engine/api/exporting.py",
        "engine/api/decisions.py",
        "engine/api/documents.py",
        "engine/api/flow.py",
        "engine/api/apikeys.py",
        "engine/api/rate_limits.py",
        "engine/pace.py",
        "engine/replica.py",
        "engine/replay_check.py",
    ),
)
# These belong to no run: they come with time, or with the benchmark. They are counted, and not part of the account.
UPKEEP = Cause(
    "upkeep",
    "leases, duties, looks at the file for commits of others: it comes with time, and with no run",
    (
        "engine/duties/*",
        "engine/alarms.py",
        "engine/announcements.py",
        "engine/worker/codes.py",
        "engine/replica.py:Replica._forever",
        "stores/sqlite/commit_watch.py",
    ),
)
BENCHMARK = Cause("the benchmark", "starts the runs, and awaits their results")

ACCOUNT = (
    *(CALL, ADMISSION, PAYLOADS, COMMITTER, STORE, BUILDING, LOOP, PERFORMING, RECORDING, RESULTS),
    *(CLOCK, EVENTS, ASYNCIO, COLLECTOR, YOURS, OTHER),
)
BESIDE = (UPKEEP, BENCHMARK)
CAUSES = {cause.name: cause for cause in (*ACCOUNT, *BESIDE)}
_PATTERNS = [(*pattern.partition(":")[::2], cause) for cause in CAUSES.values() for pattern in cause.patterns]
_ASYNCIO = ("asyncio/", "uvloop/", "_weakrefset.py", "selectors.py")
_WORKFLOWS = {"bench/contenders/holdfast_pack.py", "bench/contenders/sketch.py"}
_STARTS_THE_LOOP = {"asyncio/runners.py", "uvloop/__init__.py"}


def cause_of(path: str, function: str = "") -> Cause | None:
    """The cause of a module below the package, or of one of its functions; None if no pattern fits."""
    for named in (True, False):
        for path_wanted, function_wanted, cause in _PATTERNS:
            fits = fnmatchcase(path, path_wanted) and (not named or fnmatchcase(function, function_wanted))
            if fits and bool(function_wanted) == named:
                return cause
    return None


@cache
def place_of(code: CodeType) -> str:
    """The file of this code as the account names it: below the package or the repository, or of which library it is."""
    path = Path(code.co_filename)
    for top, root in ((PACKAGE, PACKAGE), (BENCH, BENCH.parent)):
        if path.is_relative_to(top):
            return path.relative_to(root).as_posix()
    return "/".join(path.parts[-2:]) if path.parent.name in {"asyncio", "uvloop"} else path.name


@cache
def own_cause(code: CodeType) -> Cause | None:
    """The cause of this code; None if it counts for the code that called it."""
    path, place = Path(code.co_filename), place_of(code)
    if path.is_relative_to(PACKAGE):
        return cause_of(place, code.co_qualname) or OTHER
    if path.is_relative_to(BENCH):
        return _cause_in_the_benchmark(place, code.co_qualname)
    return ASYNCIO if place.startswith(_ASYNCIO) else None


def cause_below(code: CodeType, caller: Cause) -> Cause:
    """The cause of this code where code of another cause has called it."""
    own = own_cause(code)
    if own is None or caller is UPKEEP:  # what is done for upkeep is upkeep, whatever does it
        return caller
    if own is ASYNCIO and caller is BENCHMARK and place_of(code) not in _STARTS_THE_LOOP:
        return caller  # its own task group
    return own


def _cause_in_the_benchmark(place: str, function: str) -> Cause:
    """Where workflows are written, and where the sketch is: it is held against Holdfast as a whole, without causes."""
    if place.startswith("bench/contenders/sketch_"):
        return OTHER
    is_method = "." in function  # of the class that offers the verbs
    return YOURS if place in _WORKFLOWS and not is_method else BENCHMARK
