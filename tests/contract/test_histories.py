"""What was recorded is read back: whole, in order, each run's own."""

from __future__ import annotations

import asyncio

from holdfast.kernel.changes import Beat, Blob
from holdfast.kernel.journal import Started
from holdfast.ports.store import Store
from tests.builders import a_failure, attempted, elapsed, gave_up, intended, joined, performed
from tests.contract.conftest import Backend
from tests.contract.helpers import (
    A_BLOB,
    ANOTHER_BLOB,
    admission,
    admitted,
    beat,
    committed,
    completion,
    held,
    history,
    offer,
    progress,
)


async def test_entries_are_read_in_the_order_of_their_commits(store: Store) -> None:
    run = await held(store)
    written = list((await history(store)).journal)
    for number in range(30):
        entries = tuple(performed(f"step-{number}-{part}#1", part) for part in range(number % 4))
        run = await committed(store, progress(store, run, *entries))
        written += entries
        assert run.length == len(written)
    assert list((await history(store)).journal) == written


async def test_every_kind_of_entry_comes_back_as_it_was(store: Store) -> None:
    run = await held(store)
    entries = (
        intended(),
        attempted(),
        performed(value={"ü": ["🎈", None, 1.5]}),
        gave_up(),
        elapsed(),
        joined(),
    )
    run = await committed(store, progress(store, run, *entries))
    await committed(store, completion(store, run))
    journal = (await history(store)).journal
    assert isinstance(journal[0], Started)
    assert journal[1:-1] == entries


async def test_blobs_belong_to_their_run(store: Store) -> None:
    one = await held(store, "run-1", key="1")
    await held(store, "run-2", key="2", blobs=(ANOTHER_BLOB,))
    await committed(store, progress(store, one, performed(), blobs=(A_BLOB,)))
    assert await store.blob("run-1", A_BLOB.digest) == A_BLOB.data
    assert await store.blob("run-2", A_BLOB.digest) is None
    assert await store.blob("run-2", ANOTHER_BLOB.digest) == ANOTHER_BLOB.data
    assert await store.blob("nobody", A_BLOB.digest) is None


async def test_a_blob_written_twice_is_kept_once(store: Store) -> None:
    run = await held(store, blobs=(A_BLOB,))
    await committed(store, progress(store, run, performed(), blobs=(A_BLOB,)))
    assert await store.blob("run-1", A_BLOB.digest) == A_BLOB.data


async def test_a_large_blob_comes_back_whole(store: Store) -> None:
    data = bytes(range(256)) * 64 * 1024  # 16 MiB
    await held(store, blobs=(Blob("large", data),))
    assert await store.blob("run-1", "large") == data


async def test_the_last_heartbeat_of_each_step_is_kept(store: Store) -> None:
    run = await held(store)
    await offer(store, beat(run, Beat("a#1", b"1"), count=1))
    await offer(store, beat(run, Beat("b#1", b"2"), count=2))
    await offer(store, beat(run, Beat("a#1", b"3"), count=3))
    beats = (await history(store)).beats
    assert {found.step: found.details for found in beats} == {"a#1": b"3", "b#1": b"2"}


async def test_unknown_runs_are_left_out(store: Store) -> None:
    await admitted(store)
    assert [run.id for run in await store.runs(["nobody", "run-1", "nobody-2"])] == ["run-1"]
    assert [found.run.id for found in await store.histories(["nobody", "run-1"])] == ["run-1"]
    assert await store.runs([]) == []
    assert await store.histories([]) == []
    assert await store.run("default", "nobody") is None
    assert await store.run_of_key("default", "shop.checkout", "nobody") is None


async def test_many_runs_are_read_at_once(store: Store) -> None:
    run_ids = [f"run-{n}" for n in range(1_000)]
    await store.commit([admission(store, run_id, key=None) for run_id in run_ids])
    assert {run.id for run in await store.runs(run_ids)} == set(run_ids)


async def test_a_history_is_of_one_moment(backend: Backend) -> None:
    """Row and journal belong together even while the run's owner writes: a torn one would be replayed wrongly."""
    writer, reader = await backend.another(), await backend.another()
    run = await held(writer)
    done = asyncio.Event()

    async def write() -> None:
        nonlocal run
        for number in range(150):
            run = await committed(writer, progress(writer, run, performed(f"s#{number}"), performed(f"t#{number}")))
            await asyncio.sleep(0)
        done.set()

    async def read() -> int:
        seen = 0
        while not done.is_set():
            found = await history(reader)
            assert found.run.length == len(found.journal)
            assert found.run.length % 2 == 1
            seen += 1
            await asyncio.sleep(0)
        return seen

    _, seen = await asyncio.gather(write(), read())
    assert seen


async def test_failures_survive_with_their_arguments(store: Store) -> None:
    run = await held(store)
    entry = gave_up()
    await committed(store, progress(store, run, entry))
    [_, found] = (await history(store)).journal
    assert found == entry
    assert getattr(found, "error", None) == a_failure()
