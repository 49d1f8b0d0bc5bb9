"""A workflow that computes without an await is interrupted and blocked; the other runs of its process go on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from holdfast import Pack
from holdfast.engine.code.turns import HERE, HeldUp, ThreadTurn
from holdfast.errors import HeldUpItsWorker
from tests.integration.conftest import Home

busy = Pack("busy")
performed: list[str] = []
mended = threading.Event()


@busy.effect
async def work(name: str) -> str:
    performed.append(name)
    return name


@busy.workflow
async def spins(name: str) -> str:
    await work(name)
    while not mended.is_set():
        pass
    return await work(f"{name} again")


@busy.workflow
async def shrugs(name: str) -> str:
    """Takes what it is interrupted with for something else, once."""
    try:
        while not mended.is_set():
            pass
    except BaseException:
        pass
    return await work(name)


@busy.workflow
async def quick(name: str) -> str:
    await asyncio.sleep(0.01)
    return await work(name)


@pytest.fixture(autouse=True)
def nothing_is_mended():
    performed.clear()
    mended.clear()


@pytest.mark.parametrize("workflow", [spins, shrugs])
async def test_it_is_blocked_with_its_line_and_the_others_go_on(home: Home, workflow) -> None:
    home.paced(code_seconds_max=0.2)
    async with home.holdfast(busy) as hf:
        stuck = (await hf.start(workflow("a"))).run
        others = [(await hf.start(quick(f"q-{n}"))).run for n in range(5)]
        with pytest.raises(HeldUpItsWorker, match=r"test_code_that_never_returns\.py:\d+"):
            await stuck.result("30s")
        assert [await run.result("30s") for run in others] == [f"q-{n}" for n in range(5)]
        assert (await stuck.refresh()).waiting_on[0].name.startswith("held_up_its_worker: ")

        # What it had recorded stays; mended, it goes on from there.
        mended.set()
        await stuck.retry()
        await stuck.result("30s")
    assert performed.count("a") == 1


async def test_without_a_limit_nothing_is_interrupted(home: Home) -> None:
    home.paced(code_seconds_max=0.1)
    async with home.holdfast(busy, busy_limit=0) as hf:
        threading.Timer(0.5, mended.set).start()
        assert await (await hf.start(spins("a"))).run.result("30s") == "a again"


def test_an_interruption_that_comes_too_late_reaches_nothing():
    turn = HERE.turn
    turn.is_inside = False
    other = threading.Thread(target=lambda: turn.interrupt(turn.steps, "late.py:1"))
    other.start()
    other.join()
    assert turn.is_firing
    assert turn.settle() == ""
    assert not turn.is_firing


TRACED = """
import sys, threading
from holdfast.engine.code.turns import HERE

def trace(frame, event, arg):
    frame.f_trace_opcodes = True
    return trace

turn = HERE.turn
turn.is_inside = False
other = threading.Thread(target=lambda: turn.interrupt(turn.steps, "late.py:1"))
other.start()
other.join()
turn.settle()
sys.settrace(trace)
print(sum(map(lambda n: n, range(100))))
"""


def test_python_expects_no_interruption_when_one_has_been_settled():
    """If it did, a debugger or a coverage tool would hang the process (Python 3.11), and all would be slower."""
    traced = subprocess.run([sys.executable, "-c", TRACED], capture_output=True, text=True, timeout=60, check=False)
    assert (traced.stdout, traced.stderr) == ("4950\n", "")


@pytest.mark.parametrize("round_", range(50))
def test_an_interruption_while_the_code_is_being_left_arrives_before_it_is_left_or_never(round_: int):
    """The thread leaves at any moment of the interruption."""
    del round_
    turn, began = ThreadTurn(), threading.Event()
    line = ""

    def interrupt() -> None:
        began.set()
        turn.interrupt(turn.steps, "user.py:1")

    other = threading.Thread(target=interrupt)
    try:
        try:
            turn.is_inside = True
            other.start()
            began.wait()
        finally:
            turn.is_inside = False
            if turn.is_firing:
                line = turn.settle()
    except HeldUp:
        turn.is_inside = False
        line = turn.settle()
    other.join()
    for _ in range(1_000):  # here it must not arrive
        pass
    assert line in {"", "user.py:1"}
