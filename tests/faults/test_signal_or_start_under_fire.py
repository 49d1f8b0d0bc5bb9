"""Signal-or-start from many processes while owners come and go: each payload lands once (K8)."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast, Run
from holdfast.kernel.journal import Received
from tests.faults.cases import Case
from tests.faults.client_actions import ClientAction, Give, Outlast, Release, Supersede
from tests.faults.conftest import NewCase
from tests.faults.crash_at_store_call import Point, When
from tests.faults.holdfast_process import Start
from tests.faults.processes import KILLED, Process, in_turns, until
from tests.faults.workflows_long_lived import RUN, diary

pytestmark = pytest.mark.faults

LEASE = "1s"
GIVERS = 4
EACH = 250
EACH_TWICE = 120
PAUSE_EVERY = 20


def taken(case: Case) -> list[list[Any]]:
    """What the runs have taken, one after the other."""
    outputs = case.ask("SELECT output FROM runs ORDER BY rowid")
    return [msgspec.json.decode(output)["json"] for (output,) in outputs]


async def all_ended(case: Case, *about: Process) -> None:
    live = "SELECT count(*) FROM runs WHERE status <> 'completed'"
    await until(lambda: case.ask(live) == [(0,)], "every run to end", *about)


async def givers(case: Case, workflow: str, *, each: int, twice: bool) -> list[Process]:
    """Each gives its own share, a few at a time; with `twice`, each payload is given by two of them."""
    chance = random.Random(8)
    shares = [[f"{giver}-{n}" for n in range(each)] for giver in range(GIVERS)]
    if twice:
        shares = [[*shares[giver // 2]] for giver in range(GIVERS)]
        for share in shares:
            chance.shuffle(share)
    return [
        await case.fork(
            pack=RUN,
            worker=False,
            actions=actions(workflow, share, twice=twice),
            at_once=1 + number % 3,
            start_gate=str(case.flag("go")),
        )
        for number, share in enumerate(shares)
    ]


def actions(workflow: str, share: list[str], *, twice: bool) -> list[ClientAction]:
    """Now and then they wait until the owner has finished: one that closes when nothing comes never would."""
    given: list[ClientAction] = []
    for number, coin in enumerate(share, 1):
        given.append(Give(workflow, ["a"], "coins", coin, coin if twice else None))
        if workflow == "till" and number % PAUSE_EVERY == 0:
            given.append(Outlast("till", "till:a"))
    return given


async def gave_everything(case: Case, all_of_them: list[Process]) -> list[dict[str, Any]]:
    for giver in all_of_them:
        await giver.says("waits")
    case.raise_flag("go")
    for giver in all_of_them:
        assert await giver.ended() == 0, giver
        assert not giver.said("failed"), giver
    return [line for giver in all_of_them for line in giver.said("did")]


def check(case: Case, wanted: int) -> None:
    """Each payload is in exactly one result, and there was no run without any."""
    results = taken(case)
    counts = Counter(coin for result in results for coin in result)
    assert len(counts) == wanted, f"{wanted - len(counts)} of {wanted} were lost"
    assert set(counts.values()) == {1}, [coin for coin, times in counts.items() if times > 1]
    assert all(results), "a run was started for nothing"
    assert len(results) > 1, "no owner finished while payloads were coming"
    assert case.ask("SELECT count(*) FROM runs WHERE holds_key = 1") == [(1,)]
    assert case.ask("SELECT count(*) FROM runs WHERE unread <> 0") == [(0,)]


@pytest.mark.parametrize("workflow", ["till", "purse"])
async def test_a_thousand_payloads_land_once_each_while_owners_finish(case: Case, workflow: str) -> None:
    """An owner finishes when nothing comes for a moment; or when it is full, whatever else has come."""
    workers = [await case.fork(pack=RUN, stay=True) for _ in range(2)]
    answers = await gave_everything(case, await givers(case, workflow, each=EACH, twice=False))
    assert len(answers) == GIVERS * EACH
    await all_ended(case, *workers)
    await asyncio.gather(*(worker.leaves() for worker in workers))
    check(case, GIVERS * EACH)
    if workflow == "till":  # it leaves nothing to a successor, so the run that was told is the run that has it
        by_run = dict(zip((run for (run,) in case.ask("SELECT id FROM runs ORDER BY rowid")), taken(case), strict=True))
        assert all(answer["payload"] in by_run[answer["run"]] for answer in answers)
        assert sum(answer["created"] for answer in answers) == len(by_run)
    else:
        assert {len(result) for result in taken(case)} == {10}


@pytest.mark.parametrize("workflow", ["till", "purse"])
async def test_they_land_once_with_workers_killed_and_everything_given_twice(case: Case, workflow: str) -> None:
    """Two processes give the same payloads with the same dedupe ids; a worker dies three times."""
    workers = [await case.fork(pack=RUN, stay=True, lease=LEASE) for _ in range(2)]
    for worker in workers:
        await worker.says("ready")
    giving = asyncio.create_task(gave_everything(case, await givers(case, workflow, each=EACH_TWICE, twice=True)))
    for blow in range(1, 4):
        due = blow * GIVERS * EACH_TWICE // 10
        await until(lambda due=due: case.ask("SELECT count(*) FROM inbox")[0][0] >= due, f"blow {blow}", *workers)
        workers[0].signal(signal.SIGKILL)
        workers = [*workers[1:], await case.fork(pack=RUN, stay=True, lease=LEASE)]
    assert len(await giving) == GIVERS * EACH_TWICE
    await all_ended(case, *workers)
    await asyncio.gather(*(worker.leaves() for worker in workers))
    check(case, GIVERS * EACH_TWICE // 2)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_giver_killed_around_any_call_that_gives_again_has_given_once(new_case: NewCase, when: When) -> None:
    """To no owner (it starts the run), to a live owner, and to one that has ended."""
    points = [Point(verb, n, when) for verb, n in (("run_of_key", 1), ("commit", 1), ("commit", 2), ("close", 1))]

    async def one(point: Point) -> None:
        case = new_case(str(point).replace(" ", "-"))
        worker = await case.fork(pack=RUN, stay=True, starts=[Start("diary", ["a", 3])], results=False)
        await worker.says("started")
        for number in range(3):
            action = Give("diary", ["a", 3], "notes", number, f"note-{number}")
            doomed = await case.fork(pack=RUN, worker=False, actions=[action], point=point)
            assert await doomed.ended() in {KILLED, 0}
            again = await case.fork(pack=RUN, worker=False, actions=[action, action])
            assert await again.ended() == 0, again
            assert len(again.said("did")) == 2, again
        await until(lambda: case.statuses() == {"diary:a": "completed"}, "the end", worker)
        # It has ended, and its key is still its own: what comes again is known, what is new opens another.
        late = await case.fork(
            pack=RUN,
            worker=False,
            actions=[Give("diary", ["a", 3], "notes", n, f"note-{n}") for n in range(4)],
        )
        assert await late.ended() == 0, late
        assert [line["created"] for line in late.said("did")] == [False, False, False, True]
        async with case.client(RUN) as hf:
            first = await hf.get(late.said("did")[0]["run"])
            assert await first.result("45s") == [0, 1, 2]
            second = await hf.get(late.said("did")[3]["run"])
            for number in (4, 5):
                await second.signal("notes", number)
            assert await second.result("45s") == [3, 4, 5]
        await worker.leaves()

    await in_turns([lambda point=point: one(point) for point in points], at_once=4)


# -- keys that are taken away while there is mail

RECEIVED = """
SELECT j.run_id, e.value -> 'value' ->> 'json' FROM journal j, json_each(j.entries) e
WHERE e.value ->> 'what' = 'received'
"""
LIVE = "SELECT count(*) FROM runs WHERE finished_ms IS NULL OR unread <> 0"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("verb", ["release", "replace"])
async def test_the_mail_of_a_run_that_lost_its_key_is_in_its_journal_wherever_a_worker_dies(
    new_case: NewCase, when: When, verb: str
) -> None:
    """It takes one of three and returns; there is no successor that could take over the others."""
    killed: list[int] = []

    async def one(n: int) -> None:
        case = new_case(f"commit-{n}")
        first = await case.fork(pack=RUN, stay=True, starts=[Start("diary", ["a", 1])], results=False)
        run_id = (await first.says("started"))["run"]
        began = "SELECT count(*) FROM runs WHERE started_ms IS NOT NULL"
        await until(lambda: case.ask(began) == [(1,)], "it to begin", first)
        await first.leaves()
        async with case.client(RUN) as hf:
            for number in range(3):
                told = await hf.start(diary("a", 1), signal=("notes", number, f"note-{number}"))
                assert told.run.id == run_id
            if verb == "release":
                await told.run.release_key("a person")
                await hf.start(diary("a", 1), signal=("notes", 3, "note-3"))
            else:
                await hf.start(diary("a", 1), replace=told.run, signal=("notes", 3, "note-3"))
            doomed = await case.fork(pack=RUN, stay=True, lease=LEASE, point=Point("commit", n, when))
            await until(lambda: doomed.code is not None or case.ask(LIVE) == [(0,)], "the end of something", doomed)
            successor = await case.fork(pack=RUN, stay=True, lease=LEASE)
            await until(lambda: case.ask(LIVE) == [(0,)], "every run to end", successor)
            doomed.signal(signal.SIGTERM)
            if await doomed.ended() == KILLED:
                killed.append(n)
            await successor.leaves()
            for number in range(3):  # a caller that asks again meets the run that has it
                again = await hf.start(diary("a", 1), signal=("notes", number, f"note-{number}"))
                assert (again.created, again.run.id) == (False, run_id)
        received = sorted((run == run_id, int(payload)) for run, payload in case.ask(RECEIVED))
        assert received == [(False, 3), (True, 0), (True, 1), (True, 2)]

    await in_turns([lambda n=n: one(n) for n in range(1, 4)], at_once=3)
    assert killed


async def test_each_payload_is_in_a_journal_while_keys_are_released_and_taken_over_and_workers_die(
    any_case: Case,
) -> None:
    """What was accepted is compared with what the journals of all runs hold; what was taken was taken once."""
    case = any_case
    workers = [await case.fork(pack=RUN, stay=True, lease=LEASE) for _ in range(2)]
    for worker in workers:
        await worker.says("ready")
    taking_away: list[ClientAction] = [Release("tray", "tray:a"), Supersede("tray", ["a"])]
    giving = [
        await case.fork(
            pack=RUN,
            worker=False,
            at_once=2,
            start_gate=str(case.flag("go")),
            actions=[
                action
                for n in range(EACH_TWICE)
                for action in [
                    Give("tray", ["a"], "coins", f"{giver}-{n}", f"{giver}-{n}"),
                    *([] if n % 5 else [theft]),
                ]
            ],
        )
        for giver, theft in enumerate(taking_away)
    ]
    for process in giving:
        await process.says("waits")
    case.raise_flag("go")
    for blow in range(1, 4):
        due = blow * EACH_TWICE // 3
        await until(lambda due=due: len(giving[0].said("did")) >= due, f"blow {blow}", *workers)
        workers[0].signal(signal.SIGKILL)
        workers = [*workers[1:], await case.fork(pack=RUN, stay=True, lease=LEASE)]
    for process in giving:
        assert await process.ended() == 0, process
    async with case.client(RUN) as hf:
        runs = await ended_runs(hf)
        journals = [await run.journal() for run in runs]
        results = [await run.result() for run in runs if run.status == "completed"]
    await asyncio.gather(*(worker.leaves() for worker in workers))

    did = [giver.said("did") for giver in giving]
    assert all(any("payload" not in line for line in lines) for lines in did), "no key was taken away"
    accepted = {line["payload"] for lines in did for line in lines if "payload" in line}
    assert len(accepted) == 2 * EACH_TWICE
    entries = [entry for journal in journals for entry in journal if isinstance(entry, Received)]
    received = {msgspec.json.decode(entry.value.json) for entry in entries}
    assert received == accepted, f"{len(accepted - received)} of {len(accepted)} are in no journal"
    taken = Counter(payload for result in results for payload in result)
    assert set(taken.values()) == {1}, [coin for coin, times in taken.items() if times > 1]


async def ended_runs(hf: Holdfast) -> list[Run[Any]]:
    """All runs, once every one has ended."""
    async with asyncio.timeout(45):
        while True:
            runs = [run async for run in hf.runs()]
            # A list is no snapshot: of a run that ended meanwhile it may not show the successor. A second one does.
            if all(run.finished_at for run in runs) and {run.id for run in runs} == {run.id async for run in hf.runs()}:
                return runs
            await asyncio.sleep(0.02)
