"""Attempts are counted by their records: a death uses none up and forgets none (E10)."""

from __future__ import annotations

import signal
import time

import pytest

from tests.faults.cases import Case
from tests.faults.holdfast_process import Start
from tests.faults.processes import KILLED, until
from tests.faults.workflows_held_by_flags import RUN, climb, rush

pytestmark = pytest.mark.faults

LEASE = "1s"


async def test_the_next_process_goes_on_with_the_third_attempt(case: Case) -> None:
    """Killed while it waits to repeat an effect that has failed twice, and again in the middle of the third attempt."""
    first = await case.fork(pack=RUN, starts=[Start("climb", ["a"])], stay=True, lease=LEASE)
    await until(lambda: len(first.logged("effect will be retried")) == 2, "two failures", first)
    attempted = "SELECT count(*) FROM journal j, json_each(j.entries) e WHERE e.value ->> 'what' = 'attempted'"
    await until(lambda: case.ask(attempted) == [(2,)], "their records", first)
    first.signal(signal.SIGKILL)
    assert await first.ended() == KILLED
    assert [line["attempt"] for line in case.ledger.calls()] == [1, 2]

    second = await case.fork(pack=RUN, stay=True, lease=LEASE)
    await until(lambda: len(case.ledger.calls()) == 3, "the third attempt", second)
    second.signal(signal.SIGKILL)
    assert await second.ended() == KILLED

    third = await case.fork(pack=RUN, stay=True, lease=LEASE)
    case.raise_flag("go-a")
    async with case.client(RUN) as hf:
        run = await hf.find(climb, "climb:a")
        assert await run.result("45s") == 3
        journal = await run.journal()
    await third.leaves()
    calls = case.ledger.calls()
    assert [(line["attempt"], line["pid"]) for line in calls] == [
        (1, first.pid),
        (2, first.pid),
        (3, second.pid),
        (3, third.pid),
    ]
    assert len({line["call"] for line in calls}) == 1
    assert [type(entry).__name__ for entry in journal] == [
        "Started",
        "Attempted",
        "Attempted",
        "Performed",
        "Completed",
    ]


@pytest.mark.parametrize("in_a_thread", [True, False], ids=["sync", "async"])
async def test_after_the_deadline_the_next_process_calls_nothing(case: Case, *, in_a_thread: bool) -> None:
    """Killed in the middle of an attempt; its deadline passes before there is another process."""
    first = await case.fork(pack=RUN, starts=[Start("rush", ["a", in_a_thread])], stay=True, lease=LEASE)
    await until(lambda: case.ledger.calls("hurry"), "the call", first)
    first.signal(signal.SIGKILL)
    assert await first.ended() == KILLED
    [(created_at_ms,)] = case.ask("SELECT created_ms FROM runs")
    await until(lambda: time.time() * 1000 > created_at_ms + 1_600, "the deadline")
    second = await case.fork(pack=RUN, stay=True, lease=LEASE)
    async with case.client(RUN) as hf:
        said = await (await hf.find(rush, "rush:a")).result("45s")
    await second.leaves()
    assert "was over before attempt 1 could begin" in said
    assert [line["pid"] for line in case.ledger.calls("hurry")] == [first.pid]
