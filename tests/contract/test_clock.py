"""The store's clock: it never runs backwards, and wall-clock steps of the machine do not move it."""

from __future__ import annotations

import pytest

from holdfast.ports.store import Store
from tests.builders import DAY_MS, NOW_MS, FakeClock
from tests.contract.conftest import Backend, SqliteBackend
from tests.contract.helpers import admitted, claim, committed, completion, held

STEPS = [-400 * DAY_MS, -3_600_000, -1, 1, 3_600_000, 400 * DAY_MS]


async def test_it_starts_at_the_wall_clock_and_follows_the_steady_one(store: Store, clock: FakeClock) -> None:
    assert store.now_ms() == NOW_MS
    clock.advance(1_234)
    assert store.now_ms() == NOW_MS + 1_234


@pytest.mark.parametrize("step_ms", STEPS)
async def test_a_step_of_the_wall_clock_does_not_move_it(store: Store, clock: FakeClock, step_ms: int) -> None:
    before = store.now_ms()
    clock.wall += step_ms
    assert store.now_ms() == before
    clock.advance(50)
    assert store.now_ms() == before + 50


@pytest.mark.parametrize("step_ms", STEPS)
async def test_a_step_of_the_wall_clock_changes_no_wait(store: Store, clock: FakeClock, step_ms: int) -> None:
    """E10: timers, leases and retention all run by the store's clock."""
    await store.join("w-1", 1_000)
    await held(store, "leased", key="leased")
    await admitted(store, "delayed", key="delayed", delay_ms=1_000)
    await committed(store, completion(store, await held(store, "kept", key="kept", owner="w-2", retention_ms=1_000)))
    await store.join("w-2", 1_000_000)
    clock.wall += step_ms
    clock.advance(999)
    assert (await claim(store), await store.rescue(10), await store.prune(10)) == ([], [], 0)
    clock.advance(1)
    assert [run.id for run in await claim(store, "w-2")] == ["delayed"]
    assert (await store.rescue(10), await store.prune(10)) == (["leased"], 1)


@pytest.mark.parametrize("step_ms", STEPS)
async def test_stores_opened_before_and_after_a_step_agree(backend: Backend, step_ms: int) -> None:
    first = await backend.another()
    backend.clock.advance(500)
    backend.clock.wall += step_ms
    second = await backend.another()
    assert second.now_ms() == first.now_ms()
    backend.clock.advance(500)
    assert second.now_ms() == first.now_ms() == NOW_MS + 1_000


async def test_a_restart_of_the_machine_sets_it_by_the_wall_clock(sqlite: SqliteBackend) -> None:
    """While the machine was off nothing counted: the wall clock is all there is."""
    store = await sqlite.another()
    await admitted(store, delay_ms=60_000)
    await store.close()
    sqlite.clock.boot, sqlite.clock.steady = "boot-2", 10.0
    sqlite.clock.wall += 45_000
    again = await sqlite.another()
    assert again.now_ms() == NOW_MS + 45_000
    assert await claim(again) == []
    sqlite.clock.advance(15_000)
    assert len(await claim(again)) == 1


@pytest.mark.parametrize("behind_ms", [1, 3_600_000, 20 * 365 * DAY_MS])
async def test_a_restart_with_the_wall_clock_behind_does_not_turn_it_back(
    sqlite: SqliteBackend, behind_ms: int
) -> None:
    """A dead battery, a guest resumed from an old image: recorded instants must not lie in the future."""
    store = await sqlite.another()
    sqlite.clock.advance(5_000)
    run = await admitted(store)
    await store.close()
    sqlite.clock.boot, sqlite.clock.steady = "boot-2", 10.0
    sqlite.clock.wall = NOW_MS - behind_ms
    again = await sqlite.another()
    assert again.now_ms() >= run.created_at_ms
    assert [found.id for found in await claim(again)] == ["run-1"]


async def test_two_stores_on_one_file_agree_after_a_restart(sqlite: SqliteBackend) -> None:
    await sqlite.another()
    sqlite.clock.boot, sqlite.clock.steady = "boot-2", 10.0
    sqlite.clock.wall += 1_000
    second = await sqlite.another()
    sqlite.clock.wall += 77
    third = await sqlite.another()
    assert second.now_ms() == third.now_ms()


async def test_it_counts_whole_milliseconds_and_never_backwards(store: Store, clock: FakeClock) -> None:
    seen = [store.now_ms()]
    for _ in range(200):
        clock.advance(0.3)
        seen.append(store.now_ms())
    assert seen == sorted(seen)
    assert seen[-1] == NOW_MS + 60 or seen[-1] == NOW_MS + 59
    assert all(isinstance(instant, int) for instant in seen)
