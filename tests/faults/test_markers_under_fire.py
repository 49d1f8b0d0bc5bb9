"""Killed and restarted from every marker, a run comes to the same end (C5)."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from holdfast import Run
from tests.faults.cases import Case
from tests.faults.conftest import NewCase
from tests.faults.crash_at_store_call import Point, When
from tests.faults.holdfast_process import Start
from tests.faults.processes import KILLED, in_turns, until
from tests.faults.workflows_long_lived import MARKERS, RUN, parcel

pytestmark = pytest.mark.faults

LEASE = "1s"
END = [f"{marker} stamped" for marker in MARKERS]
MARKED = "SELECT e.value ->> 'marker' FROM journal j, json_each(j.entries) e WHERE e.value ->> 'what' = 'marked'"


async def check_end(case: Case, run: Run[Any], *, lost: set[int]) -> None:
    assert await run.result("45s") == END
    run = await run.refresh()
    assert [marker.name for marker in run.markers] == list(MARKERS)
    assert sorted(marker.at for marker in run.markers) == [marker.at for marker in run.markers]
    assert [marker for (marker,) in case.ask(MARKED)] == list(MARKERS)
    case.ledger.check(lost=lost | case.processes.overtaken())
    assert {line["step"] for line in case.ledger.calls()} == {f"stamp {marker}" for marker in MARKERS}


async def test_killed_at_every_marker_in_turn_it_comes_to_the_same_end(case: Case) -> None:
    """At each marker the worker dies in the middle of the effect that follows; the next one goes on from there."""
    lost: set[int] = set()
    async with case.client(RUN) as hf:
        run, _ = await hf.start(parcel("a"))
        shown: dict[str, Any] = {}
        for number, marker in enumerate(MARKERS):
            worker = await case.fork(pack=RUN, stay=True, lease=LEASE)
            await until(lambda marker=marker: case.ledger.calls(f"stamp {marker}"), f"marker {marker}", worker)
            run = await run.refresh()
            names = [reached.name for reached in run.markers]
            assert names[: number + 1] == list(MARKERS[: number + 1])[: len(names)]
            shown |= {reached.name: reached.at for reached in run.markers}
            worker.signal(signal.SIGKILL)
            assert await worker.ended() == KILLED
            lost.add(worker.pid)
            case.raise_flag(f"go-{marker}")
        last = await case.fork(pack=RUN, stay=True, lease=LEASE)
        await check_end(case, run, lost=lost)
        await last.leaves()
        at = {reached.name: reached.at for reached in (await run.refresh()).markers}
        assert shown.items() <= at.items(), "what was once shown has changed"


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_around_any_commit_it_comes_to_the_same_end(new_case: NewCase, when: When) -> None:
    async def one(n: int) -> None:
        case = new_case(f"commit-{n}")
        for marker in MARKERS:
            case.raise_flag(f"go-{marker}")
        doomed = await case.fork(pack=RUN, starts=[Start("parcel", ["a"])], lease=LEASE, point=Point("commit", n, when))
        assert await doomed.ended() == KILLED, doomed
        successor = await case.fork(pack=RUN, stay=True, lease=LEASE)
        async with case.client(RUN) as hf:
            run, _ = await hf.start(parcel("a"))
            await check_end(case, run, lost={doomed.pid})
        await successor.leaves()

    await in_turns([lambda n=n: one(n) for n in range(1, len(MARKERS) + 2)], at_once=6)
