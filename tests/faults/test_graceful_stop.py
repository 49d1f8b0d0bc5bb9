"""SIGTERM: stop within 15 s, give everything back at once, lose nothing.

The lease here is a minute long: whatever a stopped process had kept would be missing for longer than any test waits.
"""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.faults.cases import Case
from tests.faults.holdfast_process import Start
from tests.faults.processes import until
from tests.faults.workflows_held_by_flags import RUN, hold, walk

pytestmark = pytest.mark.faults

LEASE = "60s"
LIMIT = 15.0


async def test_sigterm_under_load_gives_all_work_back_at_once(case: Case) -> None:
    names = [f"w{n}" for n in range(60)]
    first = case.run(
        pack=RUN,
        starts=[Start("walk", [name, 6]) for name in names],
        results=False,
        stay=True,
        lease=LEASE,
        concurrency=20,
    )
    await until(lambda: len(case.ledger.calls()) > 40, "work in full swing", first)
    first.signal(signal.SIGTERM)
    assert await first.ended(within=LIMIT) == 0, first
    assert not first.errors(), first
    done = len(case.ledger.calls())
    assert done < 60 * 6
    assert case.ask("SELECT count(*) FROM runs WHERE owner IS NOT NULL") == [(0,)]
    assert case.ask("SELECT count(*) FROM leases") == [(0,)]

    second = case.run(pack=RUN, stay=True, lease=LEASE)
    async with case.client(RUN) as hf:
        runs = [(await hf.start(walk(name, 6))).run for name in names]
        assert await asyncio.gather(*(run.result("45s") for run in runs)) == [15] * 60
    await second.leaves()
    case.ledger.check()  # no process died: no effect was called twice
    assert len(case.ledger.calls()) == 60 * 6


async def test_effects_that_outlast_the_grace_do_not_hold_the_process(case: Case) -> None:
    """An async one is cancelled. Nothing can interrupt a thread, so the process leaves it behind."""
    starts = [Start("hold", ["a"]), Start("clench", ["b", 40.0])]
    first = case.run(pack=RUN, starts=starts, results=False, stay=True, lease=LEASE)
    await until(lambda: case.ledger.calls("grip") and case.ledger.calls("clutch"), "both effects", first)
    first.signal(signal.SIGTERM)
    assert await first.ended(within=LIMIT) == 0, first
    assert [line["given_back"] for line in first.logged("replica stopped")] == [2]
    assert case.ask("SELECT count(*) FROM runs WHERE owner IS NOT NULL") == [(0,)]
    case.raise_flag("go-a")
    second = case.run(pack=RUN, stay=True, lease=LEASE)
    async with case.client(RUN) as hf:
        assert await (await hf.find(hold, "hold:a")).result("45s") == "a"
    await until(lambda: len(case.ledger.calls("clutch")) == 2, "the other effect", second)
    case.ledger.check(lost={first.pid})


async def test_sigterm_while_starting_runs_loses_no_confirmed_start(case: Case) -> None:
    """A client that is told to stop in the middle of its starts: what was confirmed is there."""
    worker = await case.fork(pack=RUN, stay=True, lease=LEASE)
    names = [f"w{n}" for n in range(400)]
    first = case.run(pack=RUN, starts=[Start("tap", [name]) for name in names], stay=True, lease=LEASE)
    await until(lambda: len(first.said("started")) > 20, "some starts", first)
    first.signal(signal.SIGTERM)
    await first.ended(within=LIMIT)
    confirmed = {line["run"] for line in first.said("started")}
    await until(lambda: case.ask("SELECT count(*) FROM runs WHERE status <> 'completed'") == [(0,)], "the rest", worker)
    assert confirmed <= {row[0] for row in case.ask("SELECT id FROM runs")}
    await worker.leaves()
    case.ledger.check()
