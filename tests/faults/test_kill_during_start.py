"""A start that dies: at every store call, at every SQL statement, and between the commit and the reply (K2, K3)."""

from __future__ import annotations

import pytest

from tests.faults.cases import Case
from tests.faults.conftest import NewCase
from tests.faults.crash_at_store_call import Point
from tests.faults.holdfast_process import Start
from tests.faults.processes import KILLED, Process, in_turns, until
from tests.faults.workflows_checkout import notice

pytestmark = pytest.mark.faults

START = Start("notice", ["o1"])
AT_ONCE = 6
BOUNDARIES = [Point(verb, 1, when) for verb in ("open", "commit", "close") for when in ("before", "after")]


def admitted(case: Case) -> bool:
    """Whether the run exists; raises unless run, key and journal exist together or not at all."""
    if not case.path.exists() or not case.ask("SELECT 1 FROM sqlite_schema WHERE name = 'runs'"):
        return False
    runs = case.ask("SELECT id, key, holds_key, length FROM runs")
    journal = case.ask("SELECT run_id, json_array_length(entries) FROM journal WHERE position = 0")
    if not runs:
        assert journal == []
        return False
    [(run_id, key, holds_key, _)] = runs
    assert (key, holds_key) == ("notice:o1", 1)
    assert journal == [(run_id, 1)]
    return True


async def ends(case: Case, *, was_admitted: bool, lost: set[int]) -> None:
    """A fresh worker executes what was admitted, unasked; what was not can be started as if for the first time."""
    successor = await case.fork(stay=True, lease="1s", starts=[] if was_admitted else [START])
    await successor.says("ready")
    await until(lambda: case.statuses().get("notice:o1") == "completed", f"the run's end in {case.path}")
    if not was_admitted:
        assert (await successor.says("started"))["created"] is True
    await successor.leaves()
    case.ledger.check(lost=lost)
    assert len(case.ask("SELECT 1 FROM runs")) == 1


@pytest.mark.parametrize("point", BOUNDARIES, ids=str)
async def test_a_client_killed_around_a_call_leaves_all_of_the_run_or_nothing(case: Case, point: Point) -> None:
    """K2."""
    client = await case.fork(worker=False, starts=[START], results=False, point=point)
    assert await client.ended() == KILLED, client
    is_admitted = admitted(case)
    assert is_admitted == (point in BOUNDARIES[3:])  # durable from the commit on, and not before
    await ends(case, was_admitted=is_admitted, lost=set())


@pytest.mark.parametrize("worker", [False, True])
async def test_a_kill_before_any_statement_leaves_all_of_the_run_or_nothing(new_case: NewCase, worker: bool) -> None:
    """K2, in the middle of every transaction, from the creation of the file to the end of the run.

    A worker creates the file as a client does: it is killed only later.
    """
    opening = await new_case("opening").fork(worker=False, statement=0)
    dry = await new_case("dry").fork(worker=worker, starts=[START], results=worker, statement=0, lease="1s")
    assert await dry.ended() == 0, dry
    opened, count = [(await process.says("done"))["statements"] for process in (opening, dry)]
    points = range(opened + 1 if worker else 1, count + 1)
    assert len(points) > 10
    outcomes: list[bool] = []

    async def one(n: int) -> None:
        case = new_case(f"statement-{n}")
        doomed: Process = await case.fork(worker=worker, starts=[START], results=worker, statement=n, lease="1s")
        assert await doomed.ended() in ({KILLED, 0} if worker else {KILLED}), doomed
        outcomes.append(admitted(case))
        await ends(case, was_admitted=outcomes[-1], lost={doomed.pid} | case.processes.overtaken())

    await in_turns([lambda n=n: one(n) for n in points], at_once=AT_ONCE)
    assert len(outcomes) == len(points)
    assert set(outcomes) == {False, True} if worker else {False}


@pytest.mark.parametrize("worker", [False, True])
async def test_a_start_repeated_after_its_reply_was_lost_is_the_same_start(case: Case, worker: bool) -> None:
    """K3. Killed between the commit and the reply; the caller tries again with the request id that it had minted."""
    asked = Start("notice", ["o1"], request_id="request-1")
    first = await case.fork(worker=worker, starts=[asked], results=False, point=Point("commit", 1, "after"), lease="1s")
    assert await first.ended() == KILLED, first
    assert first.said("started") == []
    again = await case.fork(worker=False, starts=[asked, asked], results=False)
    assert await again.ended() == 0, again
    assert {line["created"] for line in again.said("started")} == {True}
    other = await case.fork(worker=False, starts=[START], results=False)
    assert (await other.says("started"))["created"] is False
    [(run_id,)] = case.ask("SELECT id FROM runs")
    assert {line["run"] for line in again.said("started") + other.said("started")} == {run_id}
    worker_process = await case.fork(stay=True, lease="1s")
    async with case.client() as hf:
        assert await (await hf.find(notice, "notice:o1")).result("45s") == "o1 told"
    await worker_process.leaves()
    case.ledger.check(lost={first.pid})
    assert len(case.ledger.calls()) == 1
