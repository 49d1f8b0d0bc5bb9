"""A guard that does not hold: nothing is written, and the answer is the run that stands in the way."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.kernel.changes import Beat, Change, Committed, KeyHeldBy, Known, Refused
from holdfast.kernel.messages import Watcher
from holdfast.kernel.runs import Fenced, Status
from holdfast.ports.store import Store
from tests.builders import FakeClock, performed
from tests.contract.helpers import (
    admission,
    admitted,
    beat,
    claim,
    committed,
    completion,
    ended,
    everything,
    failed,
    held,
    offer,
    progress,
    refused,
    retry,
    takeover,
    watch,
)


async def test_a_free_key_admits_and_a_held_one_refuses_with_its_holder(store: Store) -> None:
    holder = await admitted(store, "run-1")
    assert await refused(store, admission(store, "run-2")) == holder


async def test_the_refusal_shows_the_holder_as_it_is_now(store: Store) -> None:
    done = await ended(store)
    current = await refused(store, admission(store, "run-2"))
    assert current == done
    assert current is not None
    assert current.output is not None


async def test_a_takeover_of_a_key_that_is_held_at_another_fence_is_refused_with_its_holder(store: Store) -> None:
    await admitted(store, "run-1")
    [holder] = await claim(store)
    assert await refused(store, admission(store, "run-2", guard=KeyHeldBy("run-1", Fenced("run-1", 0, "")))) == holder


async def test_a_fence_that_has_moved_is_refused_with_the_run_as_it_is_now(store: Store) -> None:
    stale = await held(store)
    await store.leave("w-1")
    [current] = await claim(store, "w-2")
    assert await refused(store, progress(store, stale, performed())) == current
    assert await refused(store, beat(stale)) == current


async def test_a_fenced_change_of_an_unknown_run_is_refused_with_nobody(store: Store) -> None:
    fence = Fenced("run-9", 1, "n")
    assert await refused(store, Change("x", fence, beats=(Beat("charge#1", b"1"),))) is None
    moved = progress(store, await held(store), performed())
    assert moved.run is not None
    assert await refused(store, replace(moved, id="y", guard=fence, run=replace(moved.run, id="run-9"))) is None
    assert await store.run("default", "run-9") is None


async def test_watching_an_unknown_run_is_refused_with_nobody(store: Store) -> None:
    await held(store, "parent", key=None)
    assert await refused(store, watch("run-9", Watcher("parent", "child#1"))) is None


async def test_a_retry_decided_before_the_key_was_taken_over_is_refused(store: Store) -> None:
    """Otherwise two live runs would do the work of one key."""
    holder = await failed(store)
    change = await retry(store, holder)
    successor = await committed(store, takeover(store, holder))
    former = await refused(store, change)
    assert former is not None
    assert (former.status, former.holds_key) == (Status.FAILED, False)
    assert [run.id for run in await claim(store)] == [successor.id]


async def test_a_takeover_decided_before_the_holder_was_retried_is_refused(store: Store) -> None:
    holder = await failed(store)
    retried = await committed(store, await retry(store, holder))
    assert await refused(store, takeover(store, holder)) == retried
    assert [run.id for run in await claim(store)] == ["run-1"]


@pytest.mark.parametrize("status", ["pending", "running", "completed"])
async def test_a_known_run_may_be_watched_in_whatever_state(store: Store, status: str) -> None:
    await held(store, "parent", key=None)
    run = await (admitted(store) if status == "pending" else held(store))
    if status == "completed":
        run = await committed(store, completion(store, run))
    answer = await offer(store, Change("parent/child#1", Known("run-1"), watcher=Watcher("parent", "child#1")))
    assert answer == Committed(run, ("parent",) if status == "completed" else ())


async def test_a_refusal_changes_nothing_at_all(store: Store, clock: FakeClock) -> None:
    stale = await held(store)
    await store.leave("w-1")
    await claim(store, "w-2")
    await held(store, "parent", key=None)
    before = await everything(store, "run-1", "parent")
    clock.advance(1000)
    answers = await store.commit(
        [
            admission(store, "run-2"),
            admission(store, "run-3", guard=KeyHeldBy("run-1", stale.fence)),
            progress(store, stale, performed()),
            completion(store, stale),
            beat(stale),
            watch("run-9", Watcher("parent", "child#1")),
        ]
    )
    assert all(isinstance(answer, Refused) for answer in answers), answers
    assert await everything(store, "run-1", "parent") == before
    assert await store.runs(["run-2", "run-3"]) == []
