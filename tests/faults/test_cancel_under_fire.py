"""Cancellation while processes die: each effect once, undone once, and a receipt that is the ledger's (C1, C2, C7).

The ledger is the world: a step was performed if it was called there, and undone if its undo was called there.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Collection

import pytest

from holdfast import Holdfast, Receipt, Run
from tests.faults import workflows_held_by_flags
from tests.faults.cases import Case
from tests.faults.client_actions import Cancel
from tests.faults.conftest import NewCase
from tests.faults.crash_at_store_call import Point, When
from tests.faults.holdfast_process import Start
from tests.faults.processes import KILLED, Process, in_turns, until
from tests.faults.workflows_long_lived import RUN, STEPS, trip

pytestmark = pytest.mark.faults

LEASE = "1s"
AT_ONCE = 6
ALL_DONE = 6  # held before the sixth step, of which there are five
LIVE = "SELECT count(*) FROM runs WHERE finished_ms IS NULL"
WHATS = "SELECT e.value ->> 'what' FROM journal j, json_each(j.entries) e WHERE j.run_id = ?"


def performed(case: Case, name: str = "a") -> list[str]:
    """The steps that were called, in order."""
    steps = [line["step"] for line in case.ledger.calls() if line["order"] == name]
    return [step for step in dict.fromkeys(steps) if not step.startswith("undo ")]


def undone(case: Case, name: str = "a") -> list[str]:
    """The steps whose undo was called, in order."""
    steps = [line["step"] for line in case.ledger.calls() if line["order"] == name]
    return [step.removeprefix("undo ") for step in dict.fromkeys(steps) if step.startswith("undo ")]


async def left(hf: Holdfast, receipt: Receipt) -> dict[str, str]:
    """What the receipts of a run and its child say about each step."""
    of_child = [await (await hf.get(child.run_id)).receipt() for child in receipt.children]
    said = [(str(effect).split(":")[0], effect.state) for each in (receipt, *of_child) for effect in each.effects]
    assert len(said) == len(dict(said)), said
    return dict(said)


async def check(case: Case, hf: Holdfast, receipt: Receipt, *, lost: Collection[int] = (), name: str = "a") -> None:
    """The receipt is what the ledger says, and is the same when it is asked for again."""
    states = await left(hf, receipt)
    done, back = performed(case, name), undone(case, name)
    assert set(done) <= set(states), f"{states} says nothing about some of {done}"
    for step, state in states.items():
        match state:
            case "undone":
                assert step in back, f"{step} was not undone: {receipt}"
            case "performed":
                assert step in done, f"{step} was not performed: {receipt}"
                assert step not in back, f"{step} was undone: {receipt}"
            case _:
                assert state == "unknown"
    if receipt.outcome == "compensated":
        assert set(states.values()) == {"undone"}
    assert await (await hf.get(receipt.run_id)).receipt() == receipt
    assert (await hf.get(receipt.run_id)).status == "cancelled"
    case.ledger.check(lost={*lost} | case.processes.overtaken())
    assert case.ask(LIVE) == [(0,)]
    whats = Counter(what for (what,) in case.ask(WHATS, receipt.run_id))
    assert (whats["cancel_asked"], whats["cancelled"]) == (1, 1), whats


async def reaches(case: Case, steps: Collection[str], *about: Process, name: str = "a") -> None:
    await until(lambda: set(performed(case, name)) == set(steps), f"{steps} to be performed", *about)


# -- without accidents


WAYS = [("before", n) for n in (1, 2, 3, 4, ALL_DONE)] + [("within", n) for n in (1, 3, 4, 5)]


async def test_a_cancellation_at_any_await_undoes_exactly_what_was_done_in_reverse(case: Case) -> None:
    """C1. Held before a step, or in the middle of one: an effect, a child, a sleep, a gather."""
    worker = await case.fork(pack=RUN, stay=True)

    async def one(hf: Holdfast, way: str, number: int) -> tuple[str, Receipt]:
        name = f"{way}-{number}"
        run, _ = await hf.start(trip(name, **{way: number}))
        count = min(number - 1, 5) if way == "before" else {1: 1, 3: 3, 4: 3, 5: 5}[number]
        await reaches(case, STEPS[:count], worker, name=name)
        receipt = await run.cancel("enough")
        assert receipt.outcome == ("compensated" if count else "no_effects")
        assert receipt.reason == "enough"
        states = await left(hf, receipt)
        assert states == dict.fromkeys(STEPS[:count], "undone")
        return name, receipt

    async with case.client(RUN) as hf:
        receipts = dict(await asyncio.gather(*(one(hf, way, number) for way, number in WAYS)))
        for name, receipt in receipts.items():
            await check(case, hf, receipt, name=name)
    await worker.leaves()
    for name in receipts:
        back = undone(case, name)
        if len(back) == 5:  # of the two in the gather, the one that was recorded later goes first
            assert sorted(back[:2]) == ["five", "four"]
            back = back[2:]
        assert back == ["three", "two", "one"][-len(back) :] or not back, back


# -- workers that die


async def cancelled_in_spite_of(
    case: Case, point: Point | None, *, workerless: bool = False, in_child: bool = False
) -> int | None:
    """A worker is killed there. With `workerless` the cancellation comes when no worker is left to hear it."""
    doomed = await case.fork(pack=RUN, stay=True, lease=LEASE, point=point)
    async with case.client(RUN) as hf:
        run, _ = await hf.start(trip("a", within=3) if in_child else trip("a", before=ALL_DONE))
        held_at = 3 if in_child else 5
        await until(lambda: doomed.code is not None or len(performed(case)) == held_at, "the kill, or the hold")
        if workerless:
            doomed.signal(signal.SIGKILL)
            await doomed.ended()
        cancelling = asyncio.create_task(run.cancel())
        asked = "SELECT 1 FROM inbox WHERE run_id = ? AND id LIKE 'cancel/%'"
        await until(lambda: cancelling.done() or case.ask(asked, run.id), "the request")
        await until(lambda: doomed.code is not None or cancelling.done(), "the kill, or the end")
        doomed.signal(signal.SIGTERM)
        code = await doomed.ended()
        successor = await case.fork(pack=RUN, stay=True, lease=LEASE)
        receipt = await cancelling
        assert receipt.outcome in {"compensated", "unknown", "no_effects"}, receipt
        await check(case, hf, receipt, lost={doomed.pid})
        await successor.leaves()
        if receipt.outcome == "unknown":  # only of what was called and not recorded, and needs its result to be undone
            states = await left(hf, receipt)
            assert {step for step, state in states.items() if state == "unknown"} <= {"two"}
            assert code == KILLED
    return code


async def test_without_a_kill_it_is_cancelled_all_the_same(case: Case) -> None:
    assert await cancelled_in_spite_of(case, None) == 0
    assert undone(case)[-2:] == ["two", "one"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("workerless", "in_child"), [(False, False), (True, False), (False, True)])
async def test_a_worker_killed_around_any_commit_of_a_cancelled_run_undoes_once(
    new_case: NewCase, when: When, workerless: bool, in_child: bool
) -> None:
    """C2, C7. Of the run, or of its child, which is cancelled with it and undoes its own."""
    dry = new_case("dry")
    await cancelled_in_spite_of(dry, None, in_child=in_child)
    counts = next(iter(dry.processes)).said("done")[0]["counts"]
    killed: list[int] = []

    async def one(n: int) -> None:
        case, point = new_case(f"commit-{n}"), Point("commit", n, when)
        if await cancelled_in_spite_of(case, point, workerless=workerless, in_child=in_child):
            killed.append(n)

    await in_turns([lambda n=n: one(n) for n in range(1, counts["commit"] + 1)], at_once=AT_ONCE)
    assert len(killed) >= counts["commit"] // 2, killed


@pytest.mark.parametrize("verb", ["messages", "claim", "histories"])
async def test_a_worker_killed_around_any_other_call_of_a_cancelled_run_undoes_once(
    new_case: NewCase, verb: str
) -> None:
    points = [Point(verb, n, when) for n in (1, 2) for when in ("before", "after")]
    await in_turns(
        [lambda point=point: cancelled_in_spite_of(new_case(str(point).replace(" ", "-")), point) for point in points],
        at_once=AT_ONCE,
    )


@pytest.mark.parametrize("step", STEPS)
async def test_a_worker_killed_in_the_middle_of_an_undo_leaves_it_to_the_next(case: Case, step: str) -> None:
    case.raise_flag(f"die-undo-a-{step}")
    doomed = await case.fork(pack=RUN, stay=True, lease=LEASE)
    async with case.client(RUN) as hf:
        run, _ = await hf.start(trip("a", before=ALL_DONE))
        await reaches(case, STEPS, doomed)
        cancelling = asyncio.create_task(run.cancel())
        assert await doomed.ended() == KILLED
        successor = await case.fork(pack=RUN, stay=True, lease=LEASE)
        receipt = await cancelling
        assert receipt.outcome == "compensated"
        await check(case, hf, receipt, lost={doomed.pid})
        await successor.leaves()
    calls = Counter(line["call"] for line in case.ledger.calls())
    assert {key for key, times in calls.items() if times > 1} == {f"undo-{step}:a"}


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_child_that_nobody_has_recorded_is_cancelled_too_although_the_next_one_dies_as_well(
    new_case: NewCase, when: When
) -> None:
    """C7. The first dies after it has admitted the child; the second dies around its commits of the cancellation."""

    async def one(n: int) -> None:
        case = new_case(f"commit-{n}")
        case.raise_flag("die-a-three")  # in the effect of the child, in the same process
        first = await case.fork(pack=RUN, stay=True, lease=LEASE, point=Point("commit", 4, "before"))
        async with case.client(RUN) as hf:
            run, _ = await hf.start(trip("a", within=3))
            assert await first.ended() == KILLED
            children = "SELECT count(*) FROM runs WHERE workflow = 'fire.leg'"
            cancelling = asyncio.create_task(run.cancel())
            await until(lambda: case.ask("SELECT 1 FROM inbox WHERE id LIKE 'cancel/%'"), "the request")
            orphaned = case.ask(children) == [(1,)]
            second = await case.fork(pack=RUN, stay=True, lease=LEASE, point=Point("commit", n, when))
            await until(lambda: second.code is not None or cancelling.done(), "the second death")
            third = await case.fork(pack=RUN, stay=True, lease=LEASE)
            await check(case, hf, await cancelling, lost={first.pid, second.pid})
            await third.leaves()
        assert case.ask(children) == [(1,)] or not orphaned

    await in_turns([lambda n=n: one(n) for n in range(1, 6)], at_once=5)


@pytest.mark.parametrize("pack", [workflows_held_by_flags.RUN, workflows_held_by_flags.RECONCILED])
async def test_a_once_effect_that_was_perhaps_called_is_unknown_and_never_called_again(case: Case, pack: str) -> None:
    """The process died in the call, and then the run was cancelled: no process calls, and none claims to know."""
    doomed = await case.fork(pack=pack, lease=LEASE, starts=[Start("fly", ["a"])])
    await until(lambda: case.ledger.calls("launch"), "the call", doomed)
    doomed.signal(signal.SIGKILL)
    await doomed.ended()
    async with case.client(pack) as hf:
        run = await hf.find(workflows_held_by_flags.fly, "fly:a")
        cancelling = asyncio.create_task(run.cancel())
        successor = await case.fork(pack=pack, stay=True, lease=LEASE)
        receipt = await cancelling
        assert receipt.outcome == "unknown"
        assert [effect.state for effect in receipt.effects] == ["unknown"]
        assert await run.receipt() == receipt
        await successor.leaves()
    assert [line["pid"] for line in case.ledger.calls()] == [doomed.pid]


# -- cancellers that die


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_canceller_killed_around_any_call_has_cancelled_or_has_not(new_case: NewCase, when: When) -> None:
    """A caller that cancels again gets the receipt of the one cancellation."""
    points = [
        Point(verb, n, when) for verb, n in (("run", 1), ("run", 2), ("commit", 1), ("runs", 1), ("histories", 1))
    ]
    killed: list[Point] = []

    async def one(point: Point) -> None:
        case = new_case(str(point).replace(" ", "-"))
        worker = await case.fork(pack=RUN, stay=True, lease=LEASE)
        async with case.client(RUN) as hf:
            run, _ = await hf.start(trip("a", before=ALL_DONE))
            await reaches(case, STEPS, worker)
            doomed = await case.fork(pack=RUN, worker=False, actions=[Cancel(run.id)], point=point)
            if await doomed.ended() == KILLED:
                killed.append(point)
            asked = case.ask("SELECT count(*) FROM inbox WHERE id LIKE 'cancel/%'") == [(1,)]
            if asked:  # the dead one has seen to it: no other process needs to do anything
                await until(lambda: case.ask(LIVE) == [(0,)], "the end", worker)
            else:
                assert not undone(case)
            receipt = await run.cancel()
            assert receipt.outcome == "compensated"
            await check(case, hf, receipt)
        await worker.leaves()

    await in_turns([lambda point=point: one(point) for point in points], at_once=AT_ONCE)
    assert len(killed) >= 3, killed


async def test_many_cancellers_at_once_get_the_same_receipt(case: Case) -> None:
    worker = await case.fork(pack=RUN, stay=True)
    async with case.client(RUN) as hf:
        run, _ = await hf.start(trip("a", before=ALL_DONE))
        await reaches(case, STEPS, worker)
        cancellers = [await case.fork(pack=RUN, worker=False, actions=[Cancel(run.id)] * 2) for _ in range(6)]
        said = [line for canceller in cancellers if not await canceller.ended() for line in canceller.said("did")]
        assert len(said) == 12
        assert len({str({**line, "pid": 0}) for line in said}) == 1
        await check(case, hf, await run.receipt())
    await worker.leaves()
    assert len(case.ledger.calls()) == 10


# -- workers that are stopped, and deadlines


async def held_in_an_undo(
    case: Case, hf: Holdfast, worker: Process, *, deadline: str
) -> tuple[Run[list[str]], asyncio.Task[Receipt]]:
    """All five were done; the undo of the fifth does not come back before the test says so."""
    case.raise_flag("slow-undo-a-five")
    run, _ = await hf.start(trip("a", before=ALL_DONE))
    await reaches(case, STEPS, worker)
    cancelling = asyncio.create_task(run.cancel(deadline=deadline))
    await until(lambda: "five" in undone(case), "the undo", worker)
    return run, cancelling


async def test_a_worker_stopped_past_its_lease_while_it_undoes_writes_nothing_more(case: Case) -> None:
    first = await case.fork(pack=RUN, stay=True, lease=LEASE)
    async with case.client(RUN) as hf:
        _, cancelling = await held_in_an_undo(case, hf, first, deadline="60s")
        first.signal(signal.SIGSTOP)
        second = await case.fork(pack=RUN, stay=True, lease=LEASE)
        await until(lambda: len(case.ledger.calls("undo five")) == 2, "the takeover", second)
        case.raise_flag("go-a")
        receipt = await cancelling
        assert receipt.outcome == "compensated"
        journals = case.ask("SELECT * FROM journal ORDER BY 1, 2")
        first.signal(signal.SIGCONT)
        await until(lambda: first.logged("lease lost"), "the lost lease", first)
        await check(case, hf, receipt)
    await first.leaves()
    await second.leaves()
    assert case.ask("SELECT * FROM journal ORDER BY 1, 2") == journals
    assert [line["pid"] for line in case.ledger.calls("undo five")] == [first.pid, second.pid]
    for step in ("three", "two", "one"):
        assert [line["pid"] for line in case.ledger.calls(f"undo {step}")] == [second.pid]


@pytest.mark.parametrize("struck", ["", "stopped", "killed"])
async def test_at_the_deadline_a_run_is_stopped_whatever_its_worker_does(case: Case, struck: str) -> None:
    """C7. Its undo hangs; its worker hangs; its worker is dead."""
    worker = await case.fork(pack=RUN, stay=True)
    async with case.client(RUN) as hf:
        run, cancelling = await held_in_an_undo(case, hf, worker, deadline="2s")
        if struck:
            worker.signal(signal.SIGSTOP if struck == "stopped" else signal.SIGKILL)
        receipt = await cancelling
        assert receipt.stopped
        states = await left(hf, receipt)
        assert states["one"] == states["two"] == states["three"] == "performed"
        # Its undo was under way, so no process knows. What stops it from outside cannot know even which one it was.
        assert states["five"] in ({"unknown", "performed"} if struck else {"unknown"})
        assert receipt.outcome == "unknown"
        worker.signal(signal.SIGCONT)
        case.raise_flag("go-a")
        other = await case.fork(pack=RUN, stay=True, starts=[Start("trip", ["b"])])
        await other.says("result")  # there is life, and it leaves the dead alone
        assert await run.receipt() == receipt
        for process in (worker, other):
            if process.code is None:
                await process.leaves()
    assert "one" not in undone(case)
    assert "two" not in undone(case)
    assert case.statuses()["trip:a"] == "cancelled"


async def test_a_run_that_no_worker_serves_is_stopped_at_the_deadline_by_the_caller_alone(case: Case) -> None:
    worker = await case.fork(pack=RUN, stay=True)
    async with case.client(RUN) as hf:
        run, _ = await hf.start(trip("a", before=ALL_DONE))
        await reaches(case, STEPS, worker)
        await until(lambda: (case.ask("SELECT status FROM runs WHERE id = ?", run.id)) == [("waiting",)], "it to wait")
        await worker.leaves()
        receipt = await run.cancel(deadline="300ms")
        assert receipt.stopped
        assert receipt.outcome == "partial"
        assert await left(hf, receipt) == dict.fromkeys(STEPS, "performed")
        later = await case.fork(pack=RUN, stay=True, starts=[Start("trip", ["b"])])
        await later.says("result")
        await later.leaves()
        await check(case, hf, receipt)
    assert not undone(case)
