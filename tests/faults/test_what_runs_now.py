"""What runs now is seen from other processes, and a worker that dies does not go on running in what they see."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from holdfast import Holdfast, Run
from holdfast.client import Wait
from holdfast.testing import eventually
from tests.faults.cases import Case
from tests.faults.holdfast_process import Start
from tests.faults.processes import KILLED, Process, until
from tests.faults.workflows_held_by_flags import RUN, hold

pytestmark = pytest.mark.faults

LEASE = "3s"


async def shown(hf: Holdfast, process: Process, *, lost: bool = False) -> Wait:
    """What the run waits for, once that is an effect that this process performs, or did."""
    found: list[Wait] = []

    async def look() -> bool:
        found[:] = (await hf.find(hold, "hold:a")).waiting_on
        return any(w.effect is not None and w.effect.lost is lost and f"-{process.pid}-" in w.instance for w in found)

    await eventually(look)
    [wait] = found
    return wait


async def test_a_run_shows_what_it_is_at_until_its_worker_dies_and_then_what_the_next_one_does(any_case: Case) -> None:
    case = any_case
    worker = await case.fork(pack=RUN, starts=[Start("hold", ["a"])], stay=True, lease=LEASE)
    await until(lambda: worker.said("started"), "the run to be started", worker)
    async with case.client(RUN) as hf:
        wait = await shown(hf, worker)
        assert wait.effect is not None
        assert (wait.kind, wait.step, wait.effect.name, wait.effect.attempt) == (
            "running",
            "grip#1",
            "trial.grip",
            1,
        )
        run: Run[Any] = await hf.find(hold, "hold:a")
        assert run.created_at <= wait.effect.since
        assert f"attempt 1, running since {wait.effect.since.isoformat(timespec='milliseconds')}" in str(
            await run.explain()
        )
        [member] = await hf.workers()
        assert member.instance == wait.instance

        worker.signal(signal.SIGKILL)
        assert await worker.ended() == KILLED
        dead = await shown(hf, worker, lost=True)  # no process is there to take it over
        assert str(dead) == f"effect grip#1, attempt 1, which ran on instance {wait.instance} when its lease expired"

        successor = await case.fork(pack=RUN, stay=True, lease=LEASE)
        again = await shown(hf, successor)
        assert again.effect is not None
        assert again.effect.since > wait.effect.since
        case.raise_flag("go-a")
        assert await run.result("45s") == "a"
        assert (await run.refresh()).waiting_on == ()
        await successor.leaves()
    assert [line["pid"] for line in case.ledger.calls("grip")] == [worker.pid, successor.pid]
