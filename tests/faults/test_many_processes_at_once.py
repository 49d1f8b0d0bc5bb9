"""Many processes on one store: one key, one fresh file, one heap of work (K1, and no lock error that anybody sees)."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.cases import Case
from tests.faults.holdfast_process import Start
from tests.faults.workflows_held_by_flags import RUN

pytestmark = pytest.mark.faults


async def test_of_64_processes_that_start_one_key_one_creates_the_run(any_case: Case) -> None:
    """K1."""
    case = any_case
    asked = [Start("tap", ["a"])]
    clients = [
        await case.fork(pack=RUN, worker=False, starts=asked, results=False, start_gate=str(case.flag("go")))
        for _ in range(64)
    ]
    await asyncio.gather(*(client.says("waits") for client in clients))
    case.raise_flag("go")
    answers = [await client.says("started") for client in clients]
    assert [answer["created"] for answer in answers].count(True) == 1
    assert [answer["created"] for answer in answers].count(False) == 63
    async with case.client(RUN) as hf:
        [run] = [run async for run in hf.runs()]
    assert {answer["run"] for answer in answers} == {run.id}
    assert run.key == "tap:a"
    assert [await client.ended() for client in clients] == [0] * 64
    worker = await case.fork(pack=RUN, starts=asked)
    assert (await worker.says("started"))["created"] is False
    assert (await worker.says("result"))["value"] == "a"
    assert len(case.ledger.calls()) == 1


async def test_starts_that_race_the_end_of_the_owner_are_answered_in_one_of_two_orders(any_case: Case) -> None:
    """K5. Four processes start the same short runs while two others execute them: never a miss, one run per key."""
    case = any_case
    workers = [await case.fork(pack=RUN, stay=True) for _ in range(2)]
    starts = [Start("tap", [f"{n}"]) for n in range(60)]
    clients = [
        await case.fork(pack=RUN, worker=False, starts=starts, start_gate=str(case.flag("go"))) for _ in range(4)
    ]
    await asyncio.gather(*(client.says("waits") for client in clients))
    case.raise_flag("go")
    assert [await client.ended() for client in clients] == [0] * 4
    await asyncio.gather(*(worker.leaves() for worker in workers))
    answers = [line for client in clients for line in client.said("started")]
    assert len(answers) == 240
    assert sum(answer["created"] for answer in answers) == 60
    assert len({answer["run"] for answer in answers}) == 60
    for client in clients:
        assert {line["arguments"][0]: line["value"] for line in client.said("result")} == {
            f"{n}": f"{n}" for n in range(60)
        }
        assert not client.said("failed"), client
    assert len(case.ledger.calls()) == 60


async def test_a_key_is_the_same_in_processes_that_differ_in_everything_else(case: Case) -> None:
    """K18. Another hash seed, time zone and locale: the same arguments are the same key, and the same input."""
    odd = ["a:b {c} %2F é \N{SNOWMAN}"]
    plan = case.plan(pack=RUN, worker=False, starts=[Start("tap", odd)], results=False)
    places = [
        {"PYTHONHASHSEED": "1", "TZ": "Pacific/Kiritimati", "LC_ALL": "C"},
        {"PYTHONHASHSEED": "2", "TZ": "America/Los_Angeles", "LC_ALL": "C.UTF-8"},
    ]
    answers = [await case.processes.run(plan, env=env).says("started") for env in places]
    assert [answer["created"] for answer in answers] == [True, False]
    assert len({answer["run"] for answer in answers}) == 1


async def test_32_processes_open_a_fresh_file_at_once(case: Case) -> None:
    """Half of them work, half of them only ask; none is refused, and one schema comes of it."""
    gate = str(case.flag("go"))
    processes = [
        await case.fork(pack=RUN, worker=works, stay=works, gate=gate, starts=[Start("tap", [f"{number}"])])
        for number, works in enumerate([True, False] * 16)
    ]
    await asyncio.gather(*(process.says("waits") for process in processes))
    case.raise_flag("go")
    for number, process in enumerate(processes):
        assert (await process.says("result"))["value"] == f"{number}"
    await asyncio.gather(*(process.leaves() for process in processes[::2]))
    assert [await process.ended() for process in processes] == [0] * 32
    assert case.ask("PRAGMA integrity_check") == [("ok",)]
    assert case.ask("SELECT count(*) FROM runs WHERE status = 'completed'") == [(32,)]
    case.ledger.check(lost=case.processes.overtaken())


async def test_six_workers_share_300_runs_without_a_lock_error(case: Case) -> None:
    """Each effect once, every run ended, and no process ever heard that the file was locked."""
    workers = [await case.fork(pack=RUN, stay=True, concurrency=8) for _ in range(6)]
    for worker in workers:
        await worker.says("ready")
    clients = [
        await case.fork(pack=RUN, worker=False, starts=[Start("walk", [f"{c}-{n}", 2]) for n in range(100)])
        for c in range(3)
    ]
    for client in clients:
        assert await client.ended() == 0, client
        assert len(client.said("result")) == 100
    await asyncio.gather(*(worker.leaves() for worker in workers))
    assert case.ask("SELECT status, count(*) FROM runs GROUP BY 1") == [("completed", 300)]
    calls = case.ledger.calls()
    assert len(calls) == len({line["call"] for line in calls}) == 600
    assert len({line["pid"] for line in calls}) == 6, "some worker had nothing to do"
    for process in [*workers, *clients]:
        assert not process.logged("store in trouble"), process
        assert not process.logged("duty failed"), process
        assert not process.said("failed"), process
