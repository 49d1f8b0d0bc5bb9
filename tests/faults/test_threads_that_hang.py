"""Threads cannot be interrupted: what hangs keeps no other from one, and what is late is not done beside itself."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.faults.cases import Case
from tests.faults.holdfast_process import Start
from tests.faults.processes import KILLED, Process, until
from tests.faults.workflows_held_by_flags import RECONCILED, RUN, char, passing

pytestmark = pytest.mark.faults

LEASE = "1s"


async def test_effects_that_hang_keep_no_other_from_a_thread_and_no_process_from_its_end(any_case: Case) -> None:
    case = any_case
    names = [f"h{n}" for n in range(8)]
    worker = await case.fork(pack=RUN, starts=[Start("dangle", [name]) for name in names], stay=True, concurrency=4)
    await until(lambda: len(worker.said("result")) == 8, "all of them to be given up", worker)
    assert sorted(line["order"] for line in case.ledger.calls("hang")) == names
    assert len(worker.logged("thread given up")) == 8
    async with case.client(RUN) as hf:
        runs = [(await hf.start(passing(f"p{n}"))).run for n in range(4)]
        assert await asyncio.gather(*(run.result("45s") for run in runs)) == [1] * 4
    await worker.leaves()
    assert len(case.ledger.calls("pass by")) == 4


async def overdue(case: Case) -> Process:
    """A process whose `once` effect has outlived its time, in a thread that lives."""
    worker = await case.fork(pack=RECONCILED, starts=[Start("char", ["a"])], stay=True, lease=LEASE)
    await until(lambda: worker.logged("thread given up"), "its time to be over", worker)
    return worker


def asked(case: Case) -> int:
    return len([line for line in case.ledger.lines() if "reconciled" in line])


async def test_a_once_effect_that_outlives_its_time_is_not_performed_beside_itself(any_case: Case) -> None:
    case = any_case
    worker = await overdue(case)
    async with case.client(RUN) as hf:
        run = await hf.find(char, "char:a")
        assert "the outcome of smoulder#1" in str(await run.explain())
        case.raise_flag("go-a")
        assert await run.result("45s") == "a burnt"
    await worker.leaves()
    assert [line["pid"] for line in case.ledger.calls("smoulder")] == [worker.pid]
    assert len([line for line in case.ledger.lines() if "entered" in line]) == 1
    assert asked(case) == 0


async def test_when_its_process_dies_over_it_the_world_is_asked(case: Case) -> None:
    worker = await overdue(case)
    worker.signal(signal.SIGKILL)
    assert await worker.ended() == KILLED
    case.raise_flag("go-a")
    successor = await case.fork(pack=RECONCILED, stay=True, lease=LEASE)
    async with case.client(RUN) as hf:
        assert await (await hf.find(char, "char:a")).result("45s") == "a burnt"
    await successor.leaves()
    assert [line["pid"] for line in case.ledger.calls("smoulder")] == [successor.pid]
    assert asked(case) == 1
