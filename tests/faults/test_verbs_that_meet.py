"""Runs that several processes cancel, resume, retry, fork and replace at once: each ends, and repeats nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.faults.cases import Case
from tests.faults.client_actions import Meddle
from tests.faults.holdfast_process import Start
from tests.faults.processes import until
from tests.faults.workflows_long_lived import RUN

pytestmark = pytest.mark.faults

LIVE = "SELECT id, workflow, status FROM runs WHERE finished_ms IS NULL"
NAMES = [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]


@pytest.mark.parametrize("workflow", ["family", "calm"])
@pytest.mark.parametrize("forks", [False, True])
async def test_whatever_four_processes_do_to_parents_every_run_ends_and_no_effect_is_performed_twice(
    case: Case, workflow: str, forks: bool
) -> None:
    """A parent that goes on hears of its children, whenever they ended; what was under way is not done again."""
    workers = [await case.fork(pack=RUN, stay=True) for _ in range(2)]
    starter = await case.fork(pack=RUN, worker=False, starts=[Start(workflow, name) for name in NAMES], results=False)
    assert await starter.ended() == 0
    verbs = [
        "cancel",
        "cancel",
        "resume",
        "resume",
        "resume",
        "retry",
        "retry",
        "retry",
        "replace",
        *(["fork"] if forks else []),
    ]
    meddlers = [
        await case.fork(pack=RUN, worker=False, actions=[Meddle(workflow, NAMES, verbs, times=60, seed=seed)])
        for seed in range(4)
    ]
    done = Counter[str]()
    for meddler in meddlers:
        assert await meddler.ended() == 0
        done.update(line["verb"] for line in meddler.said("did"))
    await until(lambda: not case.ask(LIVE), "every run to end", *workers)
    for worker in workers:
        await worker.leaves()
    assert done["cancel"], done
    assert done["resume"] + done["retry"], done
    performed = Counter(line["done"] for line in case.ledger.lines() if "done" in line)
    assert performed
    if not forks:  # a fork has the keys of what it has copied, and does what it was forked for once more
        assert {key: times for key, times in performed.items() if times > 1} == {}
