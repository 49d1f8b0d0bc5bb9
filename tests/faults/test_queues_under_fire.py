"""A lane keeps its order, and its width, wherever a process dies: by a ledger that knows nothing of lanes."""

from __future__ import annotations

import signal

import pytest

from tests.faults.cases import Case
from tests.faults.conftest import NewCase
from tests.faults.crash_at_store_call import Point, When
from tests.faults.holdfast_process import Start
from tests.faults.processes import KILLED, Process, in_turns, until
from tests.faults.workflows_in_lanes import LANE, RUN, serve

pytestmark = pytest.mark.faults

LEASE = "1s"
AT_ONCE = 6
NAMES = ["a", "b", "c"]


def check_order(case: Case, names: list[str]) -> None:
    """Each one has entered and left, one after the other, in this order. What a killed process did may be repeated."""
    seen: list[tuple[str, str]] = []
    for line in case.ledger.calls():
        if (step := (line["step"], line["order"])) not in seen[-1:]:
            seen.append(step)
    assert seen == [(step, name) for name in names for step in ("enter", "leave")]


async def all_served(case: Case, names: list[str]) -> None:
    async with case.client(RUN) as hf:
        for name in names:
            run, _ = await hf.start(serve(name))
            assert await run.result("45s") == name
        lane = await hf.lane(LANE)
        assert (lane.active, lane.parked, lane.head) == (0, 0, None)


async def started(case: Case, names: list[str]) -> None:
    async with case.client(RUN) as hf:
        for name in names:
            _, created = await hf.start(serve(name))
            assert created


async def test_the_worker_of_the_active_run_is_killed_again_and_again_and_the_order_is_kept(case: Case) -> None:
    names = [f"n-{number:02}" for number in range(12)]
    held = names[::3]
    for name in held:
        case.raise_flag(f"hold-{name}")
    await started(case, names)
    workers = [await case.fork(pack=RUN, stay=True, lease=LEASE, concurrency=2) for _ in range(2)]
    for name in held:
        await until(lambda name=name: _calls(case, name), f"{name} enters")
        [doomed] = [worker for worker in workers if worker.pid == _calls(case, name)[-1]["pid"]]
        doomed.signal(signal.SIGKILL)
        assert await doomed.ended() == KILLED
        workers.remove(doomed)
        workers.append(await case.fork(pack=RUN, stay=True, lease=LEASE, concurrency=2))
        await until(lambda name=name: len(_calls(case, name)) > 1, f"{name} enters again", *workers)
        case.raise_flag(f"go-{name}")
    await all_served(case, names)
    check_order(case, names)
    for worker in workers:
        await worker.leaves()


def _calls(case: Case, name: str) -> list[dict[str, object]]:
    return [line for line in case.ledger.calls("enter") if line["order"] == name]


async def served_in_spite_of(case: Case, point: Point | None) -> Process:
    """One process starts the runs and executes them; it is killed there, and another one goes on."""
    doomed = await case.fork(pack=RUN, lease=LEASE, starts=[Start("serve", [name]) for name in NAMES], point=point)
    code = await doomed.ended()
    assert code in {0, KILLED}, doomed
    helper = await case.fork(pack=RUN, stay=True, lease=LEASE)
    await all_served(case, NAMES)
    check_order(case, NAMES)
    await helper.leaves()
    return doomed


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_around_any_commit_the_next_one_goes_and_no_other(new_case: NewCase, when: When) -> None:
    dry = await served_in_spite_of(new_case("dry"), None)
    commits = (await dry.says("done"))["counts"]["commit"]

    async def once(n: int) -> None:
        await served_in_spite_of(new_case(f"{when}-{n}"), Point("commit", n, when))

    await in_turns([lambda n=n: once(n) for n in range(1, commits + 1)], at_once=AT_ONCE)


async def test_the_process_that_opens_a_lane_again_is_killed_and_all_go(case: Case) -> None:
    async with case.client(RUN) as hf:
        await hf.set_lane(LANE, paused=True)
    await started(case, NAMES)
    worker = await case.fork(pack=RUN, stay=True, lease=LEASE)
    await worker.says("ready")
    async with case.client(RUN) as hf:
        assert (await hf.lane(LANE)).parked == len(NAMES)
        await hf.set_lane(LANE, paused=False)
    await until(lambda: case.ledger.calls("enter"), "the first one enters", worker)
    worker.signal(signal.SIGKILL)
    await worker.ended()
    helper = await case.fork(pack=RUN, stay=True, lease=LEASE)
    await all_served(case, NAMES)
    check_order(case, NAMES)
    await helper.leaves()


async def test_children_of_a_parent_that_is_killed_enter_the_lane_once_each_in_order(new_case: NewCase) -> None:
    async def once(n: int) -> None:
        case = new_case(f"child-{n}")
        doomed = await case.fork(
            pack=RUN, lease=LEASE, starts=[Start("group", ["g"])], point=Point("commit", n, "after")
        )
        await doomed.ended()
        helper = await case.fork(pack=RUN, stay=True, lease=LEASE, starts=[Start("group", ["g"])])
        await all_served(case, ["g-one", "g-two"])
        check_order(case, ["g-one", "g-two"])
        await helper.leaves()

    await in_turns([lambda n=n: once(n) for n in range(1, 7)], at_once=AT_ONCE)
