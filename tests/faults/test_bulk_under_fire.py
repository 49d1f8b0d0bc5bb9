"""A bulk run whose worker is killed, wherever that is: the verb is applied to each run once, and counted once."""

from __future__ import annotations

import json
import signal
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE
from collections import Counter, defaultdict
from typing import Any

import pytest

from holdfast import Holdfast, Run
from holdfast.journal import Retried
from holdfast.testing import Line
from tests.faults.cases import Case
from tests.faults.conftest import NewCase
from tests.faults.crash_at_store_call import Point, When
from tests.faults.holdfast_process import Start
from tests.faults.processes import KILLED, in_turns, until
from tests.faults.workflows_in_bulk import RUN, sack

pytestmark = pytest.mark.faults

LEASE = "1s"


async def failed(case: Case, count: int) -> list[Run[Any]]:
    """So many runs, each of which has called its effect once and failed."""
    starts = [Start("sack", [f"s{number}"]) for number in range(count)]
    worker = await case.fork(pack=RUN, starts=starts, results=False, stay=True, lease=LEASE)
    async with case.client(RUN) as hf:
        await until(lambda: len(case.ledger.lines()) >= count, f"{count} calls", worker)
        runs = [run async for run in hf.runs(sack)]
        assert len(runs) == count
        for run in runs:
            assert (await run.wait("45s")).status == "failed"
    await worker.leaves()
    assert Counter(line["order"] for line in case.ledger.calls()) == {f"s{number}": 1 for number in range(count)}
    return runs


async def check_retried(case: Case, hf: Holdfast, runs: list[Run[Any]], bulk_id: str, *, lost: set[int]) -> None:
    """Each was retried once, by this bulk run; and called a second time, or more often only if its caller died."""
    for run in runs:
        now = await (await hf.get(run.id)).wait("45s")
        assert now.status == "failed"
        retried = [entry.bulk for entry in await now.journal() if isinstance(entry, Retried)]
        assert retried == [bulk_id], retried
    lost |= case.processes.overtaken()
    calls_of: dict[str, list[Line]] = defaultdict(list)
    for line in case.ledger.calls():
        calls_of[f"sack:{line['order']}"].append(line)
    for run in runs:
        assert run.key is not None
        calls = calls_of[run.key]
        assert len(calls) >= 2
        assert {line["pid"] for line in calls[1:-1]} <= lost, calls


@pytest.mark.slow
async def test_five_hundred_runs_are_retried_by_one_command_once_each_though_workers_are_killed(any_case: Case) -> None:
    case, count, lost = any_case, 500, set[int]()
    runs = await failed(case, count)
    worker = await case.fork(pack=RUN, stay=True, lease=LEASE)
    command = await create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", "bulk", "retry", "--url", case.url, "--status", "failed"),
        *("--workflow", "mill.sack", "--rate", "25/10ms", "--follow", "--json"),
        stdout=PIPE,
    )
    for due in (count // 5, count // 2):
        await until(lambda due=due: len(case.ledger.lines()) >= count + due, f"{due} retries", worker)
        worker.signal(signal.SIGKILL)
        assert await worker.ended() == KILLED
        lost.add(worker.pid)
        worker = await case.fork(pack=RUN, stay=True, lease=LEASE)
    said, _ = await command.communicate()
    assert command.returncode == 0
    bulk = json.loads(said.splitlines()[-1])
    async with case.client(RUN) as hf:
        report = await (await hf.get(bulk["id"])).result("45s")
        assert (report.matched, report.done, report.skipped, report.failed) == (count, count, {}, 0)
        await check_retried(case, hf, runs, bulk["id"], lost=lost)
    await worker.leaves()


async def retried_in_spite_of(case: Case, point: Point | None) -> int:
    """Six runs in three pages, with the worker of the bulk run killed there; its exit code."""
    runs = await failed(case, 6)
    doomed = await case.fork(pack=RUN, stay=True, lease=LEASE, point=point)
    async with case.client(RUN) as hf:
        await until(lambda: doomed.code is not None or doomed.said("ready"), "the worker")
        bulk, _ = await hf.runs(sack, "failed").retry(rate="2/1ms")
        if point is None:
            await bulk.result("45s")
        else:
            await until(lambda: doomed.code is not None or case.statuses()[bulk.id] == "completed", "the kill")
        doomed.signal(signal.SIGTERM)
        code = await doomed.ended()
        successor = await case.fork(pack=RUN, stay=True, lease=LEASE)
        report = await bulk.result("45s")
        assert (report.matched, report.done, report.skipped, report.failed) == (6, 6, {}, 0)
        await check_retried(case, hf, runs, bulk.id, lost={doomed.pid})
        await successor.leaves()
    return code


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_around_any_commit_it_applies_the_verb_once(new_case: NewCase, when: When) -> None:
    dry = new_case("dry")
    assert await retried_in_spite_of(dry, None) == 0
    _, worker, *_ = dry.processes
    counts: Counter[str] = Counter(worker.said("done")[0]["counts"])
    points = [Point("commit", n, when) for n in range(1, counts["commit"] + 1)]
    points += [Point(verb, n, when) for verb in ("search", "histories") for n in range(1, min(counts[verb], 4) + 1)]
    killed: list[Point] = []

    async def one(point: Point) -> None:
        if await retried_in_spite_of(new_case(str(point).replace(" ", "-")), point) == KILLED:
            killed.append(point)

    await in_turns([lambda point=point: one(point) for point in points], at_once=4)
    assert len(killed) >= len(points) // 2, killed
