"""When a run ends, each of its watchers gets a message with the outcome: once, at once, and never too late."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from holdfast.kernel import transitions
from holdfast.kernel.changes import Change, Committed
from holdfast.kernel.journal import Value
from holdfast.kernel.messages import Watcher, outcome_message
from holdfast.kernel.runs import Run, Status
from holdfast.ports.store import Store
from tests.builders import FakeClock, performed
from tests.contract.helpers import (
    A_BLOB,
    WATCHER,
    admitted,
    blockage,
    claim,
    committed,
    completion,
    failure,
    family,
    held,
    let_go,
    offer,
    outcomes,
    progress,
    retry,
    watch,
)


async def _told(store: Store, change: Change) -> tuple[str, ...]:
    answer = await offer(store, change)
    assert isinstance(answer, Committed), answer
    return answer.told


def _cancellation(store: Store, run: Run) -> Change:
    return transitions.decide(run, transitions.CancelledItself(), now_ms=store.now_ms())


@pytest.mark.parametrize("end", [completion, failure, _cancellation])
async def test_the_end_of_a_run_is_told_with_its_outcome(store: Store, end: Callable[[Store, Run], Change]) -> None:
    _, child = await family(store)
    assert await _told(store, end(store, child)) == ("parent",)
    [ended] = await store.runs(["run-1"])
    assert await outcomes(store) == [outcome_message(ended, WATCHER)]
    [parent] = await store.runs(["parent"])
    assert parent.unread == 1


async def test_the_owner_of_the_watcher_finds_the_message(store: Store) -> None:
    await held(store, "parent", key=None, owner="w-1")
    await held(store, "other", key=None, owner="w-1")
    child = await held(store, watcher=WATCHER, owner="w-2")
    await offer(store, completion(store, child))
    assert list(await store.messages("w-1")) == ["parent"]
    assert await store.messages("w-2") == {}
    assert (await store.messages("w-1"))["parent"] == await outcomes(store)


async def test_progress_letting_go_and_blocking_tell_nobody(store: Store) -> None:
    _, child = await family(store)
    child = await committed(store, progress(store, child, performed()))
    assert await _told(store, let_go(store, child, wake_at_ms=store.now_ms())) == ()
    [child] = await claim(store)
    assert await _told(store, blockage(store, child)) == ()
    assert await outcomes(store) == []


async def test_whoever_watches_a_run_that_has_ended_is_told_at_once(store: Store) -> None:
    await held(store, "parent", key=None)
    done = await committed(store, completion(store, await held(store)))
    assert await _told(store, watch("run-1", WATCHER)) == ("parent",)
    assert await outcomes(store) == [outcome_message(done, WATCHER)]


async def test_nobody_is_told_twice(store: Store) -> None:
    _, child = await family(store)
    await offer(store, watch("run-1", WATCHER))  # a second wish for the same thing
    assert await _told(store, completion(store, child)) == ("parent",)
    assert await _told(store, watch("run-1", WATCHER)) == ()
    assert len(await outcomes(store)) == 1
    assert (await store.runs(["parent"]))[0].unread == 1


async def test_each_step_and_each_watcher_gets_its_own_message(store: Store) -> None:
    for parent in ("parent", "parent-2"):
        await held(store, parent, key=None)
    child = await held(store, watcher=WATCHER)
    await offer(store, watch("run-1", Watcher("parent", "child#2")))
    await offer(store, watch("run-1", Watcher("parent-2", "child#1")))
    assert sorted(await _told(store, completion(store, child))) == ["parent", "parent", "parent-2"]
    assert sorted(message.step for message in await outcomes(store)) == ["child#1", "child#2"]
    assert [message.step for message in await outcomes(store, "parent-2")] == ["child#1"]
    assert (await store.runs(["parent"]))[0].unread == 2


async def test_messages_are_read_in_the_order_of_their_arrival(store: Store, clock: FakeClock) -> None:
    await held(store, "parent", key=None)
    children = [await held(store, f"run-{n}", key=f"{n}", watcher=Watcher("parent", f"child#{n}")) for n in range(5)]
    for child in (children[3], children[0], children[4], children[1], children[2]):
        await offer(store, completion(store, child))
        clock.advance(1)
    order = ["run-3", "run-0", "run-4", "run-1", "run-2"]
    assert [message.from_run for message in await outcomes(store)] == order
    assert (await store.messages("w-1"))["parent"] == await outcomes(store)


async def test_an_ended_watcher_is_told_nothing(store: Store) -> None:
    parent, child = await family(store)
    await committed(store, completion(store, parent))
    assert await _told(store, completion(store, child)) == ()
    assert await _told(store, watch("run-1", WATCHER)) == ()
    assert await outcomes(store) == []


async def test_a_watcher_that_does_not_exist_harms_nobody(store: Store) -> None:
    child = await held(store, watcher=Watcher("nobody", "child#1"))
    assert await _told(store, completion(store, child)) == ()


async def test_a_recorded_message_is_read_and_the_others_stay(store: Store) -> None:
    parent = await held(store, "parent", key=None)
    for n in (1, 2):
        child = await held(store, f"run-{n}", key=f"{n}", watcher=Watcher("parent", f"child#{n}"))
        await offer(store, completion(store, child))
    first, second = await outcomes(store)
    await committed(store, progress(store, parent, performed(), read=(first.id,)))
    assert await outcomes(store) == [second]
    assert (await store.runs(["parent"]))[0].unread == 1
    assert await store.messages("w-1") == {"parent": [second]}


async def test_a_message_wakes_a_waiting_run_at_once(store: Store, clock: FakeClock) -> None:
    parent, child = await family(store)
    await committed(store, let_go(store, parent, wake_at_ms=store.now_ms() + 3_600_000))
    clock.advance(10)
    await offer(store, completion(store, child))
    [woken] = await claim(store, "w-2")
    assert (woken.id, woken.owner) == ("parent", "w-2")
    assert len(await outcomes(store)) == 1


async def test_a_run_let_go_with_an_unread_message_may_be_claimed_at_once(store: Store) -> None:
    """The message came while its owner was deciding to let go: it must not wait for a timer, or forever."""
    parent, child = await family(store)
    await offer(store, completion(store, child))
    gone = await committed(store, let_go(store, parent, wake_at_ms=None))
    assert (gone.status, gone.wake_at_ms) == (Status.WAITING, store.now_ms())
    assert [run.id for run in await claim(store, "w-2")] == ["parent"]


async def test_a_run_let_go_that_has_read_everything_waits_for_its_timer(store: Store) -> None:
    parent, child = await family(store)
    await offer(store, completion(store, child))
    [message] = await outcomes(store)
    gone = await committed(store, let_go(store, parent, wake_at_ms=None, read=(message.id,)))
    assert gone.wake_at_ms is None
    assert await claim(store, "w-2") == []


async def test_a_message_does_not_wake_a_blocked_run_and_is_kept_for_its_retry(store: Store) -> None:
    parent, child = await family(store)
    blocked = await committed(store, blockage(store, parent))
    await offer(store, completion(store, child))
    assert await claim(store) == []
    assert len(await outcomes(store)) == 1
    await committed(store, await retry(store, blocked))
    assert [run.id for run in await claim(store)] == ["parent"]


async def test_a_message_does_not_wake_a_delayed_run_early(store: Store) -> None:
    """It has not begun: what others tell it can wait."""
    delayed = await admitted(store, "parent", key=None, delay_ms=60_000)
    child = await held(store)
    await offer(store, watch("run-1", WATCHER))
    assert await _told(store, completion(store, child)) == ("parent",)
    [parent] = await store.runs(["parent"])
    assert (parent.unread, parent.wake_at_ms) == (1, delayed.wake_at_ms)
    assert await claim(store) == []


async def test_a_child_that_is_retried_and_ends_again_is_told_again(store: Store) -> None:
    """Its second end is news: the message has another id."""
    _, child = await family(store)
    failed = await committed(store, failure(store, child))
    [first] = await outcomes(store)
    await committed(store, await retry(store, failed))
    [again] = await claim(store, "w-2")
    assert await _told(store, completion(store, again)) == ("parent",)
    messages = await outcomes(store)
    assert [message.status for message in messages] == [Status.FAILED, Status.COMPLETED]
    assert messages[0] == first


def _large_completion(store: Store, run: Run) -> Change:
    value = Value(blob=A_BLOB.digest, size=len(A_BLOB.data))
    return transitions.decide(
        run, transitions.RunReturned(value), recorded=transitions.Recorded(blobs=(A_BLOB,)), now_ms=store.now_ms()
    )


async def test_a_large_outcome_is_copied_to_whoever_is_told(store: Store, clock: FakeClock) -> None:
    """The child may be pruned before its parent looks: the message must not point into the void."""
    await held(store, "parent", key=None)
    await held(store, "bystander", key=None)
    child = await held(store, watcher=WATCHER, retention_ms=0)
    assert await _told(store, _large_completion(store, child)) == ("parent",)
    clock.advance(1)
    assert await store.prune(10) == 1
    assert await store.blob("run-1", A_BLOB.digest) is None
    assert await store.blob("parent", A_BLOB.digest) == A_BLOB.data
    assert await store.blob("bystander", A_BLOB.digest) is None


async def test_a_large_outcome_is_copied_to_whoever_asks_later(store: Store) -> None:
    await held(store, "parent", key=None)
    await committed(store, _large_completion(store, await held(store)))
    assert await _told(store, watch("run-1", WATCHER)) == ("parent",)
    assert await store.blob("parent", A_BLOB.digest) == A_BLOB.data


async def test_a_watcher_that_asks_again_in_a_later_life_is_told_again(store: Store) -> None:
    """What an earlier life of the parent has read without a use for it, the present one may wait for."""
    parent, child = await family(store)
    await offer(store, completion(store, child))
    [first] = await outcomes(store)
    parent = await committed(store, progress(store, parent, read=(first.id,)))
    await offer(store, watch(child.id, WATCHER))
    assert await outcomes(store) == []
    later = replace(WATCHER, epoch=parent.epoch + 1)
    await offer(store, watch(child.id, later))
    await offer(store, watch(child.id, later))  # a repetition after a lost reply
    [again] = await outcomes(store)
    assert (again.step, again.status, again.output) == (first.step, first.status, first.output)
    assert again.id != first.id
