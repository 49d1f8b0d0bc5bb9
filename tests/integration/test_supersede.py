"""Superseding the owner of a key, and releasing a key (K7)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import (
    Holdfast,
    NotAllowedNow,
    Overtaken,
    Pack,
    Retry,
    Run,
    RunCancelled,
    RunFailed,
    UnknownRun,
    UsageError,
    hook,
    sleep,
)
from holdfast.errors import StoreUnavailable
from holdfast.events import EffectBegan, RunEnded, RunLetGo
from holdfast.kernel.journal import CancelAsked, KeyReleased
from tests.integration.conftest import Home, eventually, heard
from tests.integration.wrappers import LossyStore

LIVE = ["pending", "running", "waiting", "blocked"]
ENDED = ["completed", "failed", "cancelled"]


class Plans:
    """One plan per customer; a new one takes the place of the old one. How a run ends up is part of its input."""

    def __init__(self) -> None:
        self.pack = Pack("plans")
        self.gate = asyncio.Event()
        self.calls: list[str] = []
        self.undone: list[str] = []

        @self.pack.effect
        async def release(what: str) -> None:
            self.undone.append(what)

        @self.pack.effect(undo=release, retry=Retry(attempts=1))
        async def reserve(what: str) -> str:
            self.calls.append(what)
            return what

        @self.pack.effect
        async def hold() -> None:
            await self.gate.wait()

        @self.pack.workflow(key="plan:{customer}")
        async def plan(customer: str, how: str = "completed", *, retention: int = 0) -> str:
            await reserve(how)
            match how:
                case "running":
                    await hold()
                case "waiting":
                    await hook("go")
                case "blocked":
                    await asyncio.Event().wait()
                case "failed":
                    raise ValueError(how)
                case "cancelled":
                    raise asyncio.CancelledError
                case _:
                    pass
            return how

        @self.pack.workflow(key="plan:{customer}")
        async def other(customer: str) -> None:
            await sleep("1d")

        self.plan, self.other = plan, other

    async def put(self, hf: Holdfast, status: str) -> Run[str]:
        """A run in this status."""
        if status == "pending":
            return (await hf.start(self.plan("c", status), delay="1h")).run
        run = (await hf.start(self.plan("c", status))).run
        if status == "running":
            await heard(hf).until(EffectBegan, step="hold#1")
        else:
            await eventually(lambda: _is(run, status))
        return await run.refresh()


async def _is(run: Run[Any], status: str) -> bool:
    return (await run.refresh()).status == status


@pytest.fixture
def plans() -> Plans:
    return Plans()


@pytest.fixture(autouse=True)
def let_go_at_once(home: Home) -> None:
    """Runs that wait leave the memory nearly at once."""
    home.paced(idle_ms=10)


@pytest.mark.parametrize("status", LIVE)
async def test_a_live_run_of_any_status_is_cancelled_and_succeeded(home: Home, plans: Plans, status: str) -> None:
    async with home.holdfast(plans.pack) as hf:
        old = await plans.put(hf, status)
        assert old.status == status
        new, created = await hf.start(plans.plan("c", "completed"), replace=old)
        assert created
        assert new.id != old.id
        assert (await hf.find(plans.plan, "plan:c")).id == new.id
        assert not (await old.refresh()).holds_key
        assert await new.result(timeout=30) == "completed"
        await eventually(lambda: _is(old, "cancelled"))
        with pytest.raises(RunCancelled):
            await old.result(timeout=30)
        old = await old.refresh()
        assert (old.status, old.key, old.holds_key) == ("cancelled", "plan:c", False)
        [asked] = [entry for entry in await old.journal() if isinstance(entry, CancelAsked)]
        assert new.id in asked.reason
        outcome, undone = {
            "pending": ("no_effects", []),
            "running": ("unknown", ["running"]),  # of the effect in flight nobody knows
            "waiting": ("compensated", ["waiting"]),
            "blocked": ("partial", []),  # its code cannot be run
        }[status]
        assert (await old.receipt()).outcome == outcome
        assert plans.undone == undone
        assert "pending" not in plans.calls


@pytest.mark.parametrize("status", ENDED)
async def test_an_ended_run_stays_what_it_is_and_is_succeeded(home: Home, plans: Plans, status: str) -> None:
    async with home.holdfast(plans.pack) as hf:
        old = await plans.put(hf, status)
        before = [entry.what for entry in await old.journal()]
        new, created = await hf.start(plans.plan("c", "waiting"), replace=old)
        assert created
        await eventually(lambda: _is(new, "waiting"))
        again = await old.refresh()
        assert (again.status, again.holds_key, again.finished_at) == (status, False, old.finished_at)
        assert [entry.what for entry in await old.journal()] == before
        assert (await hf.find(plans.plan, "plan:c")).id == new.id
        joined = await hf.start(plans.plan("c", "waiting"))
        assert (joined.created, joined.run.id) == (False, new.id)
        if status != "completed":
            with pytest.raises(NotAllowedNow):  # its key is with another one
                await (old.retry() if status == "failed" else old.resume())
        await new.signal("go")
        assert await new.result(timeout=30) == "waiting"
    assert plans.undone == []


@pytest.mark.parametrize("callers", [2, 16])
async def test_of_all_who_replace_one_run_at_once_one_wins_and_the_others_learn_who(
    home: Home, plans: Plans, callers: int
) -> None:
    """K7: it is cancelled once, and there is no instant without an owner."""
    async with home.holdfast(plans.pack) as hf, home.holdfast(plans.pack, worker=False) as client:
        old = await plans.put(hf, "running")
        theirs = await client.get(old.id)
        over = asyncio.Event()
        owners: list[str] = []

        async def look() -> None:
            while not over.is_set():
                owners.append((await client.find("plans.plan", "plan:c")).id)  # raises if there is none
                await asyncio.sleep(0)

        looking = asyncio.create_task(look())
        await eventually(lambda: owners)
        answers = await asyncio.gather(
            *(
                [hf, client][n % 2].start(plans.plan("c", "waiting", retention=n), replace=[old, theirs][n % 2])
                for n in range(callers)
            ),
            return_exceptions=True,
        )
        await eventually(lambda: _is(old, "cancelled"))
        over.set()
        await looking
        owners.append((await client.find("plans.plan", "plan:c")).id)  # the last look may have begun before all that
        [won] = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert won.created
        lost = [answer for answer in answers if isinstance(answer, BaseException)]
        assert len(lost) == callers - 1
        for error in lost:
            assert isinstance(error, Overtaken)
            current: Any = error.run  # a snapshot, as complete as any
            assert (error.code, error.run_id, current.id) == ("overtaken", won.run.id, won.run.id)
            assert (await current.refresh()).holds_key
        assert set(owners) <= {old.id, won.run.id}
        assert owners[-1] == won.run.id
        assert sum(isinstance(entry, CancelAsked) for entry in await old.journal()) == 1
        assert len([run async for run in hf.runs(plans.plan)]) == 2
    assert len(heard(hf).all(RunEnded, run_id=old.id)) == 1
    assert plans.undone == ["running"]


async def test_a_chain_of_successors_has_one_owner_at_each_time(home: Home, plans: Plans) -> None:
    async with home.holdfast(plans.pack) as hf:
        first = run = await plans.put(hf, "waiting")
        for n in range(1, 6):
            run = (await hf.start(plans.plan("c", "waiting", retention=n), replace=run)).run
            with pytest.raises(Overtaken) as caught:
                await hf.start(plans.plan("c", "waiting", retention=99), replace=first)
            assert caught.value.run_id == run.id
            owner: Any = caught.value.run
            assert owner.holds_key
            assert owner.waiting_on
        runs = [each async for each in hf.runs(plans.plan)]
        assert [each.id for each in runs if each.holds_key] == [run.id]

        async def one_is_left() -> bool:
            return [each.id async for each in hf.runs(plans.plan, LIVE)] == [run.id]

        await eventually(one_is_left)


async def test_the_same_input_is_no_reason_to_keep_the_old_one(home: Home, plans: Plans) -> None:
    async with home.holdfast(plans.pack) as hf:
        old = await plans.put(hf, "waiting")
        new, created = await hf.start(plans.plan("c", "waiting"), replace=old)
        assert created
        assert new.id != old.id


@pytest.mark.parametrize("status", ["pending", "waiting", "blocked", "completed"])
async def test_a_successor_whose_reply_was_lost_is_recognised_by_its_request(
    home: Home, plans: Plans, status: str
) -> None:
    lost: list[str] = []

    def loses(name: str, args: tuple[Any, ...]) -> bool:
        if name != "commit" or lost:
            return False
        lost.append(name)
        return True

    async with (
        home.holdfast(plans.pack) as hf,
        home.holdfast(plans.pack, worker=False, through=lambda store: LossyStore(store, loses)) as client,
    ):
        old = await client.get((await plans.put(hf, status)).id)
        with pytest.raises(StoreUnavailable):
            await client.start(plans.plan("c", "failed"), replace=old, request_id="r")
        new = await hf.find(plans.plan, "plan:c")
        assert new.id != old.id
        for _ in range(2):
            run, created = await client.start(plans.plan("c", "failed"), replace=old, request_id="r")
            assert (created, run.id) == (True, new.id)
        with pytest.raises(RunFailed):
            await new.result(timeout=30)
        await eventually(lambda: _is(old, "completed" if status == "completed" else "cancelled"))
        assert len([run async for run in hf.runs(plans.plan)]) == 2
    assert lost == ["commit"]


async def test_a_run_that_nobody_holds_the_key_after_any_more_can_be_replaced(home: Home, plans: Plans) -> None:
    """It was removed with its retention."""
    async with home.holdfast(plans.pack) as first:
        old = (await first.start(plans.plan("c"), retention="1ms")).run
        await old.result(timeout=30)
    async with home.holdfast(plans.pack) as hf:

        async def is_gone() -> bool:
            try:
                await hf.get(old.id)
            except UnknownRun:
                return True
            return False

        await eventually(is_gone)  # the first one may have removed it while it stopped, and not have come to say so
        new, created = await hf.start(plans.plan("c", "other input"), replace=old)
        assert created
        assert await new.result(timeout=30) == "other input"


async def test_only_the_owner_of_this_very_key_can_be_replaced(home: Home, plans: Plans) -> None:
    async with home.holdfast(plans.pack) as hf:
        old = await plans.put(hf, "waiting")
        wrong: list[Any] = [plans.plan("d"), plans.other("c")]
        for call in wrong:
            with pytest.raises(UsageError, match="cannot be replaced"):
                await hf.start(call, replace=old)
        nobody: Any = old.id
        with pytest.raises(UsageError):
            await hf.start(plans.plan("c"), replace=nobody)
        assert (await old.refresh()).status == "waiting"
        assert len([run async for run in hf.runs()]) == 1


async def test_a_successor_may_begin_with_a_signal(home: Home, plans: Plans) -> None:
    async with home.holdfast(plans.pack) as hf:
        old = await plans.put(hf, "waiting")
        new = (await hf.start(plans.plan("c", "waiting"), replace=old, signal=("go", 1))).run
        assert await new.result(timeout=30) == "waiting"
        with pytest.raises(RunCancelled):
            await old.result(timeout=30)


# -- releasing a key


@pytest.mark.parametrize("status", [*LIVE, *ENDED])
async def test_a_released_key_can_be_used_again_and_the_release_is_recorded(
    home: Home, plans: Plans, status: str
) -> None:
    async with home.holdfast(plans.pack) as hf:
        old = await plans.put(hf, status)
        released = await old.release_key("made by mistake")
        assert (released.id, released.key, released.holds_key) == (old.id, "plan:c", False)
        with pytest.raises(UnknownRun):
            await hf.find(plans.plan, "plan:c")
        new, created = await hf.start(plans.plan("c", "another input"))
        assert created
        assert await new.result(timeout=30) == "another input"
        with pytest.raises(NotAllowedNow):
            await old.release_key()
        if status in {"running", "waiting"}:
            plans.gate.set()
            if status == "waiting":
                await old.signal("go")
            assert await old.result(timeout=30) == status
        if status not in {"pending", "blocked"}:  # those record it when they go on
            [entry] = [entry for entry in await old.journal() if isinstance(entry, KeyReleased)]
            assert entry.reason == "made by mistake"
        else:
            assert (await old.refresh()).status == status


async def test_a_run_without_a_key_has_nothing_to_release(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow
    async def work() -> None:
        await sleep("1d")

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        await heard(hf).until(RunLetGo)
        with pytest.raises(NotAllowedNow):
            await run.release_key()
