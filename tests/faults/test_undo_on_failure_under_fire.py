"""A run that undoes what it did when it fails, while its processes die: each effect once, undone once, then it fails.

The ledger is the world: a step was performed if it was called there, and undone if its undo was called there.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter

import pytest

from holdfast import Run, RunFailed
from tests.faults.cases import Case
from tests.faults.conftest import NewCase
from tests.faults.crash_at_store_call import Point, When
from tests.faults.processes import KILLED, in_turns, until
from tests.faults.test_cancel_under_fire import AT_ONCE, LEASE, LIVE, WHATS, left, performed, undone
from tests.faults.workflows_long_lived import RUN, STEPS, fall

pytestmark = pytest.mark.faults


async def check(case: Case, run: Run[None], *, lost: set[int]) -> None:
    """It has failed with its own error, once, and everything that was done is undone, once."""
    with pytest.raises(RunFailed, match="the bridge is out"):
        await run.result(timeout=60)
    assert performed(case) == [step for step in performed(case) if step in STEPS]
    assert set(performed(case)) == set(undone(case)) == set(STEPS)
    case.ledger.check(lost={*lost} | case.processes.overtaken())
    assert case.ask(LIVE) == [(0,)]
    whats = Counter(what for (what,) in case.ask(WHATS, run.id))
    assert (whats["stopped"], whats["failed"]) == (1, 1), whats


async def fails_in_spite_of(case: Case, point: Point | None, *, with_child: bool = False) -> int | None:
    """A worker is killed there, and another one comes after it."""
    doomed = await case.fork(pack=RUN, stay=True, lease=LEASE, point=point)
    async with case.client(RUN) as hf:
        run, _ = await hf.start(fall("a", with_child))
        await until(lambda: doomed.code is not None or case.statuses()["fall:a"] == "failed", "the kill, or the end")
        doomed.signal(signal.SIGTERM)
        code = await doomed.ended()
        successor = await case.fork(pack=RUN, stay=True, lease=LEASE)
        await check(case, run, lost={doomed.pid})
        receipt = await run.receipt()
        assert (receipt.outcome, receipt.stopped) == ("partial" if with_child else "compensated", False), receipt
        assert await left(hf, receipt) == dict.fromkeys(STEPS, "undone") | ({"see": "performed"} if with_child else {})
        await successor.leaves()
    return code


async def test_without_a_kill_it_is_undone_in_reverse_and_fails(case: Case) -> None:
    assert await fails_in_spite_of(case, None) == 0
    assert undone(case)[-3:] == ["three", "two", "one"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("with_child", [False, True])
async def test_a_worker_killed_around_any_commit_of_a_run_that_fails_undoes_once(
    new_case: NewCase, when: When, with_child: bool
) -> None:
    dry = new_case("dry")
    await fails_in_spite_of(dry, None, with_child=with_child)
    counts = next(iter(dry.processes)).said("done")[0]["counts"]
    killed: list[int] = []

    async def one(n: int) -> None:
        if await fails_in_spite_of(new_case(f"commit-{n}"), Point("commit", n, when), with_child=with_child):
            killed.append(n)

    await in_turns([lambda n=n: one(n) for n in range(1, counts["commit"] + 1)], at_once=AT_ONCE)
    assert len(killed) >= counts["commit"] // 2, killed


@pytest.mark.parametrize("step", STEPS)
async def test_a_worker_killed_in_the_middle_of_an_undo_leaves_it_to_the_next(case: Case, step: str) -> None:
    case.raise_flag(f"die-undo-a-{step}")
    doomed = await case.fork(pack=RUN, stay=True, lease=LEASE)
    async with case.client(RUN) as hf:
        run, _ = await hf.start(fall("a"))
        assert await doomed.ended() == KILLED
        successor = await case.fork(pack=RUN, stay=True, lease=LEASE)
        await check(case, run, lost={doomed.pid})
        await successor.leaves()
    calls = Counter(line["call"] for line in case.ledger.calls())
    assert {key for key, times in calls.items() if times > 1} == {f"undo-{step}:a"}


async def test_a_worker_stopped_past_its_lease_while_it_undoes_writes_nothing_more(case: Case) -> None:
    case.raise_flag("slow-undo-a-one")
    first = await case.fork(pack=RUN, stay=True, lease=LEASE)
    async with case.client(RUN) as hf:
        run, _ = await hf.start(fall("a"))
        await until(lambda: "one" in undone(case), "the last undo", first)
        first.signal(signal.SIGSTOP)
        second = await case.fork(pack=RUN, stay=True, lease=LEASE)
        await until(lambda: len(case.ledger.calls("undo one")) == 2, "the takeover", second)
        case.raise_flag("go-a")
        ended = asyncio.create_task(run.wait(timeout=60))
        await ended
        journals = case.ask("SELECT * FROM journal ORDER BY 1, 2")
        first.signal(signal.SIGCONT)
        await until(lambda: first.logged("lease lost"), "the lost lease", first)
        await check(case, run, lost=set())
    await first.leaves()
    await second.leaves()
    assert case.ask("SELECT * FROM journal ORDER BY 1, 2") == journals
