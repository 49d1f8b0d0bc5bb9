"""Workers with different code at the same time: a run goes to one whose code fits, and is blocked only if none does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast import Holdfast, Pack, Run, UsageError, hook, patched
from holdfast.errors import ReplayDiverged
from holdfast.events import RunBlocked, RunHandedOver, RunTakenUp, RunWaitsForVersion
from holdfast.kernel import cancels, handovers
from holdfast.kernel.journal import Retried
from holdfast.warnings import HookNotOpen
from tests.integration.conftest import PATIENCE_SECONDS, Home, eventually, heard, owner_of

Act = Callable[[str], Awaitable[str]]
Body = Callable[[Act], Awaitable[list[str]]]


async def old(act: Act) -> list[str]:
    done = [await act("a")]
    await hook("word")
    return [*done, await act("b")]


async def careless(act: Act) -> list[str]:
    """A new step in the middle of what runs have done already."""
    done = [await act("check"), await act("a")]
    await hook("word")
    return [*done, await act("b")]


async def careful(act: Act) -> list[str]:
    done = [await act("check")] if patched("check first") else []
    done.append(await act("a"))
    await hook("word")
    return [*done, await act("b")]


async def asks_late(act: Act) -> list[str]:
    """After the hook there is a new step: until that is recorded, the old code does not contradict the journal."""
    done = [await act("a")]
    if patched("ask twice"):
        await hook("first")
    await hook("word")
    return [*done, await act("b")]


async def foreign(act: Act) -> list[str]:
    return [await act("z")]


class Release:
    """One state of the code: the same names, another body."""

    def __init__(self, body: Body, done: list[str], **options: Any) -> None:
        self.pack = Pack("shop")
        self.go_on = asyncio.Event()

        @self.pack.effect
        async def take_back(name: str) -> None:
            done.append(f"not {name}")

        @self.pack.effect(key="{name}", undo=take_back)
        async def act(name: str) -> str:
            done.append(name)
            return name

        @self.pack.effect
        async def hold() -> None:
            await self.go_on.wait()

        @self.pack.workflow(key="order:{n}", **options)
        async def order(n: int = 1) -> list[str]:
            return await body(act)

        @self.pack.workflow
        async def busy() -> None:
            await hold()

        self.order, self.busy = order, busy


@pytest.fixture(autouse=True)
def runs_that_wait_are_let_go(home: Home) -> None:
    home.paced(idle_ms=10, uptake_seconds=0.1)


@asynccontextmanager
async def occupied(home: Home, release: Release, **options: Any) -> AsyncIterator[Holdfast]:
    """A worker that has no room for anything until `release.go_on` is set."""
    async with home.holdfast(release.pack, concurrency=1, **options) as hf:
        await hf.start(release.busy())
        yield hf
        release.go_on.set()


async def waiting(home: Home, release: Release, n: int = 1) -> str:
    """A run that this code has brought to its hook, and that no worker holds."""
    async with home.holdfast(release.pack) as hf:
        run = (await hf.start(release.order(n))).run
        await until(hf, run.id, "waiting")
        return run.id


async def until(hf: Holdfast, run_id: str, status: str) -> Run[Any]:
    async def reached() -> bool:
        return (await hf.get(run_id)).status == status

    await eventually(reached, what=f"run {run_id} to be {status}")
    return await hf.get(run_id)


async def finished(run: Run[Any]) -> Any:
    return await run.result(timeout=PATIENCE_SECONDS)


async def test_a_worker_whose_code_contradicts_hands_the_run_to_one_whose_code_fits(home: Home) -> None:
    done: list[str] = []
    first, second = Release(old, done), Release(careless, done)
    run_id = await waiting(home, first)
    async with occupied(home, first) as fits, home.holdfast(second.pack) as contradicts:
        run = await contradicts.get(run_id)
        await run.signal("word")
        handed = await heard(contradicts).until(RunHandedOver)
        assert (handed.run_id, handed.workflow, handed.to) == (run_id, "shop.order", owner_of(fits))
        assert "the journal has performed act#1" in handed.why
        # It waits there for a slot: nothing is executed beyond the concurrency.
        assert (await run.refresh()).waiting_on[0].name == owner_of(fits)
        assert done == ["a"]
        first.go_on.set()
        assert await finished(run) == ["a", "b"]
        assert not heard(contradicts).all(RunBlocked)
    assert done == ["a", "b"]


async def test_a_run_is_blocked_if_no_live_code_fits_and_taken_up_when_one_joins(home: Home) -> None:
    done: list[str] = []
    first = Release(old, done)
    run_id = await waiting(home, first)
    other, another = Release(careless, done), Release(foreign, done)
    async with home.holdfast(other.pack) as one, home.holdfast(another.pack) as two:
        run = await one.get(run_id)
        await run.signal("word")
        with pytest.raises(ReplayDiverged):
            await finished(run)
        # Each code was tried once.
        assert len(heard(one).all(RunHandedOver)) + len(heard(two).all(RunHandedOver)) == 1
        assert len(heard(one).all(RunBlocked)) + len(heard(two).all(RunBlocked)) == 1
    async with home.holdfast(first.pack) as hf:
        run = await until(hf, run_id, "completed")
        [taken] = heard(hf).all(RunTakenUp)
        assert taken.run_id == run_id
        [retried] = [entry for entry in await run.journal() if isinstance(entry, Retried)]
        assert (retried.reason, retried.void) == ("a worker with other code has joined", ())
        assert "was taken up again: a worker with other code has joined" in str(await run.explain())
    assert done == ["a", "b"]


async def test_code_that_was_tried_does_not_take_a_blocked_run_up(home: Home) -> None:
    first, other = Release(old, []), Release(careless, [])
    blocked, free = await waiting(home, first, 1), await waiting(home, first, 2)
    async with home.holdfast(other.pack) as hf:
        await (await hf.get(blocked)).signal("word")
        await until(hf, blocked, "blocked")
    third = Release(foreign, [])
    async with home.holdfast(Release(careless, []).pack) as again:  # the same code in another process
        await until(again, blocked, "blocked")
        async with home.holdfast(third.pack) as hf:  # does not fit either: it is tried once, and no more
            await heard(hf).until(RunTakenUp, run_id=blocked)
            await heard(hf).until(RunBlocked, run_id=blocked)
            async with home.holdfast(first.pack) as fits:
                assert await finished(await until(fits, blocked, "completed")) == ["a", "b"]
                assert await finished(await signalled(fits, free)) == ["a", "b"]
            assert len(heard(hf).all(RunTakenUp)) == 1
        assert not heard(again).all(RunTakenUp)


async def signalled(hf: Holdfast, run_id: str) -> Run[Any]:
    run = await hf.get(run_id)
    await run.signal("word", dedupe="once")
    return run


async def test_a_person_who_retries_has_all_code_tried_again(home: Home) -> None:
    first, other = Release(old, []), Release(careless, [])
    run_id = await waiting(home, first)
    async with home.holdfast(other.pack) as hf:
        run = await hf.get(run_id)
        await run.signal("word")
        await until(hf, run_id, "blocked")
        await run.retry()
        await heard(hf).until(RunBlocked, count=2)


async def test_a_run_that_took_a_patch_goes_to_the_code_that_knows_the_patch(home: Home) -> None:
    """The old code does not contradict the journal here: it would leave the new way without a word."""
    done: list[str] = []
    first, second = Release(old, done), Release(asks_late, done)
    run_id = await waiting(home, second)
    async with occupied(home, second), home.holdfast(first.pack) as knows_nothing:
        run = await knows_nothing.get(run_id)
        with pytest.warns(HookNotOpen):
            await run.signal("word")
        handed = await heard(knows_nothing).until(RunHandedOver)
        assert handed.why == "the code does not ask for 'ask twice'"
        second.go_on.set()
        await until(knows_nothing, run_id, "waiting")
        assert {wait.name for wait in (await run.refresh()).waiting_on} == {"first"}
        await run.signal("first")
        assert await finished(run) == ["a", "b"]


async def test_a_patch_may_be_removed_where_there_is_no_other_code(home: Home) -> None:
    done: list[str] = []
    run_id = await waiting(home, Release(careful, done))
    async with home.holdfast(Release(careless, done).pack) as hf:  # the `if` is gone, the new way is the only one
        assert await finished(await signalled(hf, run_id)) == ["check", "a", "b"]
        assert not heard(hf).all(RunHandedOver)


async def test_a_run_goes_to_a_worker_that_serves_its_version(home: Home) -> None:
    first, second = Release(old, [], version="1"), Release(old, [], version="2")
    run_id = await waiting(home, second)
    async with occupied(home, second) as serves_it, home.holdfast(first.pack) as other:
        run = await signalled(other, run_id)
        handed = await heard(other).until(RunHandedOver)
        assert (handed.to, handed.why) == (owner_of(serves_it), "that worker serves version '2'")
        second.go_on.set()
        assert await finished(run) == ["a", "b"]


async def test_a_run_goes_on_elsewhere_if_no_worker_serves_its_version(home: Home) -> None:
    run_id = await waiting(home, Release(old, [], version="2"))
    async with home.holdfast(Release(old, [], version="3").pack) as hf:
        assert await finished(await signalled(hf, run_id)) == ["a", "b"]


async def test_a_pinned_run_waits_for_its_version_and_says_so(home: Home) -> None:
    done: list[str] = []
    second = Release(old, done, version="2", versions="pinned")
    run_id = await waiting(home, second)
    async with home.holdfast(Release(old, done, version="3", versions="pinned").pack) as hf:
        run = await signalled(hf, run_id)
        waits = await heard(hf).until(RunWaitsForVersion)
        assert (waits.run_id, waits.workflow, waits.version) == (run_id, "shop.order", "2")
        [wait] = (await until(hf, run_id, "pending")).waiting_on
        assert (wait.kind, wait.version) == ("no_worker", "2")
        assert str(wait) == "a worker: none serves version '2', to which it is pinned"
        assert f"it waits for {wait}" in str(await run.explain())
        [found] = [each for each in await hf.runtime.inspect() if each.what == "versions"]
        assert (found.level, "1 run of version '2' of shop.order" in found.detail) == ("warning", True)
        async with home.holdfast(second.pack):
            assert await finished(run) == ["a", "b"]
        [found] = [each for each in await hf.runtime.inspect() if each.what == "versions"]
        assert found.level == "ok"
    assert done == ["a", "b"]


async def not_begun(home: Home) -> str:
    """A run of version 2, to which it is pinned."""
    release = Release(old, [], version="2", versions="pinned")
    async with home.holdfast(release.pack, worker=False) as client:
        return (await client.start(release.order())).run.id


async def test_a_pinned_run_that_has_never_begun_is_cancelled_at_once(home: Home) -> None:
    run_id = await not_begun(home)
    async with home.holdfast(Release(old, [], version="3", versions="pinned").pack) as hf:
        await heard(hf).until(RunWaitsForVersion)
        run = await until(hf, run_id, "pending")
        receipt = await run.cancel("not wanted", deadline="1h")
        assert (receipt.outcome, receipt.effects, receipt.stopped) == ("no_effects", (), False)
        assert (await run.refresh()).status == "cancelled"


async def test_a_worker_that_may_not_execute_a_run_ends_it_if_it_was_asked_to_cancel(home: Home) -> None:
    """The request may come just while the run is claimed, before it is given back."""
    run_id = await not_begun(home)
    async with home.holdfast(Release(old, [], version="3").pack, worker=False) as client:
        store = client.runtime.store
        asked = cancels.request(run_id, nonce="n", reason="not wanted", deadline_at_ms=store.now_ms() + 3_600_000)
        await store.commit([asked])
    async with home.holdfast(Release(old, [], version="3", versions="pinned").pack) as hf:
        run = await hf.get(run_id)
        await run.wait(timeout=PATIENCE_SECONDS)
        receipt = await run.cancel()
        assert (receipt.outcome, receipt.reason, receipt.stopped) == ("no_effects", "not wanted", False)


async def test_the_receipt_of_a_pinned_run_that_stood_still_is_not_unsure(home: Home) -> None:
    """It has begun, so its code is waited for; and what its journal shows is all there is."""
    run_id = await waiting(home, Release(old, [], version="2", versions="pinned"))
    async with home.holdfast(Release(old, [], version="3", versions="pinned").pack) as hf:
        run = await signalled(hf, run_id)
        await heard(hf).until(RunWaitsForVersion)
        receipt = await run.cancel(deadline="10ms")
        assert (receipt.outcome, receipt.stopped) == ("partial", True)
        assert [(str(left), left.state) for left in receipt.effects] == [("a", "performed")]


async def test_a_pinned_run_that_contradicts_goes_to_no_other_version(home: Home) -> None:
    run_id = await waiting(home, Release(old, [], version="2", versions="pinned"))
    other = Release(old, [], version="3", versions="pinned")
    async with (
        home.holdfast(other.pack),
        home.holdfast(Release(careless, [], version="2", versions="pinned").pack) as hf,
    ):
        run = await signalled(hf, run_id)
        with pytest.raises(ReplayDiverged):
            await finished(run)


@pytest.mark.parametrize("blocked", [False, True])
async def test_the_receipt_of_a_run_that_no_live_code_can_undo_says_what_is_left_and_why(
    home: Home, *, blocked: bool
) -> None:
    done: list[str] = []
    run_id = await waiting(home, Release(old, done))
    async with home.holdfast(Release(careless, done).pack) as hf:
        run = await hf.get(run_id)
        if blocked:
            run = await signalled(hf, run_id)
            await until(hf, run_id, "blocked")
        receipt = await run.cancel("not wanted", deadline="1h")
        assert (receipt.outcome, receipt.reason, receipt.stopped) == ("unknown", "not wanted", False)
        assert [(str(left), left.state, left.problem) for left in receipt.effects] == [
            ("a", "performed", cancels.NO_CODE_TO_UNDO)
        ]
        told = str(await run.explain())
        assert "was ended where it stood: no live code could go on with it" in told
        assert "is being undone" not in told
    assert done == ["a"]


async def test_a_worker_announces_its_code_as_long_as_it_lives(home: Home) -> None:
    release = Release(old, [], version="2")
    async with home.holdfast(release.pack, worker=False) as client:
        store = client.runtime.store

        async def announced() -> dict[str, handovers.Code]:
            found = await store.documents("default", handovers.CODE)
            return handovers.codes_in(found[0]) if found else {}

        async with home.holdfast(release.pack) as hf:
            [document] = await store.documents("default", handovers.CODE)
            assert document.id == owner_of(hf)
            assert (await announced())["shop.order"].version == "2"
        assert await announced() == {}


def test_what_is_pinned_has_a_version() -> None:
    with pytest.raises(UsageError, match="no version to be pinned to"):
        Release(old, [], versions="pinned")
    with pytest.raises(UsageError, match="versions='strict' is not known"):
        Release(old, [], version="1", versions="strict")
