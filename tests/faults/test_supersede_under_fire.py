"""A successor takes the key over: one wins, the former owner is cancelled once, and there is always an owner (K7)."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator

import pytest

from holdfast import RunCancelled
from tests.faults.cases import Case
from tests.faults.client_actions import Supersede
from tests.faults.conftest import NewCase
from tests.faults.crash_at_store_call import Point, When
from tests.faults.holdfast_process import Start
from tests.faults.processes import KILLED, in_turns
from tests.faults.workflows_long_lived import RUN, post

pytestmark = pytest.mark.faults

LEASE = "1s"
ROUNDS = 15
AT_ONCE = 6
OWNERS = "SELECT id FROM runs WHERE workflow = 'fire.post' AND key = ? AND holds_key = 1"
ENTRIES = "SELECT e.value ->> 'what' FROM journal j, json_each(j.entries) e WHERE j.run_id = ? ORDER BY position, e.key"


def owner_of(case: Case, name: str) -> str:
    """Exactly one run holds the key."""
    [(run_id,)] = case.ask(OWNERS, f"post:{name}")
    return run_id


def check_cancelled_once(case: Case, run_id: str) -> None:
    [(status, holds_key)] = case.ask("SELECT status, holds_key FROM runs WHERE id = ?", run_id)
    assert (status, holds_key) == ("cancelled", 0)
    whats = Counter(what for (what,) in case.ask(ENTRIES, run_id))
    assert (whats["cancel_asked"], whats["cancelled"]) == (1, 1), whats


@contextlib.asynccontextmanager
async def watched(case: Case, name: str) -> AsyncGenerator[None]:
    """Look all the while: never two owners, never none."""
    done = asyncio.Event()

    async def look() -> None:
        while not done.is_set():
            owner_of(case, name)
            await asyncio.sleep(0.002)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        done.set()
        await looking


async def test_of_two_processes_that_supersede_at_once_one_wins_and_the_other_learns_who(case: Case) -> None:
    worker = await case.fork(pack=RUN, stay=True, starts=[Start("post", ["a", 0])], results=False)
    current = (await worker.says("started"))["run"]
    superseded: list[str] = []
    async with watched(case, "a"):
        for number in range(1, ROUNDS + 1):
            gate = str(case.flag(f"go-{number}"))
            rivals = [
                await case.fork(
                    pack=RUN,
                    worker=False,
                    start_gate=gate,
                    actions=[Supersede("post", ["a", 2 * number + side], replaces=current)],
                )
                for side in (0, 1)
            ]
            for rival in rivals:
                await rival.says("waits")
            case.raise_flag(f"go-{number}")
            assert [await rival.ended() for rival in rivals] == [0, 0], rivals
            [won] = [line for rival in rivals for line in rival.said("did")]
            [lost] = [line for rival in rivals for line in rival.said("overtaken")]
            assert won["created"] is True
            assert lost["run"] == won["run"] == owner_of(case, "a")
            superseded.append(current)
            current = won["run"]
    async with case.client(RUN) as hf:
        for run_id in superseded:
            with pytest.raises(RunCancelled):
                await (await hf.get(run_id)).result("45s")
        last = await hf.find(post, "post:a")
        assert last.id == current
        await last.signal("relief", "thanks")
        assert await last.result("45s") == "thanks"
    await worker.leaves()
    for run_id in superseded:
        check_cancelled_once(case, run_id)
    case.ledger.check(lost=case.processes.overtaken())
    served = {line["step"].split()[1] for line in case.ledger.calls() if line["step"].startswith("serve ")}
    undone = {line["step"].split()[1] for line in case.ledger.calls() if line["step"].startswith("unserve ")}
    assert undone <= served
    assert len(served - undone) == 1, "the last owner alone has left its service standing"


async def superseded_in_spite_of(case: Case, point: Point | None, *, works: bool) -> int | None:
    """A process supersedes the owner and is killed there; a caller that asks again gets what the first one wanted."""
    helper = None if works else await case.fork(pack=RUN, stay=True, lease=LEASE)
    async with case.client(RUN) as hf:
        first = (await hf.start(post("a", 0))).run
        doomed = await case.fork(
            pack=RUN,
            worker=works,
            lease=LEASE,
            point=point,
            actions=[Supersede("post", ["a", 1], replaces=first.id, request_id="request-1")],
        )
        async with watched(case, "a"):
            code = await doomed.ended()
            moved = owner_of(case, "a") != first.id
            if code == KILLED and doomed.said("did"):
                assert moved, "it was confirmed, and it is not so"
            successor = helper or await case.fork(pack=RUN, stay=True, lease=LEASE)
            second, created = await hf.start(post("a", 1), replace=first, request_id="request-1")
            assert created
            assert second.id == owner_of(case, "a") != first.id
            with pytest.raises(RunCancelled):
                await first.result("45s")
            assert (await first.receipt()).outcome in {"no_effects", "compensated"}
            await second.signal("relief", "thanks")
            assert await second.result("45s") == "thanks"
        await successor.leaves()
    assert case.ask("SELECT count(*) FROM runs") == [(2,)]
    check_cancelled_once(case, first.id)
    case.ledger.check(lost={doomed.pid} | case.processes.overtaken())
    served = {line["step"] for line in case.ledger.calls()}
    assert "serve 1" in served
    if "serve 0" in served:  # one that was perhaps begun is undone as well, so the reverse need not be
        assert "unserve 0" in served
    return code


async def calls_of_a_supersede(case: Case, *, works: bool) -> Counter[str]:
    assert await superseded_in_spite_of(case, None, works=works) == 0
    [counts] = [line["counts"] for process in case.processes for line in process.said("done") if process.said("did")]
    return Counter(counts)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("works", [False, True])
async def test_a_kill_around_any_call_of_a_supersede_leaves_one_owner(
    new_case: NewCase, when: When, works: bool
) -> None:
    """With `works` the one who is killed executes the runs as well."""
    counts = await calls_of_a_supersede(new_case("dry"), works=works)
    verbs = {"commit": counts["commit"]} if works else counts
    points = [Point(verb, n, when) for verb, count in verbs.items() for n in range(1, count + 1)]
    assert {"commit"} <= set(verbs)
    killed: list[Point] = []

    async def one(point: Point) -> None:
        case = new_case(str(point).replace(" ", "-"))
        if await superseded_in_spite_of(case, point, works=works) == KILLED:
            killed.append(point)

    await in_turns([lambda point=point: one(point) for point in points], at_once=AT_ONCE)
    assert len(killed) >= len(points) * 2 // 3, killed
