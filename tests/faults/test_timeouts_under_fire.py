"""The time limit of a run while processes die: it is ended once, with its error, and undone once."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from holdfast.errors import RunTimedOut
from tests.faults.cases import Case
from tests.faults.conftest import NewCase
from tests.faults.crash_at_store_call import Point, When
from tests.faults.processes import in_turns, until
from tests.faults.test_cancel_under_fire import AT_ONCE, LEASE, LIVE, WHATS, performed, undone
from tests.faults.workflows_long_lived import RUN, STEPS, patient

pytestmark = pytest.mark.faults


async def times_out_in_spite_of(case: Case, point: Point | None) -> int | None:
    """The one process that executes it, and leads, is killed there; another one comes after it."""
    doomed = await case.fork(pack=RUN, stay=True, lease=LEASE, point=point)
    async with case.client(RUN) as hf:
        run, _ = await hf.start(patient("a"))
        await until(lambda: doomed.code is not None or case.statuses()["patient:a"] == "failed", "the kill, or the end")
        doomed.signal(signal.SIGTERM)
        code = await doomed.ended()
        successor = await case.fork(pack=RUN, stay=True, lease=LEASE)
        with pytest.raises(RunTimedOut):
            await run.result(timeout=60)
        receipt = await run.receipt()
        assert receipt.outcome in {"compensated", "no_effects"}, receipt
        assert set(performed(case)) <= set(undone(case)) <= set(STEPS[:1])  # what may have been called is undone, too
        case.ledger.check(lost={doomed.pid} | case.processes.overtaken())
        assert case.ask(LIVE) == [(0,)]
        whats = Counter(what for (what,) in case.ask(WHATS, run.id))
        assert (whats["cancel_asked"], whats["failed"]) == (1, 1), whats
        await successor.leaves()
    return code


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_run_times_out_wherever_its_worker_or_the_leader_dies(new_case: NewCase, when: When) -> None:
    dry = new_case("dry")
    await times_out_in_spite_of(dry, None)
    counts = next(iter(dry.processes)).said("done")[0]["counts"]
    killed: list[Point] = []

    async def one(point: Point) -> None:
        if await times_out_in_spite_of(new_case(str(point).replace(" ", "-")), point):
            killed.append(point)

    points = [Point("commit", n, when) for n in range(1, counts["commit"] + 1)]
    points += [Point("due", n, when) for n in (1, 2)]
    await in_turns([lambda point=point: one(point) for point in points], at_once=AT_ONCE)
    assert len(killed) >= len(points) // 2, killed
