"""A run that kills its process is found out and set aside; those beside it complete."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Holdfast, Run
from holdfast.engine.pace import Pace
from holdfast.errors import KilledItsWorkers
from holdfast.kernel.takeovers import DEADLY_AT
from tests.faults import ledger
from tests.faults.cases import Case
from tests.faults.holdfast_process import load
from tests.faults.processes import Process, patiently, until
from tests.faults.workflows_deadly import DEADLY, EXIT_CODE, innocent, killer
from tests.faults.workflows_held_by_flags import RUN, hold

pytestmark = pytest.mark.faults

LEASE = "500ms"
INNOCENT = [f"i-{n}" for n in range(12)]


async def test_a_run_that_kills_its_workers_is_blocked_and_innocent_runs_beside_it_complete(any_case: Case) -> None:
    """As a supervisor does, the test starts a process again whenever one has died."""
    case = any_case
    async with case.client(DEADLY) as hf:
        runs = [(await hf.start(innocent(name))).run for name in INNOCENT]
        deadly = (await hf.start(killer("k"))).run
        dead, process = await die_until_blocked(case, deadly)
        assert [await run.result("45s") for run in runs] == INNOCENT

        # It has had as many workers as it may have, and all of it is said where a person looks.
        assert len(dead) == len(case.ledger.calls("kill")) == DEADLY_AT
        with pytest.raises(KilledItsWorkers, match=f"{DEADLY_AT} workers in a row died"):
            await deadly.result()
        [why] = (await deadly.refresh()).waiting_on
        assert (why.kind, why.name.split(":")[0]) == ("blocked", "killed_its_workers")
        assert "is blocked (killed_its_workers)" in str(await deadly.explain())
        assert [line["code"] for line in process.logged("run blocked")] == ["killed_its_workers"]
        suspected = [line for each in dead for line in each.logged("run suspected") if line["run_id"] == deadly.id]
        assert [line["takeovers"] for line in suspected] == [2, 3, 4]

        # What it needs is a person.
        case.raise_flag("mended")
        await deadly.retry()
        assert await deadly.result("45s") == "k"
    await process.leaves()
    case.ledger.check(lost=[each.pid for each in dead])
    assert len({line["call"] for line in case.ledger.calls("finish")}) == len(INNOCENT)


async def test_a_worker_that_stops_in_order_is_no_takeover(case: Case) -> None:
    """As many deploys as deaths would block a run, each in the middle of its one effect."""
    async with case.client(RUN) as hf:
        run = (await hf.start(hold("a"))).run
    for n in range(1, DEADLY_AT + 2):
        async with Holdfast(case.url, packs=[load(RUN)], lease=LEASE, _pace=Pace(grace_seconds=0.0)):
            ledger.use(case.ledger.path)
            await until(lambda n=n: len(case.ledger.calls("grip")) == n, "the call")
    process = await case.fork(pack=RUN, stay=True, lease=LEASE)
    case.raise_flag("go-a")
    async with case.client(RUN) as hf:
        assert await (await hf.get(run.id)).result("45s") == "a"
    assert not process.logged("run suspected")
    await process.leaves()
    assert case.ask("SELECT * FROM documents WHERE kind = 'takeovers'") == []


async def die_until_blocked(case: Case, run: Run[str]) -> tuple[list[Process], Process]:
    """The processes that have died, and the one that lives when the run is blocked."""
    dead: list[Process] = []
    while True:
        process = await case.fork(pack=DEADLY, stay=True, lease=LEASE)
        while process.code is None:
            if (await patiently(run.refresh)).status == "blocked":
                return dead, process
            await asyncio.sleep(0.02)
        assert process.code == EXIT_CODE, process
        dead.append(process)
        assert len(dead) <= 2 * DEADLY_AT, "it is never blocked"
