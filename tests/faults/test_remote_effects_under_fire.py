"""Remote effects: whichever process dies or sleeps, a task is performed by one worker at a time, and recorded once."""

from __future__ import annotations

import signal

import pytest

from holdfast.errors import UnknownOutcome
from holdfast.kernel.journal import Performed
from tests.faults.cases import Case
from tests.faults.crash_at_store_call import Point, When
from tests.faults.holdfast_process import Start
from tests.faults.processes import KILLED, Process, until
from tests.faults.remote_worker_process import RUN

pytestmark = pytest.mark.faults

LEASE = "1s"


def remote(case: Case, flag: str = "go", *, lease: str = "30s") -> Process:
    """A remote worker that completes its task, with the flag's name as the result, when the flag is raised."""
    options = {
        "path": str(case.path),
        "ledger": str(case.ledger.path),
        "lease": lease,
        "flag": str(case.flag(flag)),
    }
    return case.processes.run_module("tests.faults.remote_worker_process", options)


async def kill(process: Process) -> None:
    process.signal(signal.SIGKILL)
    assert await process.ended() == KILLED


async def is_recorded_once(case: Case, workflow: str, result: str) -> None:
    """The run has this result, from its first attempt."""
    async with case.client(RUN) as hf:
        run = await hf.find(f"afar.{workflow}", f"{workflow}:a")
        assert await run.result("45s") == result
        entries = [entry for entry in await run.journal() if isinstance(entry, Performed)]
    assert [entry.attempt for entry in entries] == [1]


@pytest.mark.parametrize("workflow", ["send", "fly"])
@pytest.mark.parametrize("when", ["while nobody has claimed it", "while it is performed", "before it is heard"])
async def test_the_next_process_joins_the_task_of_one_that_was_killed(case: Case, workflow: str, when: str) -> None:
    first = await case.fork(pack=RUN, starts=[Start(workflow, ["a"])], stay=True, lease=LEASE)
    await first.says("started")
    await until(lambda: tasks_in(case) == 1, "the task", first)
    [(owner,)] = case.ask("SELECT owner FROM runs")
    if when == "while nobody has claimed it":
        await kill(first)
    worker = remote(case)
    await worker.says("claimed")
    if when != "while nobody has claimed it":
        await kill(first)
    if when == "before it is heard":
        case.raise_flag("go")
        await worker.says("completed")
    second = await case.fork(pack=RUN, stay=True, lease=LEASE)
    await until(lambda: case.ask("SELECT owner FROM runs")[0][0] != owner, "another owner", second)
    case.raise_flag("go")
    await is_recorded_once(case, workflow, "go")
    assert len(case.ledger.calls()) == 1
    assert tasks_in(case) == 1
    await second.leaves()


def tasks_in(case: Case) -> int:
    [(count,)] = case.ask("SELECT count(*) FROM documents WHERE kind LIKE 'task/%'")
    return count


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("workflow", ["send", "fly"])
async def test_killed_around_the_offer_it_is_offered_once_or_in_doubt(case: Case, workflow: str, when: When) -> None:
    # Without duties, whose leases are written too: the first write tells which code the worker has, the second offers.
    doomed = await case.fork(
        pack=RUN, starts=[Start(workflow, ["a"])], lease=LEASE, duties=False, point=Point("write", 2, when)
    )
    assert await doomed.ended() == KILLED
    case.raise_flag("go")
    worker, second = remote(case), await case.fork(pack=RUN, stay=True, lease=LEASE)
    if workflow == "fly" and when == "before":
        async with case.client(RUN) as hf:
            with pytest.raises(UnknownOutcome):
                await (await hf.find("afar.fly", "fly:a")).result("45s")
        assert case.ledger.calls() == []
    else:
        await is_recorded_once(case, workflow, "go")
        assert [line["attempt"] for line in case.ledger.calls()] == [1]
    await second.leaves()
    await worker.leaves()


async def test_another_worker_claims_the_task_of_one_that_was_killed_and_no_attempt_is_used(case: Case) -> None:
    engine = await case.fork(pack=RUN, starts=[Start("send", ["a"])], stay=True)
    dying = remote(case, "never", lease="500ms")
    await dying.says("claimed")
    await kill(dying)
    case.raise_flag("go")
    await remote(case).says("completed")
    await is_recorded_once(case, "send", "go")
    calls = case.ledger.calls()
    assert [line["attempt"] for line in calls] == [1, 1]
    assert len({line["call"] for line in calls}) == 1
    assert calls[0]["fence"] < calls[1]["fence"]
    await engine.leaves()


async def test_nobody_performs_what_must_happen_once_after_a_worker_that_was_killed(case: Case) -> None:
    engine = await case.fork(pack=RUN, starts=[Start("fly", ["a"])], results=False, stay=True)
    dying = remote(case, "never", lease="500ms")
    await dying.says("claimed")
    await kill(dying)
    case.raise_flag("go")
    other = remote(case)
    async with case.client(RUN) as hf:
        with pytest.raises(UnknownOutcome):
            await (await hf.find("afar.fly", "fly:a")).result("45s")
    await other.leaves()
    assert [line["attempt"] for line in case.ledger.calls()] == [1]
    await engine.leaves()


async def test_a_process_that_wakes_up_without_its_lease_leaves_the_task_to_the_next(case: Case) -> None:
    sleeper = await case.fork(pack=RUN, starts=[Start("send", ["a"])], results=False, stay=True, lease=LEASE)
    worker = remote(case)
    await worker.says("claimed")
    [(owner,)] = case.ask("SELECT owner FROM runs")
    with case.locked():  # stopped in the middle of a write, it would keep all others from the file
        sleeper.signal(signal.SIGSTOP)
        await until(sleeper.is_stopped, "the stop", sleeper)
    second = await case.fork(pack=RUN, stay=True, lease=LEASE)
    await until(lambda: case.ask("SELECT owner FROM runs")[0][0] not in {owner, None}, "another owner", second)
    sleeper.signal(signal.SIGCONT)
    await until(lambda: sleeper.logged("lease lost"), "the loss of its lease", sleeper)
    assert not worker.said("completed")
    case.raise_flag("go")
    await worker.says("completed")
    await is_recorded_once(case, "send", "go")
    assert len(case.ledger.calls()) == 1
    await second.leaves()


async def test_a_worker_that_slept_past_its_lease_is_refused(case: Case) -> None:
    engine = await case.fork(pack=RUN, starts=[Start("send", ["a"])], stay=True)
    sleeper = remote(case, "late", lease="500ms")
    await sleeper.says("claimed")
    sleeper.signal(signal.SIGSTOP)
    await until(sleeper.is_stopped, "the stop", sleeper)
    other = remote(case, "go")
    await other.says("claimed")
    case.raise_flag("late")
    sleeper.signal(signal.SIGCONT)
    assert "not that of the last claim" in (await sleeper.says("refused"))["why"]
    assert not sleeper.said("completed")
    case.raise_flag("go")
    await is_recorded_once(case, "send", "go")
    await engine.leaves()
