"""A run that continues as new is the same run: its journal and blobs begin again, all else goes on (K19)."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.kernel import attributes, transitions
from holdfast.kernel.changes import Committed, HookOpen, Shown
from holdfast.kernel.journal import Continued, Received
from holdfast.kernel.runs import Status
from holdfast.ports.store import Store
from tests.builders import FakeClock, a_value, performed
from tests.contract.helpers import (
    A_BEAT,
    A_BLOB,
    ANOTHER_BLOB,
    HOOK,
    WATCHER,
    WORKFLOW,
    a_signal,
    admission,
    beat,
    claim,
    committed,
    completion,
    everything,
    held,
    history,
    let_go,
    offer,
    opening,
    outcomes,
    progress,
    refused,
    replaces_journal,
    signalled,
    unread,
)


async def test_the_journal_begins_with_the_new_input_and_its_length_goes_on(store: Store) -> None:
    run = await held(store)
    run = await committed(store, progress(store, run, performed("a#1"), performed("b#1")))
    assert run.length == 3
    run = await committed(store, replaces_journal(store, run, {"round": 2}))
    assert run.length == 4
    found = await history(store)
    assert [type(entry) for entry in found.journal] == [Continued]
    assert found.run == run
    assert found.run.input == a_value({"round": 2})
    assert (found.run.status, found.run.owner, found.run.fence) == (Status.RUNNING, "w-1", run.fence)
    run = await committed(store, progress(store, run, performed("g1/a#1")))
    assert run.length == 5
    assert [entry.what for entry in (await history(store)).journal] == ["continued", "performed"]


async def test_again_and_again_the_journal_stays_short(store: Store) -> None:
    run = await held(store)
    for number in range(20):
        run = await committed(store, progress(store, run, performed(f"g{number}/a#1")))
        run = await committed(store, replaces_journal(store, run, number))
    found = await history(store)
    assert (len(found.journal), found.run.length) == (1, 41)
    assert found.run.input == a_value(19)


async def test_the_input_is_the_new_one_wherever_it_is_read(store: Store) -> None:
    run = await committed(store, replaces_journal(store, await held(store), "second"))
    assert await store.run("default", "run-1") == run
    assert await store.runs(["run-1"]) == [run]
    assert await store.run_of_key("default", WORKFLOW, "order:1") == run
    assert await refused(store, admission(store, "run-2")) == run
    assert run.input == a_value("second")
    assert (await committed(store, completion(store, run))).input == a_value("second")


async def test_the_blobs_of_the_former_generation_go_and_the_new_ones_stay(store: Store) -> None:
    run = await held(store, blobs=(A_BLOB,))
    await held(store, "run-2", key="2", blobs=(A_BLOB,))
    await committed(store, replaces_journal(store, run, recorded=transitions.Recorded(blobs=(ANOTHER_BLOB,))))
    assert await store.blob("run-1", A_BLOB.digest) is None
    assert await store.blob("run-1", ANOTHER_BLOB.digest) == ANOTHER_BLOB.data
    assert await store.blob("run-2", A_BLOB.digest) == A_BLOB.data


async def test_a_blob_that_both_generations_have_stays(store: Store) -> None:
    run = await held(store, blobs=(A_BLOB,))
    await committed(store, replaces_journal(store, run, recorded=transitions.Recorded(blobs=(A_BLOB,))))
    assert await store.blob("run-1", A_BLOB.digest) == A_BLOB.data


async def test_the_inbox_is_kept_and_remembers(store: Store) -> None:
    run = await held(store)
    for number in (1, 2, 3):
        await signalled(store, "run-1", number)
    run = await committed(store, replaces_journal(store, run, recorded=transitions.Recorded(read=(a_signal(1).id,))))
    assert await unread(store) == (a_signal(2), a_signal(3))
    [row] = await store.runs(["run-1"])
    assert row.unread == 2
    assert (await signalled(store, "run-1", 1)).unread == 2  # received, in the generation before
    assert await unread(store) == (a_signal(2), a_signal(3))


async def test_what_was_received_and_not_heard_goes_along(store: Store) -> None:
    run = await held(store)
    assert run.input is not None
    first = Continued(store.now_ms(), a_value("new"), 1, run.input)
    unheard = Received(store.now_ms(), HOOK, "signal/1", a_value(7))
    change = transitions.decide(run, transitions.ContinuedAsNew(first, (unheard,)), now_ms=store.now_ms())
    run = await committed(store, change)
    assert (await history(store)).journal == (first, unheard)
    assert run.length == 3


async def test_key_watchers_hooks_and_beats_are_kept(store: Store) -> None:
    await held(store, "parent", key=None)
    run = await held(store, watcher=WATCHER)
    await offer(store, beat(run))
    await committed(store, opening(run, HookOpen(HOOK, "token")))
    run = await committed(store, replaces_journal(store, run))
    assert (await history(store)).beats == (A_BEAT,)
    assert await store.hook("run-1", HOOK) == HookOpen(HOOK, "token")
    known = await store.hook_of_token("default", "token")
    assert known is not None
    assert known.run.id == "run-1"
    assert run.holds_key
    await committed(store, completion(store, run))
    assert [message.from_run for message in await outcomes(store)] == ["run-1"]


async def test_attributes_stay_and_markers_begin_anew(store: Store) -> None:
    run = await held(store, attributes=attributes.encode({"customer": "c-1"}))
    shown = Shown(attributes.encode({"customer": "c-2"}), b'["pending"]')
    recorded = transitions.Recorded((performed(),), shown=shown)
    run = await committed(
        store, transitions.decide(run, transitions.Progressed(), recorded=recorded, now_ms=store.now_ms())
    )
    assert run.markers == b'["pending"]'
    run = await committed(store, replaces_journal(store, run))
    [row] = await store.runs(["run-1"])
    assert (row.attributes, row.markers) == (shown.attributes, b"")
    assert (await everything(store))[0].found == ["run-1"]


async def test_a_repetition_is_harmless(store: Store, clock: FakeClock) -> None:
    run = await held(store, blobs=(A_BLOB,))
    change = replaces_journal(store, run, recorded=transitions.Recorded(blobs=(ANOTHER_BLOB,)))
    first = await committed(store, change)
    before = await everything(store)
    clock.advance(5)
    assert await committed(store, change) == first
    assert await everything(store) == before
    await committed(store, progress(store, first, performed()))
    before = await everything(store)
    answer = await offer(store, change)  # long after: it undoes nothing
    assert not isinstance(answer, Committed)
    assert await everything(store) == before


async def test_a_run_that_continued_may_wait_and_be_claimed(store: Store) -> None:
    run = await committed(store, replaces_journal(store, await held(store)))
    await committed(store, let_go(store, run, wake_at_ms=store.now_ms()))
    [again] = await claim(store, "w-2")
    assert again == replace(again, length=run.length, input=run.input)
    assert (await history(store)).run.length - len((await history(store)).journal) == 1
