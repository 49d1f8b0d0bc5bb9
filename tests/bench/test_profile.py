"""The account can be trusted: counts repeat, each lands on its cause, and what belongs to no run is left out."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter

import msgspec
import pytest

from bench.profile import machine, page
from bench.profile.account import Account, entry_points, merged, weight
from bench.profile.causes import (
    ACCOUNT,
    ASYNCIO,
    BENCHMARK,
    COLLECTOR,
    OTHER,
    RECORDING,
    STORE,
    UPKEEP,
    YOURS,
    cause_below,
    place_of,
)
from bench.profile.counts import Frame, InstructionCounter, by_cause
from bench.profile.drawings import bars, flame
from bench.profile.samples import Sampler, Times
from holdfast.stores.sqlite.store import SqliteStore
from tests.unit.repository.sources import ROOT

RUNS = 50
CALLGRIND = """\
events: Ir
ob=(1) /usr/lib/libpython3.11.so.1.0
fl=(1) ceval.c
fn=(1) eval
12 100
+3 40
cob=(2) /env/site-packages/apsw/__init__.cpython-311.so
cfn=(2) execute
calls=7 20
+1 9000
* 5
ob=(2)
fn=(2)
20 600
ob=(3) /env/lib-dynload/_blake2.so
fn=(3)
-4 30
ob=(1)
fn=(1)
13 1
"""


def asked(module: str, workload: str, size: int, out) -> bytes:
    command = [sys.executable, "-m", f"bench.profile.{module}", workload, "--size", str(size), "--out", str(out)]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": "0"}, check=True)
    return out.read_bytes()


def counted(workload: str, size: int, out) -> Counter[str]:
    counts = by_cause(msgspec.json.decode(asked("counts", workload, size, out), type=Frame))
    return Counter({cause.name: counts[cause.name] for cause in ACCOUNT})


def test_counts_repeat_and_grow_with_the_work(tmp_path):
    first, again, double = (counted("W1", size, tmp_path / "counts.json") for size in (RUNS, RUNS, 2 * RUNS))
    assert first.total() > 1_000 * RUNS
    assert first.total() == pytest.approx(again.total(), rel=0.01)
    assert 2 * first.total() == pytest.approx(double.total(), rel=0.01)
    assert first[YOURS.name] == again[YOURS.name] == double[YOURS.name] / 2 > 0
    for cause in ("the call", "admission", "building the run", "recording", "the store"):
        assert first[cause] == pytest.approx(again[cause], rel=0.05)  # batches differ with the machine
        assert first[cause] > 0


def test_samples_share_out_all_of_the_time(tmp_path):
    times = msgspec.json.decode(asked("samples", "W1", 4 * RUNS, tmp_path / "samples.json"), type=Times)
    assert times.causes.keys() == {cause.name for cause in ACCOUNT}
    assert sum(times.causes.values()) == pytest.approx(1)
    assert times.loop + times.writer + times.neither == pytest.approx(1)
    assert times.causes[STORE.name] > 0
    assert times.samples > 0


def test_what_a_thread_has_used_counts_for_the_function_it_is_in_and_the_rest_for_the_store():
    readings = iter([(0, 0, 0), (10, 8, 5), (20, 10, 6)])
    sampler = Sampler(clocks=lambda: next(readings))
    sampler._last = next(readings)
    sampler._sample(None)  # no frame of ours: the event loop of the process
    assert sampler._spent == {ASYNCIO.name: 5, STORE.name: 3, COLLECTOR.name: 0}
    assert sampler._alone == {"loop": 5, "writer": 3, "neither": 2}
    sampler._last = (10, 8, 5)
    sampler._collected.update({True: 1, False: 1})
    sampler._sample(None)
    assert sampler._spent == {ASYNCIO.name: 5, STORE.name: 3, COLLECTOR.name: 2}
    assert sampler._alone == {"loop": 6, "writer": 4, "neither": 10}


def _twice() -> int:
    return _once() + _once()


def _once() -> int:
    return 1


def test_a_counter_counts_each_instruction_where_it_is_executed():
    counter, before = InstructionCounter(), sys.gettrace()
    counter.install()
    try:
        _twice()  # before the beginning
        counter.begin()
        for _ in range(10):
            _twice()
        counter.end()
        _twice()
    finally:
        counter.remove()
        sys.settrace(before)
    assert counter.counted is not None
    frames = {frame.function: frame for frame in counter.counted.walk()}
    assert frames["_twice"].calls == 10
    assert frames["_once"].calls == 20
    assert frames["_once"].instructions % 20 == 0
    assert frames["_once"] in frames["_twice"].below
    assert frames["_twice"].instructions > frames["_once"].instructions / 2 > 0


def test_code_of_a_library_counts_for_its_caller_and_upkeep_takes_all_below_it():
    library, tasks, store = subprocess.run.__code__, asyncio.gather.__code__, SqliteStore.commit.__code__
    assert cause_below(library, RECORDING) is RECORDING
    assert cause_below(tasks, RECORDING) is ASYNCIO
    assert cause_below(tasks, BENCHMARK) is BENCHMARK
    assert cause_below(store, RECORDING) is STORE
    assert cause_below(store, UPKEEP) is UPKEEP
    assert [place_of(code) for code in (tasks, store)] == ["asyncio/tasks.py", "stores/sqlite/store.py"]


def leaf(function: str, cause: str, instructions: int, *below: Frame) -> Frame:
    return Frame("file.py", function, cause, instructions, 1, list(below))


TREE = leaf(
    "",
    OTHER.name,
    0,
    leaf("bench", BENCHMARK.name, 9, leaf("start", "the call", 5), leaf("start", "the call", 6)),
    leaf("run", ASYNCIO.name, 3, leaf("drive", RECORDING.name, 20, leaf("sleep", ASYNCIO.name, 2))),
    leaf("look", UPKEEP.name, 100, leaf("clock", UPKEEP.name, 1)),
)


def test_holdfast_is_entered_from_outside_and_upkeep_is_left_out():
    entered = entry_points(TREE)
    assert [(frame.function, weight(frame)) for frame in entered] == [("drive", 22), ("start", 11)]
    assert [frame.function for frame in entered[0].below] == ["sleep"]


def test_the_same_function_reached_by_two_ways_is_one_with_all_below_it():
    one, other = leaf("f", STORE.name, 1, leaf("g", STORE.name, 2)), leaf("f", STORE.name, 3, leaf("g", STORE.name, 4))
    [found] = merged([one, other])
    assert (found.instructions, found.calls, weight(found)) == (4, 2, 10)
    assert [frame.instructions for frame in found.below] == [6]


def an_account(**changes) -> Account:
    shares = {cause.name: 1 / len(ACCOUNT) for cause in ACCOUNT}
    times = Times(shares, loop=0.5, writer=0.3, neither=0.2, samples=10)
    sketch = leaf("", OTHER.name, 12)
    fields = {"workload": "W2", "unit": "effect", "size": 2, "tree": TREE, "tree_of_sketch": sketch, "times": times}
    return Account(**(fields | changes))


def test_what_belongs_to_no_run_is_not_part_of_the_account():
    account = an_account()
    assert account.total() == (5 + 6 + 3 + 20 + 2) / 2  # neither upkeep nor the benchmark
    assert account.total_of_sketch() == 6


def test_the_page_shows_every_cause_and_keeps_what_is_written_by_hand():
    machine_counts = {"the interpreter": 900.0, "SQLite, and apsw": 100.0}
    part = page.account_page([an_account(machine=machine_counts, machine_of_sketch=250.0)])
    assert "| recording | 10 | 55.6% | 6.2% |" in part
    assert "| **an effect** | **18** |" in part
    assert "Holdfast executes 3.0 times as many" in part
    assert "| the interpreter | 900 | 90.0% |" in part
    assert "| the same by the sketch | 250 | 1/4.0 |" in part
    assert "## By library" not in page.account_page([an_account()])
    text = page.replaced(f"before\n{page.BEGIN}\nfrom before\n{page.END}\nafter\n", part)
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "from before" not in text
    assert page.replaced(text, part) == text
    with pytest.raises(ValueError, match="no place"):
        page.replaced("a page", part)


def test_the_drawings_show_causes_and_functions():
    account = an_account()
    drawn = bars("a title", {"time": account.times.causes}, sketch=0.25)
    assert all(f">{cause.name}<" in drawn for cause in ACCOUNT)
    functions = flame("a < title", entry_points(account.tree), account.size)
    assert "a &lt; title" in functions
    assert "drive (file.py): 11 instructions, 66.7%" in functions


def test_instructions_of_the_processor_are_told_apart_by_library():
    counts = machine.by_object(CALLGRIND.splitlines(keepends=True))
    assert machine.parts_of(counts) == {
        "the interpreter": 100 + 40 + 5 + 1,
        "SQLite, and apsw": 600,
        machine.THE_REST: 30,
    }
