"""Several releases of an application work on one store at once, as they do while it is deployed: no run is blocked."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter

import pytest

from tests.faults.cases import Case
from tests.faults.holdfast_process import Start
from tests.faults.processes import KILLED, Process, until
from tests.faults.workflows_of_releases import FIRST, SECOND, THIRD

pytestmark = pytest.mark.faults

LEASE = "3s"
RUNS = 25  # that each process starts
STEPS = {"reserve", "charge", "ship"}


async def test_three_releases_follow_each_other_under_load_and_no_run_is_blocked(any_case: Case) -> None:
    case, processes = any_case, list[Process]()

    async def joins(pack: str, name: str) -> Process:
        """A process of this release, which starts runs of its own."""
        starts = [Start("order", [f"{name}-{n}"]) for n in range(RUNS)]
        process = await case.fork(pack=pack, stay=True, results=False, starts=starts)
        processes.append(process)
        await until(lambda: len(process.said("started")) == RUNS, f"the starts of {name}", process)
        return process

    def half_way(name: str) -> bool:
        """Whether the runs of this process have been let go once and taken up again, by any process."""
        step = "pack" if name.startswith("v3") else "charge"
        return sum(line["order"].startswith(name) for line in case.ledger.calls(step)) == RUNS

    replaced = [await joins(FIRST, "v1a"), await joins(FIRST, "v1b")]
    for release, name in ((SECOND, "v2"), (THIRD, "v3")):
        following: list[Process] = []
        for n, leaving in enumerate(replaced):
            following.append(await joins(release, f"{name}{n}"))
            await until(
                lambda own=f"{name}{n}": half_way(own), "the releases to work side by side", *following, leaving
            )
            await leaving.leaves()
        replaced = following

    async with case.client(THIRD) as hf:
        run_ids = [line["run"] for process in processes for line in process.said("started")]
        assert len(run_ids) == 6 * RUNS
        for run_id in run_ids:
            await (await hf.get(run_id)).wait("60s")
        assert Counter([run.status async for run in hf.runs()]) == {"completed": 6 * RUNS}
    for process in replaced:
        await process.leaves()

    assert not [line for process in processes for line in process.logged("run blocked")]
    case.ledger.check()  # nothing was done twice
    done: dict[str, set[str]] = {}
    for line in case.ledger.calls():
        done.setdefault(line["order"], set()).add(line["step"])
    assert len(done) == 6 * RUNS
    for order, steps in done.items():
        assert steps >= ({"charge", "pack", "ship"} if order.startswith("v3") else STEPS), order
    # Otherwise nothing was proved: workers have met runs that their code does not fit.
    assert [line for process in processes for line in process.logged("run handed over")]


async def test_a_run_whose_new_worker_dies_is_rescued_and_goes_on_with_the_next_that_fits(any_case: Case) -> None:
    case = any_case
    seed = await case.fork(pack=FIRST, stay=True, results=False, starts=[Start("parcel", ["p"])])
    run_id = (await seed.says("started"))["run"]
    async with case.client(FIRST) as hf:
        run = await hf.get(run_id)
        await until_waiting(run)
        await seed.leaves()

        # It has no room: it neither claims the run by itself, nor executes it before it is killed.
        busy = [Start("busy", ["b"])]
        dying = await case.fork(pack=FIRST, stay=True, lease=LEASE, concurrency=1, results=False, starts=busy)
        await until(lambda: case.ledger.calls("hold"), "the worker to be busy", dying)
        unfit = await case.fork(pack=SECOND, stay=True, lease=LEASE)
        await unfit.says("ready")
        await run.signal("word")
        [handed] = await until(lambda: unfit.logged("run handed over"), "the hand-over", unfit)
        assert handed["run_id"] == run_id
        dying.signal(signal.SIGKILL)
        assert await dying.ended() == KILLED

        fits = await case.fork(pack=FIRST, stay=True, lease=LEASE)
        case.raise_flag("go")
        assert await run.result("60s") == "post"
        assert await (await hf.find("shop.busy", "busy:b")).result("60s") == "b"
    for process in (unfit, fits):
        await process.leaves()
        assert not process.logged("run blocked")
    case.ledger.check(lost=[dying.pid])
    assert [line["step"] for line in case.ledger.calls() if line["order"] == "p"] == ["wrap", "post"]


async def test_a_run_that_no_release_fits_is_blocked_and_taken_up_when_one_that_fits_joins(any_case: Case) -> None:
    case = any_case
    seed = await case.fork(pack=FIRST, stay=True, results=False, starts=[Start("parcel", ["p"])])
    run_id = (await seed.says("started"))["run"]
    async with case.client(FIRST) as hf:
        run = await hf.get(run_id)
        await until_waiting(run)
        await seed.leaves()
        unfit = await case.fork(pack=SECOND, stay=True)
        await unfit.says("ready")
        await run.signal("word")
        [blocked] = await until(lambda: unfit.logged("run blocked"), "the run to be blocked", unfit)
        assert (blocked["run_id"], blocked["code"]) == (run_id, "replay_diverged")
        fits = await case.fork(pack=FIRST, stay=True)
        [taken] = await until(lambda: fits.logged("run taken up"), "the run to be taken up", fits)
        assert taken["run_id"] == run_id
        await until_settled(run)
        assert await run.result("60s") == "post"
    for process in (unfit, fits):
        await process.leaves()
    case.ledger.check()


async def until_waiting(run: object) -> None:
    await until_status(run, {"waiting"})


async def until_settled(run: object) -> None:
    await until_status(run, {"completed"})


async def until_status(run: object, statuses: set[str]) -> None:
    async with asyncio.timeout(60):
        while (await run.refresh()).status not in statuses:
            await asyncio.sleep(0.02)
