"""A worker that was stopped past its lease writes nothing any more, says so, and goes on with new work (L5, L6)."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from tests.faults.cases import Case
from tests.faults.conftest import NewCase
from tests.faults.crash_at_store_call import Point
from tests.faults.holdfast_process import Start
from tests.faults.pause_before_sync_effect import ENTER, PAUSING
from tests.faults.processes import Process, in_turns, until
from tests.faults.workflows_checkout import STEPS, checkout, expected, notice
from tests.faults.workflows_held_by_flags import RECONCILED, RUN, both, burn, chill, hold, tap

pytestmark = pytest.mark.faults

LEASE = "1s"


async def takes_new_work(case: Case, worker: Process, name: str) -> None:
    """It is the only one left, so whatever is done now is done by it."""
    async with case.client(RUN) as hf:
        run, created = await hf.start(tap(name))
        assert created
        assert await run.result("45s") == name
    [call] = [line for line in case.ledger.calls("touch") if line["order"] == name]
    assert call["pid"] == worker.pid


def is_reached(case: Case) -> bool:
    """Whether the process that is to be stopped has come to its point."""
    return any("reached" in line for line in case.ledger.lines())


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_worker_stopped_around_any_commit_writes_nothing_after_it_was_overtaken(
    new_case: NewCase, when: str
) -> None:
    """Stopped just before the write: it is refused. Stopped just after: what the write allowed is not begun."""
    dry = await new_case("dry").fork(starts=[Start("checkout", ["o1"])], lease=LEASE)
    count = Counter((await dry.says("done"))["counts"])["commit"]
    reached: list[int] = []
    fenced: list[int] = []
    refused: list[int] = []

    async def one(n: int) -> None:
        case = new_case(f"commit-{n}")
        point = Point("commit", n, when, signal.SIGSTOP)
        stopped = await case.fork(starts=[Start("checkout", ["o1"])], stay=True, lease=LEASE, point=point)
        await until(lambda: is_reached(case) or stopped.said("result"), f"the stop {point}", stopped)
        if not is_reached(case):
            return  # on a busy machine more travels in one commit, so there may be one less
        reached.append(n)
        fenced.extend(n for line in case.ledger.lines() if line.get("fenced"))
        await until(stopped.is_stopped, "it to be stopped", stopped)
        other = await case.fork(stay=True, lease=LEASE)
        async with case.client() as hf:
            run, _ = await hf.start(checkout("o1"))
            assert await run.result("45s") == expected("o1")
            assert await (await hf.find(notice, "notice:o1")).result("45s") == "o1 told"
        [line] = stopped.logged("replica started")
        await until(lambda: not case.ask("SELECT 1 FROM leases WHERE owner = ?", line["owner"]), "the expiry", other)
        await other.leaves()
        journals = case.ask("SELECT * FROM journal ORDER BY 1, 2")
        rows = case.ask("SELECT id, status, epoch, nonce, length, change_id FROM runs ORDER BY 1")

        stopped.signal(signal.SIGCONT)
        await until(lambda: stopped.logged("lease lost"), "the lost lease", stopped)
        assert (await stopped.says("result"))["value"] == expected("o1")
        async with case.client() as hf:
            run, created = await hf.start(checkout("o2"))
            assert created
            assert await run.result("45s") == expected("o2")
            await (await hf.find(notice, "notice:o2")).result("45s")
        await stopped.leaves()

        assert {line["pid"] for line in case.ledger.calls() if line["order"] == "o2"} == {stopped.pid}
        case.ledger.check(lost=case.processes.overtaken())
        assert {line["step"] for line in case.ledger.calls() if line["order"] == "o1"} == STEPS
        ids = tuple(row[0] for row in rows)
        assert [row for row in case.ask("SELECT * FROM journal ORDER BY 1, 2") if row[0] in ids] == journals
        after = case.ask("SELECT id, status, epoch, nonce, length, change_id FROM runs ORDER BY 1")
        assert [row for row in after if row[0] in ids] == rows
        if any("refused" in line and line["pid"] == stopped.pid for line in case.ledger.lines()):
            refused.append(n)

    await in_turns([lambda n=n: one(n) for n in range(1, count + 1)], at_once=6)
    assert len(reached) >= count * 2 // 3, f"only {reached} of {count}"
    if when == "before":  # all but the admissions of the run and its children are fenced
        assert set(fenced) <= set(refused)
        assert len(fenced) >= len(reached) // 2, f"only {fenced} of {reached}"


async def test_a_late_write_is_refused_although_the_new_owner_has_written_nothing_yet(any_case: Case) -> None:
    """The journal is as long as when the zombie read it: only the fence tells the two owners apart."""
    case = any_case
    case.raise_flag("go-a")
    point = Point("commit", 2, "before", signal.SIGSTOP)  # the effect has happened, its record is on the way
    first = await case.fork(pack=RUN, starts=[Start("hold", ["a"])], stay=True, lease=LEASE, point=point)
    await until(lambda: case.flag("go-a").exists() and case.ledger.calls("grip"), "the effect", first)
    await until(first.is_stopped, "it to be stopped", first)
    case.flag("go-a").unlink()
    second = await case.fork(pack=RUN, stay=True, lease=LEASE)
    await until(lambda: len(case.ledger.calls("grip")) == 2, "the takeover", second)

    first.signal(signal.SIGCONT)
    await until(lambda: any("refused" in line for line in case.ledger.lines()), "the refusal", first)
    assert {line["pid"] for line in case.ledger.lines() if "refused" in line} == {first.pid}
    assert not [line for line in case.ledger.lines() if "recorded" in line]
    case.raise_flag("go-a")
    assert (await first.says("result"))["value"] == "a"
    await first.leaves()
    await second.leaves()
    case.ledger.check(lost=case.processes.overtaken())
    key = case.ledger.calls("grip")[0]["call"]
    assert [line["pid"] for line in case.ledger.lines() if line.get("recorded") == key] == [second.pid]
    assert [line["pid"] for line in case.ledger.calls("touch")] == [second.pid]


async def test_a_worker_stopped_in_an_effect_gives_up_quietly(any_case: Case) -> None:
    case = any_case
    first = case.run(pack=RUN, starts=[Start("hold", ["a"])], stay=True, lease=LEASE)
    await until(lambda: case.ledger.calls("grip"), "the effect", first)
    first.signal(signal.SIGSTOP)
    second = case.run(pack=RUN, stay=True, lease=LEASE)
    await until(lambda: len(case.ledger.calls("grip")) == 2, "the takeover", second)
    case.raise_flag("go-a")
    async with case.client(RUN) as hf:
        assert await (await hf.find(hold, "hold:a")).result("45s") == "a"
    assert second.logged("runs rescued")
    await second.leaves()

    first.signal(signal.SIGCONT)
    await until(lambda: first.logged("lease lost"), "the lost lease", first)
    assert (await first.says("result"))["value"] == "a"
    await takes_new_work(case, first, "b")
    await first.leaves()
    case.ledger.check(lost=case.processes.overtaken())
    assert [line["pid"] for line in case.ledger.calls("grip")] == [first.pid, second.pid]
    assert [line["pid"] for line in case.ledger.calls("touch") if line["order"] == "a"] == [second.pid]


async def test_an_effect_that_waited_for_its_turn_is_not_begun_on_a_lost_lease(case: Case) -> None:
    """It was allowed when it joined the queue. When its turn comes, the lease has long expired.

    Stopped when it was about to renew, and kept from the file, the worker learns that only after the effect before
    has ended.
    """
    point = Point("renew", 1, "before", signal.SIGSTOP)
    first = await case.fork(pack=RUN, starts=[Start("both", ["a"])], stay=True, lease=LEASE, concurrency=1, point=point)
    await until(lambda: case.ledger.calls("grip"), "the first effect", first)
    await until(first.is_stopped, "it to be stopped", first)
    second = await case.fork(pack=RUN, stay=True, lease=LEASE)
    await until(lambda: len(case.ledger.calls("grip")) == 2, "the takeover", second)
    case.raise_flag("go-a")
    async with case.client(RUN) as hf:
        assert await (await hf.find(both, "both:a")).result("45s") == ["a", "a"]
    await second.leaves()
    with case.locked():
        first.signal(signal.SIGCONT)
        with pytest.raises(AssertionError):
            await until(lambda: len(case.ledger.calls("touch")) > 1, "an effect that must not be begun", within=1.0)
    assert (await first.says("result"))["value"] == ["a", "a"]
    await takes_new_work(case, first, "b")
    await first.leaves()
    case.ledger.check(lost=case.processes.overtaken())
    assert [line["pid"] for line in case.ledger.calls("touch") if line["order"] == "a"] == [second.pid]


async def test_an_effect_that_its_thread_was_about_to_enter_is_not_entered_on_a_lost_lease(case: Case) -> None:
    """When it goes on, its thread is among the first to: before the event loop has learned anything from the store."""
    first = await case.fork(pack=PAUSING, starts=[Start("burn", ["a"])], stay=True, lease=LEASE)
    await until(lambda: is_reached(case), "the entry", first)
    with case.locked():  # stopped in the middle of a write, it would keep the other from the file
        first.signal(signal.SIGSTOP)
        await until(first.is_stopped, "it to be stopped", first)
    case.raise_flag(ENTER)
    second = await case.fork(pack=RECONCILED, stay=True, lease=LEASE)
    async with case.client(RUN) as hf:
        assert await (await hf.find(burn, "burn:a")).result("45s") == "a ignited"
    await second.leaves()
    first.signal(signal.SIGCONT)
    assert (await first.says("result"))["value"] == "a ignited"
    await until(lambda: first.logged("lease lost"), "the lost lease", first)
    await takes_new_work(case, first, "b")
    await first.leaves()
    assert [line["pid"] for line in case.ledger.calls("ignite")] == [second.pid]
    assert len([line for line in case.ledger.lines() if "reconciled" in line]) == 1


async def test_a_worker_whose_event_loop_is_blocked_is_overtaken_likewise(case: Case) -> None:
    """An effect holds the loop beyond the lease: nothing can be renewed meanwhile."""
    first = case.run(pack=RUN, starts=[Start("chill", ["a", 45.0])], stay=True, lease=LEASE)
    await until(lambda: case.ledger.calls("freeze"), "the effect", first)
    second = case.run(pack=RUN, stay=True, lease=LEASE)
    async with case.client(RUN) as hf:
        assert await (await hf.find(chill, "chill:a")).result("45s") == "a"
    assert [line["pid"] for line in case.ledger.calls("freeze")] == [first.pid, second.pid]
    await until(lambda: first.logged("lease lost") or first.logged("run overtaken"), "it to notice", first)
    assert (await first.says("result"))["value"] == "a"
    await second.leaves()
    await takes_new_work(case, first, "b")
    await first.leaves()
    case.ledger.check(lost=case.processes.overtaken())
    assert [line["pid"] for line in case.ledger.calls("touch") if line["order"] == "a"] == [second.pid]


async def test_a_killed_workers_run_is_taken_over_when_its_lease_is_over_and_not_before(case: Case) -> None:
    """L6."""
    holder = case.run(pack=RUN, starts=[Start("hold", ["a"])], stay=True, lease="2s")
    await until(lambda: case.ledger.calls("grip"), "the effect", holder)
    other = case.run(pack=RUN, stay=True, lease="2s")
    await other.says("ready")
    holder.signal(signal.SIGKILL)
    await holder.ended()
    [(until_ms,)] = case.ask("SELECT l.until_ms FROM leases l JOIN runs r ON r.owner = l.owner")
    case.raise_flag("go-a")
    async with case.client(RUN) as hf:
        assert await (await hf.find(hold, "hold:a")).result("45s") == "a"
    [(wrote_ms,)] = case.ask(
        "SELECT min(e.value ->> 'at_ms') FROM journal j, json_each(j.entries) e WHERE e.value ->> 'what' = 'performed'"
    )
    assert wrote_ms >= until_ms
    await other.leaves()
    assert [line["run_ids"] for line in other.logged("runs rescued")]
    case.ledger.check(lost={holder.pid})
    assert [line["pid"] for line in case.ledger.calls("grip")] == [holder.pid, other.pid]
