"""A run changes hands in one commit: from then on it is the other worker's, and nothing of the former one lands."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.kernel import transitions
from holdfast.kernel.changes import Change, HandedOver
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.starts import Hand
from holdfast.ports.store import Store
from tests.builders import FakeClock, performed
from tests.contract.helpers import (
    blockage,
    claim,
    committed,
    completion,
    everything,
    held,
    history,
    let_go,
    offer,
    progress,
    refused,
    signalled,
)

OTHER = Hand("w-2", "nonce-of-w-2")


async def joined(store: Store) -> None:
    for owner in ("w-1", "w-2"):
        await store.join(owner, 60_000)


async def handed(store: Store, run: Run) -> Run:
    return await committed(store, transitions.hand_over(run, OTHER))


async def test_a_run_that_was_handed_over_is_held_by_the_other_worker_alone(store: Store) -> None:
    await joined(store)
    run = await held(store)
    after = await handed(store, run)
    assert (after.status, after.owner, after.nonce, after.epoch) == (Status.RUNNING, "w-2", OTHER.nonce, run.epoch + 1)
    assert (await history(store)).run == after
    assert (await store.held("w-1"), await store.held("w-2")) == ([], ["run-1"])
    assert await claim(store, owner="w-3") == []


async def test_the_former_holder_is_refused_and_the_new_one_goes_on(store: Store) -> None:
    await joined(store)
    run = await held(store)
    after = await handed(store, run)
    before = await everything(store)
    for late in (
        progress(store, run, performed()),
        completion(store, run),
        transitions.hand_over(run, Hand("w-3", "n")),
    ):
        assert await refused(store, late) == after
    assert await everything(store) == before
    await committed(store, progress(store, after, performed()))
    ended = await committed(store, completion(store, replace(after, length=2)))
    assert (ended.status, await store.held("w-2")) == (Status.COMPLETED, [])


async def test_a_hand_over_that_is_offered_again_has_the_result_of_the_first_time(store: Store) -> None:
    await joined(store)
    change = transitions.hand_over(await held(store), OTHER)
    first = await offer(store, change)
    before = await everything(store)
    assert await offer(store, change) == first
    assert await everything(store) == before


async def test_a_hand_over_is_no_change_that_its_holder_has_made_at_the_same_length(store: Store) -> None:
    await joined(store)
    run = await committed(store, progress(store, await held(store), performed()))
    assert (await handed(store, run)).owner == "w-2"


async def test_its_mail_goes_along(store: Store) -> None:
    await joined(store)
    run = await held(store)
    await signalled(store)
    await handed(store, run)
    assert (await history(store)).run.unread == 1
    assert list(await store.messages("w-2")) == ["run-1"]
    assert await store.messages("w-1") == {}


async def test_what_it_waited_for_when_it_was_let_go_is_still_known(store: Store, clock: FakeClock) -> None:
    await joined(store)
    await committed(store, let_go(store, await held(store), wake_at_ms=store.now_ms()))
    [run] = await claim(store, owner="w-1")
    assert run.waits is not None
    assert (await handed(store, run)).waits == run.waits


async def test_a_blocked_run_is_taken_up_in_one_commit(store: Store) -> None:
    await joined(store)
    blocked = await committed(store, blockage(store, await held(store)))
    after = await committed(store, transitions.take_up(blocked, OTHER, now_ms=store.now_ms()))
    assert (after.status, after.owner, after.error, after.epoch) == (Status.RUNNING, "w-2", None, blocked.epoch + 1)
    found = await history(store)
    assert (found.run, found.journal[-1].what) == (after, "retried")
    assert await store.held("w-2") == ["run-1"]
    assert await refused(store, transitions.take_up(blocked, Hand("w-3", "n"), now_ms=store.now_ms())) == after


async def test_a_run_whose_new_holder_dies_is_rescued(store: Store, clock: FakeClock) -> None:
    await store.join("w-2", 1_000)
    await store.join("w-1", 60_000)
    await handed(store, await held(store))
    assert await store.rescue(10) == []
    clock.advance(1_001)
    assert [run.owner for run in await store.fallen(10)] == ["w-2"]
    assert await store.rescue(10) == ["run-1"]
    assert [run.id for run in await claim(store, owner="w-1")] == ["run-1"]


async def test_a_run_that_is_handed_to_a_worker_that_has_left_is_rescued(store: Store) -> None:
    await store.join("w-1", 60_000)
    await handed(store, await held(store))
    assert await store.rescue(10) == ["run-1"]


async def test_a_run_that_is_not_there_is_not_handed_over(store: Store) -> None:
    run = await held(store)
    gone = replace(run, id="run-9")
    change = Change("x", HandedOver(gone.fence), replace(gone, owner="w-2"))
    assert await refused(store, change) is None
