"""Flow rules with real processes, some of which are killed."""

from __future__ import annotations

import asyncio
import re
import signal
from itertools import pairwise

import pytest

from tests.faults.cases import Case
from tests.faults.crash_at_store_call import Point, When
from tests.faults.holdfast_process import Start
from tests.faults.processes import KILLED
from tests.faults.workflows_with_flow_rules import BURST, COUNT, RUN, label, loads, sack

pytestmark = pytest.mark.faults

REPLICAS, EACH = 6, 60
ITEMS = [f"i{n}" for n in range(6)]
WHENS: tuple[When, ...] = ("before", "after")


async def test_of_six_replicas_no_more_begin_than_the_rate_says(any_case: Case) -> None:
    """Which instants the runs were given is read from the store, and what they did from the ledger."""
    case = any_case
    gate = str(case.flag("go"))
    clients = [
        await case.fork(
            pack=RUN,
            worker=False,
            results=False,
            start_gate=gate,
            starts=[Start("sack", [f"{replica}-{n}"]) for n in range(EACH)],
        )
        for replica in range(REPLICAS)
    ]
    for client in clients:
        await client.says("ready")
    case.raise_flag("go")
    assert [await client.ended() for client in clients] == [0] * REPLICAS
    async with case.client(RUN) as hf:
        waits = {run.id: run._row.wake_at_ms or 0 async for run in hf.runs(sack)}
        late = sorted([run._row.wake_at_ms or 0 async for run in hf.runs(sack) if run._row.waits is not None])
    wakes = sorted(waits.values())
    assert len(wakes) == REPLICAS * EACH
    in_a_second = [sum(begin <= at < begin + 1000 for at in wakes) for begin in wakes]
    assert max(in_a_second) <= COUNT + BURST
    # Those that had to wait go one interval apart: as many as the formula says, give or take one.
    interval_ms = 1000 // COUNT
    assert all(after - before >= interval_ms - 1 for before, after in pairwise(late))
    assert len(late) > COUNT
    gaps = [after - before for before, after in pairwise(late) if after - before > 2 * interval_ms]
    if not gaps:  # they were started faster than they may go
        assert abs((late[-1] - late[0]) / interval_ms + 1 - len(late)) <= 1
    worker = await case.fork(pack=RUN, stay=True)
    async with case.client(RUN) as hf:
        async for run in hf.runs(sack):
            await run.result("60s")
    await worker.leaves()
    assert len(case.ledger.calls("grind")) == REPLICAS * EACH
    assert len({line["call"] for line in case.ledger.calls("grind")}) == REPLICAS * EACH


async def test_of_debounced_starts_that_race_workers_none_is_lost(any_case: Case) -> None:
    case = any_case
    workers = [await case.fork(pack=RUN, stay=True, concurrency=2) for _ in range(2)]
    starters = [
        await case.fork(
            pack=RUN, worker=False, results=False, starts=[Start("label", ["l", n * 100 + m]) for m in range(40)]
        )
        for n in range(3)
    ]
    assert [await starter.ended() for starter in starters] == [0] * 3
    async with case.client(RUN) as hf:
        last, _ = await hf.start(label("l", 1_000))
        assert await last.result("30s") == 1_000
        runs = [run async for run in hf.runs(label)]
        inputs = [(await run.input())["version"] for run in runs]
        results = [await run.result("30s") for run in runs]
    await asyncio.gather(*(worker.leaves() for worker in workers))
    assert inputs == results  # old arguments or new ones, and not a mixture
    executed = [int(re.findall(r"l-(\d+)", line["order"])[0]) for line in case.ledger.calls("grind")]
    assert sorted(executed) == sorted(inputs)
    assert executed[-1] == 1_000
    assert len(set(executed)) == len(executed)
    started = [line for starter in starters for line in starter.said("started")]
    assert {line["run"] for line in started} | {last.id} == {run.id for run in runs}


@pytest.mark.parametrize("commit", range(1, 9))
@pytest.mark.parametrize("when", WHENS)
async def test_a_batch_whose_worker_is_killed_has_each_item_once(case: Case, commit: int, when: When) -> None:
    async with case.client(RUN) as hf:
        started = [await hf.start(loads.item(item), key=item) for item in ITEMS]
    assert len({each.run.id for each in started}) == 1
    doomed = await case.fork(pack=RUN, lease="1s", stay=True, point=Point("commit", commit, when))
    ended = asyncio.create_task(doomed.ended())
    successor = None
    async with case.client(RUN) as hf:
        run = await hf.get(started[0].run.id)
        settled = asyncio.create_task(run.wait("45s"))
        await asyncio.wait([ended, settled], return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            assert ended.result() == KILLED
            successor = await case.fork(pack=RUN, lease="1s", stay=True)
        again = [await hf.start(loads.item(item), key=item) for item in ITEMS]
        assert [each.created for each in again] == [False] * len(ITEMS)
        assert [await each.run.result("45s") for each in again] == [f"flour of {item}" for item in ITEMS]
        await settled
    if successor is not None:
        await successor.leaves()
    else:
        if not ended.done():
            doomed.signal(signal.SIGTERM)
        assert await ended in {0, KILLED}  # killed in its very last commit, or never
    case.ledger.check(lost={doomed.pid})
    assert {line["order"] for line in case.ledger.calls("grind")} == set(ITEMS)
    repeated = len(case.ledger.calls("grind")) - len(ITEMS)
    assert repeated <= (1 if successor is not None else 0)
