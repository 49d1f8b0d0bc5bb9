"""What was confirmed survives a power loss: only what had been synced is left, and it is enough.

The file is written through a disk that keeps a second copy with synced writes alone. The process is killed without
warning; Holdfast then opens that copy.
"""

from __future__ import annotations

import shutil
import signal

import pytest

from tests.faults.conftest import NewCase
from tests.faults.holdfast_process import Start
from tests.faults.processes import KILLED, until
from tests.faults.workflows_held_by_flags import RUN

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("after", [1, 40, 200])
async def test_every_answer_is_there_after_a_power_loss(new_case: NewCase, after: int) -> None:
    case = new_case("before")
    starts = [Start("tap", [f"t{n}"]) for n in range(400)]
    # It stays: it must not be done before the power is lost, however slowly that is noticed here.
    process = await case.fork(pack=RUN, starts=starts, disk="losing", concurrency=20, lease="1s", stay=True)
    await until(lambda: len(process.said("result")) >= after, f"{after} results", process)
    process.signal(signal.SIGKILL)
    assert await process.ended() == KILLED

    later = new_case("after")
    for file in case.flag("survives").iterdir():
        shutil.copy(file, later.directory / file.name)
    shutil.copy(case.ledger.path, later.ledger.path)
    assert later.ask("PRAGMA integrity_check") == [("ok",)]
    there = dict(later.ask("SELECT id, status FROM runs"))
    confirmed = {line["run"] for line in process.said("started")}
    finished = {line["run"] for line in process.said("result")}
    assert len(confirmed) >= len(finished) >= after
    assert confirmed <= there.keys()
    assert {there[run_id] for run_id in finished} == {"completed"}

    successor = await later.fork(pack=RUN, starts=starts, lease="1s")
    assert await successor.ended() == 0, successor
    assert len(successor.said("result")) == 400
    later.ledger.check(lost={process.pid})
