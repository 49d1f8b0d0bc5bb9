"""A restart finds 10,000 runs asleep and lets them sleep: no replay, no query per run (K15)."""

from __future__ import annotations

import signal

import pytest

from tests.faults.cases import Case
from tests.faults.holdfast_process import Start
from tests.faults.processes import until
from tests.faults.workflows_held_by_flags import RUN

pytestmark = pytest.mark.faults

WAITING = 10_000


async def test_a_restart_with_ten_thousand_waiting_runs_reads_none_of_them(case: Case) -> None:
    sleepers = [Start("nap", [f"{n}", 86_400.0]) for n in range(WAITING)]
    before = case.run(pack=RUN, starts=sleepers, results=False, stay=True)
    await until(lambda: case.path.exists() and before.said("ready"), "the first process", before)
    asleep = "SELECT count(*) FROM runs WHERE status = 'waiting' AND owner IS NULL"
    await until(lambda: case.ask(asleep) == [(WAITING,)], "all to fall asleep", before, within=100)
    early = await case.fork(pack=RUN, worker=False, starts=[Start("nap", ["due", 3.0])], results=False)
    assert await early.ended() == 0
    await until(lambda: case.ask(asleep) == [(WAITING + 1,)], "the last one to fall asleep", before)
    before.signal(signal.SIGKILL)
    await before.ended()
    rows = case.ask("SELECT id, status, epoch, length, wake_ms FROM runs WHERE key <> 'nap:due' ORDER BY id")

    after = case.run(pack=RUN, stay=True)
    ended = "SELECT 1 FROM runs WHERE workflow = 'trial.nap' AND key = 'nap:due' AND holds_key AND status = 'completed'"
    await until(lambda: case.ask(ended), "the one that is due", after)
    await after.leaves()
    [report] = after.said("done")
    [(due_id,)] = case.ask("SELECT id FROM runs WHERE key = 'nap:due'")
    assert report["read"] == [due_id]
    counts = report["counts"]
    assert counts["histories"] == 1
    assert counts["commit"] == 2  # the timer, then the effect and the end
    assert sum(counts.values()) < 50, counts
    assert [line["pid"] for line in case.ledger.calls()] == [after.pid]
    assert case.ask("SELECT id, status, epoch, length, wake_ms FROM runs WHERE key <> 'nap:due' ORDER BY id") == rows
