"""A successor takes the key of a live run, which is asked to cancel, and is admitted: all in one commit."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from holdfast.kernel import starts, transitions
from holdfast.kernel.changes import Change, Committed, KeyHeldBy, Refused
from holdfast.kernel.messages import CancelRequest
from holdfast.kernel.runs import Run, Status
from holdfast.ports.store import Store
from tests.builders import FakeClock, a_hand, performed, wanted
from tests.contract.conftest import Backend
from tests.contract.helpers import (
    WORKFLOW,
    admission,
    admitted,
    blockage,
    claim,
    committed,
    completion,
    ended,
    everything,
    held,
    history,
    let_go,
    offer,
    progress,
    refused,
    retry,
    unread,
)


def _supersede(
    store: Store, replaces: str = "run-1", run_id: str = "run-2", *, owner: str | None = None, key: str = "order:1"
) -> Change:
    """A start with `replace=`: the holder's fence does not matter."""
    wish = wanted(run_id, key=key, replaces=replaces)
    return starts.admission(wish, now_ms=store.now_ms(), hand=None if owner is None else a_hand(owner))


def _request(store: Store, successor: str = "run-2") -> CancelRequest:
    deadline_at_ms = store.now_ms() + starts.SUPERSEDED_DEADLINE_MS
    return CancelRequest(f"superseded/{successor}", deadline_at_ms, f"superseded by run {successor}")


async def _owner(store: Store) -> Run | None:
    return await store.run_of_key("default", WORKFLOW, "order:1")


async def test_the_former_holder_keeps_its_owner_and_fence_and_loses_its_key(store: Store) -> None:
    before = await committed(store, progress(store, await held(store), performed()))
    answer = await offer(store, _supersede(store))
    assert isinstance(answer, Committed)
    assert answer.told == ("run-1",)
    assert answer.run == await _owner(store)
    assert answer.run is not None
    assert (answer.run.id, answer.run.holds_key, answer.run.status) == ("run-2", True, Status.PENDING)
    [former] = await store.runs(["run-1"])
    assert former == replace(before, holds_key=False, unread=1)
    assert await unread(store) == (_request(store),)
    assert await store.held("w-1") == ["run-1"]


async def test_the_former_holder_goes_on_at_its_fence_and_cleans_up(store: Store) -> None:
    run = await held(store)
    await committed(store, _supersede(store))
    run = await committed(store, progress(store, run, performed(), read=(_request(store).id,)))
    await committed(store, transitions.decide(run, transitions.CancelledItself(), now_ms=store.now_ms()))
    [former] = await store.runs(["run-1"])
    assert (former.status, former.holds_key, former.length) == (Status.CANCELLED, False, 3)
    owner = await _owner(store)
    assert owner is not None
    assert owner.id == "run-2"


async def test_the_former_holder_does_not_take_its_key_back_with_what_it_writes(store: Store) -> None:
    """Its row in memory still says that it holds the key."""
    run = await held(store)
    await committed(store, _supersede(store))
    read = (_request(store).id,)
    for change in (
        progress(store, run, performed(), read=read),
        let_go(store, replace(run, length=run.length + 1), wake_at_ms=store.now_ms()),
    ):
        await committed(store, change)
        [former] = await store.runs(["run-1"])
        assert not former.holds_key
    [again] = [run for run in await claim(store) if run.id == "run-1"]
    assert not again.holds_key
    await committed(store, completion(store, again))
    assert [run.holds_key for run in sorted(await store.runs(["run-1", "run-2"]), key=lambda r: r.id)] == [False, True]


@pytest.mark.parametrize("state", ["pending", "delayed", "waiting", "blocked"])
async def test_a_holder_in_whatever_state_is_asked_to_cancel(store: Store, clock: FakeClock, state: str) -> None:
    if state in {"pending", "delayed"}:
        before = await admitted(store, delay_ms=60_000 if state == "delayed" else 0)
    else:
        run = await held(store)
        before = await committed(store, blockage(store, run) if state == "blocked" else let_go(store, run))
    clock.advance(5)
    await committed(store, _supersede(store))
    [former] = await store.runs(["run-1"])
    wake_at_ms = store.now_ms() if state == "waiting" else before.wake_at_ms  # it shall hear it at once
    assert former == replace(before, holds_key=False, unread=1, wake_at_ms=wake_at_ms)
    assert await unread(store) == (_request(store),)


async def test_a_holder_that_has_ended_is_told_nothing_and_cannot_be_tried_again(store: Store) -> None:
    failed = await committed(
        store, transitions.decide(await held(store), transitions.CancelledItself(), now_ms=store.now_ms())
    )
    resumption = replace(await _failing_retry(store, failed), guard=failed.fence)
    answer = await offer(store, _supersede(store))
    assert isinstance(answer, Committed)
    assert answer.told == ()
    former = await refused(store, resumption)
    assert former is not None
    assert (former.holds_key, former.status, former.unread) == (False, Status.CANCELLED, 0)
    assert former.epoch > failed.epoch


async def _failing_retry(store: Store, run: Run) -> Change:
    """A retry that was decided before the key went."""
    return await retry(store, replace(run, status=Status.FAILED))


async def test_the_successor_may_be_handed_to_a_worker_in_the_same_commit(store: Store) -> None:
    await held(store)
    successor = await committed(store, _supersede(store, owner="w-2"))
    assert (successor.status, successor.owner, successor.epoch) == (Status.RUNNING, "w-2", 1)
    assert await store.held("w-2") == ["run-2"]


async def test_a_free_key_needs_no_taking(store: Store) -> None:
    """No run holds it any more: the run to be replaced was pruned, or its key was released."""
    successor = await committed(store, _supersede(store, "gone"))
    assert await _owner(store) == successor
    assert successor.unread == 0


async def test_a_key_held_by_somebody_else_is_refused_and_nothing_is_asked(store: Store) -> None:
    await held(store, "run-1")
    await committed(store, _supersede(store, "run-1", "run-2"))
    before = await everything(store, "run-1", "run-2")
    assert await refused(store, _supersede(store, "run-1", "run-3")) == await _owner(store)
    assert await everything(store, "run-1", "run-2") == before
    assert await store.runs(["run-3"]) == []


@pytest.mark.parametrize("taken", [True, False])
async def test_a_run_of_another_key_loses_nothing(store: Store, taken: bool) -> None:
    """Whether or not the wanted key is free, a key is taken from its own holder only."""
    other = await held(store, "other", key="order:2")
    if taken:
        await held(store)
    answer = await offer(store, admission(store, "run-2", guard=KeyHeldBy("other")))
    assert isinstance(answer, Refused if taken else Committed), answer
    [now] = await store.runs(["other"])
    assert now == other
    assert await store.run_of_key("default", WORKFLOW, "order:2") == other


async def test_a_run_of_another_workflow_or_namespace_loses_nothing(store: Store) -> None:
    workflow = await held(store, "run-w", workflow="shop.refund")
    namespace = await held(store, "run-n", namespace="tenant")
    for number, other in enumerate((workflow, namespace)):
        await offer(store, admission(store, f"new-{number}", guard=KeyHeldBy(other.id)))
        assert await store.runs([other.id]) == [other]


async def test_of_many_supersedes_at_once_one_wins(backend: Backend) -> None:
    """K7."""
    stores = [await backend.another() for _ in range(4)]
    await held(stores[0])
    changes = [_supersede(stores[n % 4], run_id=f"next-{n}") for n in range(32)]
    answers = await asyncio.gather(*(offer(stores[n % 4], change) for n, change in enumerate(changes)))
    [winner] = [answer.run for answer in answers if isinstance(answer, Committed)]
    assert winner is not None
    assert {answer.current and answer.current.id for answer in answers if isinstance(answer, Refused)} == {winner.id}
    assert [message.id for message in await unread(stores[0])] == [f"superseded/{winner.id}"]
    assert len(await stores[0].runs([f"next-{n}" for n in range(32)])) == 1


async def test_a_repeated_supersede_is_harmless(store: Store, clock: FakeClock) -> None:
    await held(store)
    change = _supersede(store)
    first = await offer(store, change)
    before = await everything(store, "run-1", "run-2")
    clock.advance(7)
    again = await offer(store, change)
    assert isinstance(first, Committed)
    assert isinstance(again, Committed)
    assert again.run == first.run
    assert await everything(store, "run-1", "run-2") == before


async def test_a_repeated_supersede_takes_nothing_from_the_next_holder(store: Store) -> None:
    await held(store)
    change = _supersede(store)
    await committed(store, change)
    await committed(store, _supersede(store, "run-2", "run-3"))
    before = await everything(store, "run-1", "run-2", "run-3")
    assert (await committed(store, change)).id == "run-2"
    assert await everything(store, "run-1", "run-2", "run-3") == before
    owner = await _owner(store)
    assert owner is not None
    assert owner.id == "run-3"


async def test_a_chain_of_successors_has_one_owner_at_every_moment(backend: Backend) -> None:
    """K7: a look between any two commits finds exactly one."""
    store, other = await backend.another(), await backend.another()
    await held(store, "run-0")
    over = asyncio.Event()

    async def look() -> int:
        seen = 0
        while not over.is_set():
            assert await other.run_of_key("default", WORKFLOW, "order:1") is not None
            seen += 1
            await asyncio.sleep(0)
        return seen

    async def succeed() -> None:
        for number in range(60):
            await committed(store, _supersede(store, f"run-{number}", f"run-{number + 1}"))
            await asyncio.sleep(0)
        over.set()

    seen, _ = await asyncio.gather(look(), succeed())
    assert seen
    rows = await store.runs([f"run-{number}" for number in range(61)])
    assert [run.id for run in rows if run.holds_key] == ["run-60"]
    assert all(run.unread == 1 for run in rows if run.id != "run-60")


async def test_the_journal_of_the_former_holder_is_its_own(store: Store) -> None:
    await ended(store, "bystander", key="9")
    await held(store)
    before = (await history(store)).journal
    await committed(store, _supersede(store))
    assert (await history(store)).journal == before
