"""A change offered again after a lost reply returns what it returned first, and writes nothing more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from holdfast.kernel import attributes, transitions
from holdfast.kernel.changes import Change, Committed, HookOpen, Shown
from holdfast.kernel.runs import Run
from holdfast.ports.store import Store
from tests.builders import FakeClock, performed
from tests.contract.helpers import (
    A_BLOB,
    ANOTHER_BLOB,
    HOOK,
    WATCHER,
    admission,
    admitted,
    beat,
    blockage,
    claim,
    committed,
    completion,
    ended,
    everything,
    failed,
    failure,
    family,
    held,
    history,
    let_go,
    offer,
    opening,
    progress,
    replaces_journal,
    retry,
    sending,
    stop,
    takeover,
    token_of,
    told,
    watch,
)

Prepare = Callable[[Store], Awaitable[Change]]
RUNS = ("run-1", "run-2", "parent")


async def _admit(store: Store) -> Change:
    return admission(store, blobs=(A_BLOB,))


async def _admit_for_a_worker_at_hand(store: Store) -> Change:
    return admission(store, owner="w-1")


async def _admit_without_key(store: Store) -> Change:
    return admission(store, key=None)


async def _admit_watched(store: Store) -> Change:
    await held(store, "parent", key=None)
    return admission(store, watcher=WATCHER)


async def _take_the_key_over(store: Store) -> Change:
    return takeover(store, await ended(store))


async def _progress(store: Store) -> Change:
    return progress(store, await held(store), performed(), blobs=(A_BLOB,))


async def _progress_that_reads_a_message(store: Store) -> Change:
    parent, message = await told(store)
    return progress(store, parent, performed(), read=(message.id,))


async def _let_go(store: Store) -> Change:
    return let_go(store, await held(store), wake_at_ms=store.now_ms() + 60_000)


async def _let_go_with_an_unread_message(store: Store) -> Change:
    parent, _ = await told(store)
    return let_go(store, parent, wake_at_ms=None)


async def _complete(store: Store) -> Change:
    _, child = await family(store)
    return completion(store, child, recorded=transitions.Recorded((performed(),), (ANOTHER_BLOB,)))


async def _fail(store: Store) -> Change:
    _, child = await family(store)
    return failure(store, child)


async def _block(store: Store) -> Change:
    return blockage(store, await held(store))


async def _retry(store: Store) -> Change:
    return await retry(store, await failed(store))


async def _beat(store: Store) -> Change:
    return beat(await held(store))


async def _watch(store: Store) -> Change:
    await held(store, "parent", key=None)
    await admitted(store)
    return watch("run-1", WATCHER)


async def _watch_what_has_ended(store: Store) -> Change:
    await held(store, "parent", key=None)
    await ended(store)
    return watch("run-1", WATCHER)


async def _signal(store: Store) -> Change:
    await held(store)
    return sending()


async def _signal_a_waiting_run(store: Store) -> Change:
    await committed(store, let_go(store, await held(store)))
    return sending()


async def _open_a_token(store: Store) -> Change:
    return opening(await held(store), HookOpen(HOOK, token_of("run-1")))


async def _continue_as_new(store: Store) -> Change:
    return replaces_journal(store, await held(store), recorded=transitions.Recorded(blobs=(A_BLOB,)))


async def _show(store: Store) -> Change:
    shown = Shown(attributes.encode({"customer": "c-1"}), b"[]")
    recorded = transitions.Recorded((performed(),), shown=shown)
    return transitions.decide(await held(store), transitions.Progressed(), recorded=recorded, now_ms=store.now_ms())


async def _stop(store: Store) -> Change:
    _, child = await family(store)
    return await stop(store, child)


KINDS: list[Prepare] = [
    _admit,
    _admit_for_a_worker_at_hand,
    _admit_without_key,
    _admit_watched,
    _take_the_key_over,
    _progress,
    _progress_that_reads_a_message,
    _let_go,
    _let_go_with_an_unread_message,
    _complete,
    _fail,
    _block,
    _retry,
    _beat,
    _watch,
    _watch_what_has_ended,
    _signal,
    _signal_a_waiting_run,
    _open_a_token,
    _continue_as_new,
    _show,
    _stop,
]


def _answered(answer: Committed) -> Run | None:
    # How many messages are unread is counted by the store alone; an owner's answer need not repeat it.
    return None if answer.run is None else replace(answer.run, unread=0)


def _name(prepare: Prepare) -> str:
    return prepare.__name__.strip("_")


@pytest.mark.parametrize("prepare", KINDS, ids=_name)
async def test_a_change_offered_twice_is_applied_once(store: Store, clock: FakeClock, prepare: Prepare) -> None:
    change = await prepare(store)
    first = await offer(store, change)
    assert isinstance(first, Committed), first
    after_first = await everything(store, *RUNS)
    clock.advance(5)  # a second application would show in its instants
    second = await offer(store, change)
    assert isinstance(second, Committed), second
    assert _answered(second) == _answered(first)
    assert await everything(store, *RUNS) == after_first


@pytest.mark.parametrize("prepare", KINDS, ids=_name)
async def test_a_change_offered_twice_in_one_commit_is_applied_once(store: Store, prepare: Prepare) -> None:
    change = await prepare(store)
    before = await everything(store, *RUNS)
    first, second = await store.commit([change, change])
    assert isinstance(first, Committed), first
    assert isinstance(second, Committed), second
    assert _answered(second) == _answered(first)
    once = await everything(store, *RUNS)
    third = await offer(store, change)
    assert isinstance(third, Committed), third
    assert await everything(store, *RUNS) == once
    assert once != before or change.watcher is not None


@pytest.mark.parametrize("prepare", [_admit, _admit_for_a_worker_at_hand, _progress, _let_go], ids=_name)
async def test_a_repetition_after_others_went_on_undoes_nothing(
    store: Store, clock: FakeClock, prepare: Prepare
) -> None:
    """The reply was lost for so long that the run is with another worker, and further on."""
    change = await prepare(store)
    await committed(store, change)
    await store.leave("w-1")
    clock.advance(60_000)
    [taken] = await claim(store, "w-2")
    await committed(store, progress(store, taken, performed("ship#1")))
    before = await everything(store)
    await offer(store, change)
    assert await everything(store) == before


async def test_a_repeated_admission_of_a_run_that_has_ended_tells_its_end(store: Store) -> None:
    """The caller of a lost start learns that it was admitted, whatever became of it since."""
    change = admission(store, owner="w-1")
    run = await committed(store, change)
    done = await committed(store, completion(store, run))
    assert await committed(store, change) == done


async def test_a_repeated_takeover_takes_nothing_from_the_next_holder(store: Store) -> None:
    second = takeover(store, await ended(store), owner="w-1")
    done_too = await committed(store, completion(store, await committed(store, second)))
    third = await committed(store, takeover(store, done_too, "run-3"))
    again = await offer(store, second)
    assert isinstance(again, Committed)
    assert await store.run_of_key("default", "shop.checkout", "order:1") == third


async def test_heartbeats_keep_the_newest_details(store: Store) -> None:
    run = await held(store)
    for count in (1, 2, 3):
        await offer(store, beat(run, type(beat(run).beats[0])("charge#1", b"%d" % count), count=count))
    assert [(b.step, b.details) for b in (await history(store)).beats] == [("charge#1", b"3")]
