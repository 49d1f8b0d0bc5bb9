"""A shield is not cut in two: what it protects comes to its end wherever a worker dies during a cancellation (C6)."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.faults.cases import Case
from tests.faults.conftest import NewCase
from tests.faults.crash_at_store_call import Point
from tests.faults.processes import in_turns, until
from tests.faults.workflows_long_lived import RUN, transfer

pytestmark = pytest.mark.faults

LEASE = "1s"
AT_ONCE = 6
WAYS = ["before", "in a task", "beside", "after"]
BEGAN = "SELECT 1 FROM runs WHERE id = ? AND epoch > 0"
ASKED = "SELECT 1 FROM inbox WHERE run_id = ? AND id LIKE 'cancel/%'"


async def cancelled_in_spite_of(case: Case, way: str, *points: Point) -> int:
    """Cancel a transfer while one worker after the other dies; how many did."""
    doomed = [await case.fork(pack=RUN, stay=True, lease=LEASE, point=point) for point in points]
    survivors = [] if points else [await case.fork(pack=RUN, stay=True, lease=LEASE)]
    async with case.client(RUN) as hf:
        run, _ = await hf.start(transfer("a", way))

        def began() -> bool:
            died = any(each.code is not None for each in doomed)
            return died or bool(case.ask(BEGAN, run.id) if way == "after" else case.ledger.calls("debit"))

        await until(began, "the first step, or a death")
        cancelling = asyncio.create_task(run.cancel(deadline="2m"))
        await until(lambda: cancelling.done() or case.ask(ASKED, run.id), "the request")
        case.raise_flag("go-a")
        await until(
            lambda: cancelling.done() or all(each.code is not None for each in doomed),
            "the deaths, or the end",
        )
        for each in doomed:
            each.signal(signal.SIGTERM)
        killed = [each.pid for each in doomed if await each.ended()]
        survivors += [await case.fork(pack=RUN, stay=True, lease=LEASE)]
        receipt = await cancelling
        assert not receipt.stopped
        states = {str(effect).partition(":")[0]: effect.state for effect in receipt.effects}
        if states or case.ledger.calls():
            assert states == {"debit": "performed", "credit": "performed"}, receipt
            assert [line["step"] for line in case.ledger.calls("credit")] == ["credit"]
        case.ledger.check(lost={*killed} | case.processes.overtaken())
        for each in survivors:
            await each.leaves()
    return len(killed)


@pytest.mark.parametrize("way", WAYS)
async def test_a_worker_killed_around_any_commit_of_a_cancellation_leaves_the_rest_of_the_shield_to_the_next(
    new_case: NewCase, way: str
) -> None:
    dry = new_case("dry")
    await cancelled_in_spite_of(dry, way)
    assert [line["step"] for line in dry.ledger.calls()] == ["debit", "credit"]
    killed: list[int] = []

    async def one(*points: Point) -> None:
        case = new_case("-".join(str(each).replace(" ", "-") for each in points))
        killed.append(await cancelled_in_spite_of(case, way, *points))

    alone = [(Point("commit", n, when),) for n in range(1, 6) for when in ("before", "after")]
    twice = [(Point("commit", n, "after"), Point("commit", m, "before")) for n, m in ((1, 2), (2, 2), (2, 3), (3, 1))]
    await in_turns([lambda points=points: one(*points) for points in [*alone, *twice]], at_once=AT_ONCE)
    assert sum(killed) >= len(alone) // 2
