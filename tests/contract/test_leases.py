"""Leases: one covers all that a replica holds. The store's clock decides when it has expired."""

from __future__ import annotations

import asyncio

from holdfast.kernel import transitions
from holdfast.kernel.messages import Watcher
from holdfast.kernel.runs import NOT_BEGUN, Status
from holdfast.kernel.times import Instant
from holdfast.ports.store import Store
from tests.builders import FakeClock, performed
from tests.contract.conftest import Backend
from tests.contract.helpers import (
    admitted,
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
)

TTL_MS = 1_000


async def test_a_lease_is_renewed_as_long_as_it_lasts(store: Store, clock: FakeClock) -> None:
    await store.join("w-1", TTL_MS)
    await held(store)
    for _ in range(5):
        clock.advance(TTL_MS - 1)
        assert await store.renew("w-1", TTL_MS)
    assert await store.rescue(10) == []


async def test_a_lease_that_has_expired_is_not_renewed(store: Store, clock: FakeClock) -> None:
    await store.join("w-1", TTL_MS)
    clock.advance(TTL_MS)
    assert not await store.renew("w-1", TTL_MS)
    assert not await store.renew("w-1", TTL_MS)


async def test_a_renewal_counts_from_when_it_is_made(store: Store, clock: FakeClock) -> None:
    await store.join("w-1", TTL_MS)
    clock.advance(900)
    assert await store.renew("w-1", TTL_MS)
    clock.advance(999)
    assert await store.renew("w-1", 10)
    clock.advance(10)
    assert not await store.renew("w-1", TTL_MS)


async def test_nobody_renews_what_was_never_joined_or_was_left(store: Store) -> None:
    assert not await store.renew("nobody", TTL_MS)
    await store.join("w-1", TTL_MS)
    await store.leave("w-1")
    assert not await store.renew("w-1", TTL_MS)


async def test_what_a_live_lease_holds_is_not_rescued(store: Store, clock: FakeClock) -> None:
    await store.join("w-1", TTL_MS)
    await held(store)
    clock.advance(TTL_MS - 1)
    assert await store.rescue(10) == []
    assert await store.held("w-1") == ["run-1"]


async def test_what_an_expired_lease_held_may_be_claimed_at_a_new_epoch(store: Store, clock: FakeClock) -> None:
    await store.join("w-1", TTL_MS)
    before = await held(store)
    clock.advance(TTL_MS)
    assert await store.rescue(10) == ["run-1"]
    [free] = await store.runs(["run-1"])
    assert (free.status, free.owner, free.wake_at_ms) == (Status.PENDING, None, store.now_ms())
    assert free.epoch > before.epoch
    assert await store.held("w-1") == []
    [taken] = await claim(store, "w-2")
    assert taken.epoch > free.epoch
    assert await refused(store, progress(store, before, performed())) == taken


async def test_a_rescue_loses_nothing_of_the_run(store: Store, clock: FakeClock) -> None:
    await store.join("w-1", TTL_MS)
    parent = await held(store, "parent", key=None)
    parent = await committed(store, progress(store, parent, performed()))
    child = await held(store, owner="w-2", watcher=Watcher("parent", "child#1"))
    await offer(store, completion(store, child))
    before = await history(store, "parent")
    clock.advance(TTL_MS)
    assert await store.rescue(10) == ["parent"]
    after = await history(store, "parent")
    assert (after.journal, after.messages, after.beats) == (before.journal, before.messages, before.beats)
    assert (after.run.unread, after.run.started_at_ms) == (1, before.run.started_at_ms)


async def test_rescue_comes_in_bites_until_nothing_is_left(store: Store, clock: FakeClock) -> None:
    for owner in ("w-1", "w-2"):
        await store.join(owner, TTL_MS)
        for n in range(5):
            await held(store, f"{owner}-{n}", key=None, owner=owner)
    await store.join("alive", TTL_MS * 10)
    await held(store, "alive-1", key=None, owner="alive")
    clock.advance(TTL_MS)
    bites = [await store.rescue(3) for _ in range(5)]
    assert [len(bite) for bite in bites] == [3, 3, 3, 1, 0]
    rescued = [run_id for bite in bites for run_id in bite]
    assert sorted(rescued) == sorted(f"{owner}-{n}" for owner in ("w-1", "w-2") for n in range(5))
    assert await store.held("alive") == ["alive-1"]


async def test_a_bite_that_takes_all_exactly_leaves_nothing_behind(store: Store, clock: FakeClock) -> None:
    await store.join("w-1", TTL_MS)
    for n in range(4):
        await held(store, f"run-{n}", key=None)
    clock.advance(TTL_MS)
    assert len(await store.rescue(4)) == 4
    assert await store.rescue(4) == []
    assert len(await claim(store, "w-2")) == 4


async def test_leaving_frees_everything_at_once(store: Store) -> None:
    await store.join("w-1", TTL_MS)
    await store.join("w-2", TTL_MS)
    for n in range(3):
        await held(store, f"run-{n}", key=None, owner="w-1")
    await held(store, "other", key=None, owner="w-2")
    stale = (await store.runs(["run-0"]))[0]
    await store.leave("w-1")
    assert await store.held("w-1") == []
    assert await store.held("w-2") == ["other"]
    assert {run.id for run in await claim(store, "w-2")} == {"run-0", "run-1", "run-2"}
    await refused(store, completion(store, stale))


async def test_leaving_touches_no_run_that_was_let_go_or_has_ended(store: Store) -> None:
    await store.join("w-1", TTL_MS)
    await committed(store, let_go(store, await held(store, "run-1", key="1"), wake_at_ms=store.now_ms() + 9_000))
    await committed(store, completion(store, await held(store, "run-2", key="2")))
    before = await everything(store, "run-1", "run-2")
    await store.leave("w-1")
    assert await everything(store, "run-1", "run-2") == before


async def test_leaving_twice_or_unknown_is_harmless(store: Store) -> None:
    await store.join("w-1", TTL_MS)
    await store.leave("w-1")
    await store.leave("w-1")
    await store.leave("nobody")


async def test_of_many_rescuers_each_run_is_rescued_once(backend: Backend) -> None:
    stores = [await backend.another() for _ in range(4)]
    await stores[0].join("w-1", TTL_MS)
    for n in range(40):
        await held(stores[0], f"run-{n}", key=None)
    backend.clock.advance(TTL_MS)
    bites = await asyncio.gather(*(stores[n % 4].rescue(10) for n in range(8)))
    rescued = [run_id for bite in bites for run_id in bite]
    assert sorted(rescued) == sorted(f"run-{n}" for n in range(40))
    epochs = {run.epoch for run in await stores[0].runs([f"run-{n}" for n in range(40)])}
    assert epochs == {2}


async def test_a_run_admitted_for_an_owner_whose_lease_is_gone_is_not_forgotten(store: Store, clock: FakeClock) -> None:
    """E6: the owner stalled between choosing to take the run and the commit that gives it to it."""
    await store.join("w-1", TTL_MS)
    clock.advance(TTL_MS)
    await store.rescue(10)  # w-1 is over, whatever it may still send
    await held(store, owner="w-1")
    clock.advance(TTL_MS)
    await store.rescue(10)
    await store.join("w-2", TTL_MS)
    assert [run.id for run in await claim(store, "w-2")] == ["run-1"]


async def test_a_run_claimed_by_an_owner_whose_lease_is_gone_is_not_forgotten(store: Store, clock: FakeClock) -> None:
    """E6: the same, for a claim that waited for the database longer than its lease lasted."""
    await store.join("w-1", TTL_MS)
    await store.leave("w-1")
    await admitted(store)
    await claim(store, "w-1")
    clock.advance(TTL_MS)
    await store.rescue(10)
    await store.join("w-2", TTL_MS)
    assert [run.id for run in await claim(store, "w-2")] == ["run-1"]


async def test_what_would_be_rescued_can_be_looked_at_before(store: Store, clock: FakeClock) -> None:
    await store.join("w-1", TTL_MS)
    await store.join("w-2", 10 * TTL_MS)
    before = {run_id: await held(store, run_id, key=None) for run_id in ("run-1", "run-2", "run-3")}
    await held(store, "run-4", owner="w-2", key=None)
    await admitted(store, "run-5", key=None)
    assert await store.fallen(10) == []
    clock.advance(TTL_MS)
    looked_at = await store.fallen(10)
    assert {run.id: run for run in looked_at} == before
    assert len(await store.fallen(2)) == 2
    assert await store.fallen(10) == looked_at  # a look changes nothing
    assert sorted(await store.rescue(10)) == sorted(before)
    assert await store.fallen(10) == []


async def test_a_lease_that_expired_later_than_is_wanted_is_left_for_the_next_time(
    store: Store, clock: FakeClock
) -> None:
    await store.join("w-1", TTL_MS)
    await store.join("w-2", TTL_MS + 1)
    await held(store, "run-1", key=None)
    await held(store, "run-2", owner="w-2", key=None)
    clock.advance(TTL_MS)
    looked_at_ms = store.now_ms()
    clock.advance(1)
    assert len(await store.fallen(10)) == 2
    assert await store.rescue(10, expired_until_ms=looked_at_ms) == ["run-1"]
    assert not await store.renew("w-2", TTL_MS)
    assert await store.rescue(10, expired_until_ms=Instant(looked_at_ms + 1)) == ["run-2"]
    assert await store.fallen(10) == []


async def test_what_a_missing_lease_holds_is_looked_at_too(store: Store) -> None:
    run = await held(store, owner="w-gone")
    assert await store.fallen(10) == [run]


async def test_a_run_that_is_given_back_before_it_began_is_claimed_again_from_then_on(
    store: Store, clock: FakeClock
) -> None:
    run = await held(store)
    later_ms = store.now_ms() + 250
    given_back = await committed(store, transitions.decide(run, transitions.Postponed(later_ms), now_ms=store.now_ms()))
    assert (given_back.status, given_back.owner, given_back.wake_at_ms) == (Status.PENDING, None, later_ms)
    assert given_back.waits == NOT_BEGUN
    assert await claim(store, "w-2") == []
    clock.advance(250)
    [taken] = await claim(store, "w-2")
    assert (taken.id, taken.length) == (run.id, run.length)
    assert await refused(store, completion(store, run)) is not None
    again = await committed(store, transitions.decide(taken, transitions.Postponed(later_ms), now_ms=store.now_ms()))
    assert again.waits == NOT_BEGUN
    [taken] = await claim(store, "w-3")
    await store.leave("w-3")
    [left] = await store.runs([run.id])
    assert left.waits is None  # w-3 may have executed it
