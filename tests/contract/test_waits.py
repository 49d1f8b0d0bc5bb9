"""What a run waits for is shown since it was let go in order, and forgotten when a worker may be doing something."""

from __future__ import annotations

from holdfast.kernel.runs import Run, Status
from holdfast.ports.store import Store
from tests.builders import FakeClock, performed
from tests.contract.helpers import (
    blockage,
    claim,
    committed,
    completion,
    held,
    let_go,
    progress,
    retry,
    signalled,
    stop,
)

WAITS = b'[{"kind":"hook","name":"approval"}]'


async def _row(store: Store) -> Run:
    [run] = await store.runs(["run-1"])
    return run


async def _waiting(store: Store) -> Run:
    return await committed(store, let_go(store, await held(store), wake_at_ms=store.now_ms() + 1_000, waits=WAITS))


async def test_a_run_that_was_admitted_or_goes_on_shows_nothing(store: Store) -> None:
    run = await held(store)
    assert run.waits is None
    assert (await committed(store, progress(store, run, performed()))).waits is None


async def test_a_run_let_go_shows_what_it_waits_for(store: Store) -> None:
    run = await _waiting(store)
    assert (run.status, run.waits) == (Status.WAITING, WAITS)
    assert await _row(store) == run


async def test_a_message_changes_nothing_about_it(store: Store) -> None:
    await _waiting(store)
    assert (await signalled(store)).waits == WAITS


async def test_whoever_claims_it_learns_that_nothing_was_under_way(store: Store, clock: FakeClock) -> None:
    await _waiting(store)
    clock.advance(1_000)
    [run] = await claim(store, "w-2")
    assert (run.status, run.waits) == (Status.RUNNING, WAITS)
    run = await committed(store, progress(store, run, performed()))
    assert (await _row(store)).waits == WAITS
    again = await committed(store, let_go(store, run, waits=b"[]"))
    assert (again.waits, (await _row(store)).waits) == (b"[]", b"[]")


async def test_whoever_claims_it_after_a_crash_learns_that_something_may_have_been(
    store: Store, clock: FakeClock
) -> None:
    await _waiting(store)
    clock.advance(1_000)
    await store.join("w-2", 500)
    assert len(await claim(store, "w-2")) == 1
    clock.advance(500)
    assert await store.rescue(10) == ["run-1"]
    assert (await _row(store)).waits is None
    [run] = await claim(store, "w-3")
    assert run.waits is None


async def test_whoever_leaves_leaves_no_waits_behind(store: Store, clock: FakeClock) -> None:
    await _waiting(store)
    clock.advance(1_000)
    await store.join("w-2", 60_000)
    await claim(store, "w-2")
    await store.leave("w-2")
    assert (await _row(store)).waits is None


async def test_ends_and_blockages_show_nothing(store: Store, clock: FakeClock) -> None:
    await _waiting(store)
    clock.advance(1_000)
    [run] = await claim(store, "w-2")
    blocked = await committed(store, blockage(store, run))
    assert (blocked.waits, (await _row(store)).waits) == (None, None)
    await committed(store, await retry(store, blocked))
    assert (await _row(store)).waits is None
    [run] = await claim(store, "w-2")
    await committed(store, let_go(store, run, wake_at_ms=store.now_ms(), waits=WAITS))
    [run] = await claim(store, "w-2")
    await committed(store, completion(store, run))
    assert (await _row(store)).waits is None


async def test_a_waiting_run_that_is_stopped_shows_nothing(store: Store) -> None:
    run = await _waiting(store)
    await committed(store, await stop(store, run))
    assert (await _row(store)).waits is None
