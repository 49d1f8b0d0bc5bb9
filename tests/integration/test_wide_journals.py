"""Work grows with the journal and no faster, however wide the code fans out, and a replay is done in pieces.

Instructions and calls are counted, not seconds. Counting makes the code many times slower, so these tests of a machine
alone are not among the unit tests.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from holdfast.engine.code.machine import Machine
from holdfast.engine.code.replay import ENTRIES_AT_ONCE, replay, replaying
from holdfast.engine.code.sandbox import keep_order, keep_the_collector_out
from holdfast.kernel.journal import Entry, GaveUp, Joined, Late, Performed, Retried, Spawned, Started
from holdfast.kernel.replay import noted
from holdfast.pack import Workflow
from holdfast.workflow import Current
from tests.builders import NOW_MS, a_failure, a_run, a_value
from tests.unit.engine.driving import CODEC, Play, value_of, workflow_of
from tests.unit.engine.shop import charge, pay

keep_order()  # as a worker does
keep_the_collector_out()


@workflow_of
async def of_children(count: int) -> int:
    return len(await asyncio.gather(*(pay(n) for n in range(count))))


@workflow_of
async def of_effects(count: int) -> int:
    return len(await asyncio.gather(*(charge(n) for n in range(count))))


def machine_of(workflow: Workflow[..., Any], journal: tuple[Entry, ...] = ()) -> Machine:
    return Machine(workflow, Current("run-1", None, workflow.name), codec=CODEC, blobs={}, noted=noted(journal))


def asked_for(workflow: Workflow[..., Any], count: int) -> tuple[Started, list[Any]]:
    """The input of a run, and the steps that its code asks for at once."""
    first = Started(NOW_MS, value_of(workflow.signature.bind((count,), {})))
    machine = machine_of(workflow)
    machine.start(first, at_ms=NOW_MS)
    commands = machine.pending.take_fresh()
    machine.evict()
    return first, commands


def joined(count: int) -> tuple[Workflow[..., Any], tuple[Entry, ...]]:
    first, commands = asked_for(of_children, count)
    spawned = [Spawned(NOW_MS, each.step, each.intent, f"child-{n}") for n, each in enumerate(commands)]
    ends = [Joined(NOW_MS, each.step, f"child-{n}", value=a_value(1)) for n, each in enumerate(commands)]
    return of_children, (first, *spawned, *ends)


def performed(count: int) -> tuple[Workflow[..., Any], tuple[Entry, ...]]:
    first, commands = asked_for(of_effects, count)
    return of_effects, (first, *(Performed(NOW_MS, each.step, each.intent, 1, a_value(1)) for each in commands))


def retried(count: int) -> tuple[Workflow[..., Any], tuple[Entry, ...]]:
    """The first one failed; the others came to their end all the same, and the run was retried."""
    first, (failing, *others) = asked_for(of_effects, count)
    gave_up = GaveUp(NOW_MS, failing.step, failing.intent, 1, a_failure())
    late = [Late(NOW_MS, each.step, each.intent, 1, a_value(1)) for each in others]
    return of_effects, (
        first,
        gave_up,
        *late,
        Retried(NOW_MS, (1,)),
        Performed(NOW_MS, failing.step, failing.intent, 1, a_value(1)),
    )


def work_of(action: Callable[[], object]) -> int:
    """How many instructions of Python it takes: the same on every machine, however busy it is."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        del arg
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("journal_of", [joined, performed, retried])
def test_a_journal_four_times_as_wide_takes_four_times_the_work(
    journal_of: Callable[[int], tuple[Workflow[..., Any], tuple[Entry, ...]]],
) -> None:
    def replay_of(count: int) -> int:
        workflow, journal = journal_of(count)
        machine = machine_of(workflow, journal)
        work = work_of(lambda: replay(machine, a_run(length=len(journal)), journal))
        assert machine.outcome is not None
        machine.evict()
        return work

    assert replay_of(800) < 5 * replay_of(200)


@pytest.mark.parametrize("journal_of", [joined, performed])
def test_a_long_replay_is_done_in_pieces(
    journal_of: Callable[[int], tuple[Workflow[..., Any], tuple[Entry, ...]]],
) -> None:
    workflow, journal = journal_of(10 * ENTRIES_AT_ONCE)
    machine = machine_of(workflow, journal)
    pieces = sum(1 for _ in replaying(machine, a_run(length=len(journal)), journal))
    assert pieces >= len(journal) // ENTRIES_AT_ONCE
    assert machine.outcome is not None
    machine.evict()


def test_a_gather_ten_times_as_long_costs_about_ten_times_as_much():
    """No walk over all tasks for each new one. Calls are counted, not seconds."""

    @workflow_of
    async def code(count: int) -> None:
        await asyncio.gather(*(charge(amount) for amount in range(count)))

    def calls(count: int) -> int:
        seen = 0

        def on_call(_frame: object, event: str, _argument: object) -> None:
            nonlocal seen
            seen += "call" in event

        outer = sys.getprofile()
        sys.setprofile(on_call)
        try:
            play = Play(code, count)
        finally:
            sys.setprofile(outer)
        assert len(play.waits_for) == count
        play.evict()
        return seen

    calls(10)  # whatever is done once only
    assert calls(2_000) < 15 * calls(200)
