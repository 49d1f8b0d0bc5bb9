"""A key that is taken from its run is free at once; the run goes on, learns it, and does not get it back."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.kernel import transitions
from holdfast.kernel.changes import Change, Committed
from holdfast.kernel.journal import KeyReleased
from holdfast.kernel.messages import KeyTaken
from holdfast.kernel.runs import Run, Status
from holdfast.ports.store import Store
from tests.builders import FakeClock, performed
from tests.contract.helpers import (
    WORKFLOW,
    admission,
    admitted,
    committed,
    completion,
    ended,
    everything,
    failed,
    family,
    held,
    history,
    let_go,
    offer,
    outcomes,
    progress,
    refused,
    retry,
    sending,
    takeover,
    unread,
)


def _release(store: Store, run: Run, *, nonce: str = "n-1") -> Change:
    return transitions.release_key(run, reason="a person", nonce=nonce, now_ms=store.now_ms())


async def _owner(store: Store) -> Run | None:
    return await store.run_of_key("default", WORKFLOW, "order:1")


async def test_a_live_run_loses_its_key_and_is_told(store: Store) -> None:
    before = await held(store)
    answer = await offer(store, _release(store, before))
    [run] = await store.runs(["run-1"])
    assert answer == Committed(run, ("run-1",))
    assert run == replace(before, holds_key=False, unread=1)  # its owner goes on, at the same fence
    assert await _owner(store) is None
    assert await unread(store) == (KeyTaken("key_taken/n-1", "a person"),)


@pytest.mark.parametrize("state", ["pending", "waiting"])
async def test_a_run_that_nobody_holds_is_told_too(store: Store, clock: FakeClock, state: str) -> None:
    run = await admitted(store) if state == "pending" else await committed(store, let_go(store, await held(store)))
    clock.advance(5)
    told = await committed(store, _release(store, run))
    assert told == replace(
        run, holds_key=False, unread=1, wake_at_ms=store.now_ms() if state == "waiting" else run.wake_at_ms
    )


async def test_the_key_is_free_for_the_next_and_the_former_does_not_take_it_back(store: Store) -> None:
    run = await held(store)
    await committed(store, _release(store, run))
    successor = await committed(store, admission(store, "run-2"))
    run = await committed(store, progress(store, run, KeyReleased(store.now_ms(), ""), read=("key_taken/n-1",)))
    await committed(store, completion(store, run))
    [former] = await store.runs(["run-1"])
    assert (former.status, former.holds_key) == (Status.COMPLETED, False)
    assert await _owner(store) == successor


async def test_an_ended_run_records_it_in_the_same_commit(store: Store) -> None:
    done = await ended(store)
    released = await committed(store, _release(store, done))
    assert (released.holds_key, released.status, released.length) == (False, Status.COMPLETED, done.length + 1)
    assert (released.output, released.finished_at_ms, released.expires_at_ms) == (
        done.output,
        done.finished_at_ms,
        done.expires_at_ms,
    )
    assert await store.runs(["run-1"]) == [released]
    assert (await history(store)).journal[-1] == KeyReleased(store.now_ms(), "a person")
    assert await _owner(store) is None
    await admitted(store, "run-2")


async def test_a_retry_decided_before_the_key_was_released_is_refused(store: Store) -> None:
    run = await failed(store)
    change = await retry(store, run)
    await committed(store, _release(store, run))
    await admitted(store, "run-2")
    await refused(store, change)
    [now] = await store.runs(["run-1"])
    assert now.status is Status.FAILED


async def test_nobody_is_told_a_second_time_how_the_run_ended(store: Store) -> None:
    _, child = await family(store)
    done = await committed(store, completion(store, child))
    before = await outcomes(store)
    answer = await offer(store, _release(store, done))
    assert isinstance(answer, Committed)
    assert answer.told == ()
    assert await outcomes(store) == before


@pytest.mark.parametrize("live", [True, False])
async def test_a_repeated_release_is_harmless(store: Store, live: bool) -> None:
    run = await held(store) if live else await ended(store)
    change = _release(store, run)
    first = await committed(store, change)
    before = await everything(store)
    assert await committed(store, change) == first
    assert await everything(store) == before


async def test_a_repeated_release_takes_nothing_from_the_next_holder(store: Store) -> None:
    change = _release(store, await held(store))
    await committed(store, change)
    successor = await admitted(store, "run-2")
    await committed(store, change)
    assert await _owner(store) == successor


async def test_a_release_decided_before_the_run_ended_is_refused(store: Store) -> None:
    run = await held(store)
    change = _release(store, run)
    done = await committed(store, completion(store, run))
    assert await refused(store, change) == done
    assert await _owner(store) == done


async def test_a_release_decided_before_the_key_was_taken_over_is_refused(store: Store) -> None:
    done = await ended(store)
    change = _release(store, done)
    successor = await committed(store, takeover(store, done))
    before = await everything(store, "run-1", "run-2")
    former = await refused(store, change)
    assert former is not None
    assert not former.holds_key
    assert await everything(store, "run-1", "run-2") == before
    assert await _owner(store) == successor


async def test_a_run_without_its_key_still_receives_what_is_sent_to_it(store: Store) -> None:
    run = await held(store)
    await committed(store, _release(store, run))
    await committed(store, sending())
    assert len(await unread(store)) == 2
    run = await committed(store, progress(store, run, performed(), read=tuple(m.id for m in await unread(store))))
    assert await unread(store) == ()
