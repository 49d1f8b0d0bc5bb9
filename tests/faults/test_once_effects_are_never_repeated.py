"""`safety="once"`: whatever dies after the call, no process calls again (E8). What is acknowledged is recorded (E3)."""

from __future__ import annotations

import signal

import pytest

from holdfast.errors import UnknownOutcome
from tests.faults.cases import Case
from tests.faults.crash_at_store_call import Point
from tests.faults.holdfast_process import Start
from tests.faults.processes import KILLED, Process, until
from tests.faults.workflows_held_by_flags import RECONCILED, RUN, fly

pytestmark = pytest.mark.faults

LEASE = "1s"


async def killed_in_the_call(case: Case) -> Process:
    """A process that has made the call, and dies before its record."""
    doomed = await case.fork(pack=RUN, starts=[Start("fly", ["a"])], lease=LEASE)
    await until(lambda: case.ledger.calls("launch"), "the call", doomed)
    doomed.signal(signal.SIGKILL)
    assert await doomed.ended() == KILLED
    case.raise_flag("go-a")
    return doomed


async def test_after_a_kill_the_world_is_asked_and_not_touched(case: Case) -> None:
    doomed = await killed_in_the_call(case)
    successor = await case.fork(pack=RECONCILED, stay=True, lease=LEASE)
    async with case.client(RUN) as hf:
        assert await (await hf.find(fly, "fly:a")).result("45s") == "a launched"
    await successor.leaves()
    assert [line["pid"] for line in case.ledger.calls("launch")] == [doomed.pid]
    [key] = {line["call"] for line in case.ledger.calls("launch")}
    assert [line["reconciled"] for line in case.ledger.lines() if "reconciled" in line] == [key]


async def test_without_reconcile_the_run_is_blocked_until_a_person_acts(case: Case) -> None:
    doomed = await killed_in_the_call(case)
    successor = await case.fork(pack=RUN, stay=True, lease=LEASE)
    async with case.client(RUN) as hf:
        run = await hf.find(fly, "fly:a")
        with pytest.raises(UnknownOutcome, match=r"trial\.launch.*launch#1"):
            await run.result("45s")
        assert (await run.refresh()).status == "blocked"
        await successor.leaves()
        assert successor.logged("run blocked")
        # A process with the same code finds nothing to do, and a retry blocks it again: still no process calls.
        again = await case.fork(pack=RUN, stay=True, lease=LEASE)
        await again.says("ready")
        await (await run.refresh()).retry()
        with pytest.raises(UnknownOutcome):
            await (await run.refresh()).result("45s")
        await again.leaves()
        assert len(case.ledger.calls("launch")) == 1
        # With a reconcile deployed it goes on.
        fixed = await case.fork(pack=RECONCILED, stay=True, lease=LEASE)
        await (await run.refresh()).retry()
        assert await (await run.refresh()).result("45s") == "a launched"
        await fixed.leaves()
    assert [line["pid"] for line in case.ledger.calls("launch")] == [doomed.pid]
    assert len([line for line in case.ledger.lines() if "reconciled" in line]) == 1


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_kill_around_the_record_of_the_intent_loses_nothing(case: Case, when: str) -> None:
    """The commit before the call. Before it: nothing was intended, so it may be called. After it: none may know."""
    case.raise_flag("go-a")
    point = Point("commit", 2, when)  # the first one admits the run
    doomed = await case.fork(pack=RECONCILED, starts=[Start("fly", ["a"])], lease=LEASE, point=point)
    assert await doomed.ended() == KILLED
    assert case.ledger.calls("launch") == []
    successor = await case.fork(pack=RECONCILED, stay=True, lease=LEASE)
    async with case.client(RUN) as hf:
        assert await (await hf.find(fly, "fly:a")).result("45s") == "a launched"
    await successor.leaves()
    assert [line["pid"] for line in case.ledger.calls("launch")] == [successor.pid]
    asked = [line for line in case.ledger.lines() if "reconciled" in line]
    assert len(asked) == (when == "after")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_kill_around_the_record_of_the_result_makes_no_second_call(case: Case, when: str) -> None:
    case.raise_flag("go-a")
    point = Point("commit", 3, when)
    doomed = await case.fork(pack=RECONCILED, starts=[Start("fly", ["a"])], lease=LEASE, point=point)
    assert await doomed.ended() == KILLED
    assert len(case.ledger.calls("launch")) == 1
    successor = await case.fork(pack=RECONCILED, stay=True, lease=LEASE)
    async with case.client(RUN) as hf:
        assert await (await hf.find(fly, "fly:a")).result("45s") == "a launched"
    await successor.leaves()
    assert [line["pid"] for line in case.ledger.calls("launch")] == [doomed.pid]
    asked = [line for line in case.ledger.lines() if "reconciled" in line]
    assert len(asked) == (when == "before")


async def test_whoever_was_stopped_after_recording_the_intent_does_not_call_any_more(case: Case) -> None:
    """The new owner has asked the world, heard that it never happened, and made the one call."""
    case.raise_flag("go-a")
    point = Point("commit", 2, "after", signal.SIGSTOP)
    first = await case.fork(pack=RECONCILED, starts=[Start("fly", ["a"])], stay=True, lease=LEASE, point=point)
    await until(lambda: any("reached" in line for line in case.ledger.lines()), "the recorded intent", first)
    await until(first.is_stopped, "it to be stopped", first)
    second = await case.fork(pack=RECONCILED, stay=True, lease=LEASE)
    async with case.client(RUN) as hf:
        assert await (await hf.find(fly, "fly:a")).result("45s") == "a launched"
    await second.leaves()
    first.signal(signal.SIGCONT)
    assert (await first.says("result"))["value"] == "a launched"
    await until(lambda: first.logged("lease lost"), "the lost lease", first)
    await first.leaves()
    assert [line["pid"] for line in case.ledger.calls("launch")] == [second.pid]
    assert len([line for line in case.ledger.lines() if "reconciled" in line]) == 1


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_nothing_is_acknowledged_that_is_not_recorded(case: Case, n: int, when: str) -> None:
    """E3. Killed round each commit of a run: an answer that the caller got is in the file, always."""
    point = Point("commit", n, when)
    doomed = await case.fork(pack=RUN, starts=[Start("walk", ["a", 2])], lease=LEASE, point=point)
    assert await doomed.ended() == KILLED
    rows = case.ask("SELECT status FROM runs")
    assert rows == ([] if (n, when) == (1, "before") else [("completed" if (n, when) == (3, "after") else "running",)])
    assert bool(doomed.said("started")) == (n > 1)  # confirmed after its commit, and not before
    assert not doomed.said("result")
    case.ledger.check(lost={doomed.pid})
