"""A throttled start is late, and never refused: no more may be claimed than the rate says, whatever is started."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.kernel import rates, waits
from holdfast.kernel.changes import Change
from holdfast.kernel.rates import Rate, Taking
from holdfast.kernel.runs import Run, Status
from holdfast.ports.store import Store
from tests.builders import FakeClock
from tests.contract.conftest import Backend
from tests.contract.helpers import admission, claim, committed, offer, refused

TEN = Rate(10, per="1s")


def throttled(
    store: Store, run_id: str, rate: Rate = TEN, *, cost: int = 1, name: str = "t-1", **fields: object
) -> Change:
    """The admission of a run without a key, unless one is given, under a rate."""
    return admission(store, run_id, **{"key": None, **fields}, takes=Taking(name, rate, cost))


async def start(store: Store, run_id: str, rate: Rate = TEN, **fields: object) -> Run:
    return await committed(store, throttled(store, run_id, rate, **fields))  # pyright: ignore[reportArgumentType]


async def late_by(store: Store, run: Run) -> int:
    """How long after now the run may be claimed, in milliseconds, as the store has it."""
    [kept] = await store.runs([run.id])
    assert kept.wake_at_ms == run.wake_at_ms
    assert run.wake_at_ms is not None
    return run.wake_at_ms - store.now_ms()


async def test_each_goes_one_interval_after_the_one_before(store: Store, clock: FakeClock) -> None:
    delays = [await late_by(store, await start(store, f"run-{n}")) for n in range(4)]
    assert delays == [0, 100, 200, 300]
    assert [run.id for run in await claim(store)] == ["run-0"]
    clock.advance(100)
    assert [run.id for run in await claim(store)] == ["run-1"]
    clock.advance(1000)
    assert [run.id for run in await claim(store)] == ["run-2", "run-3"]
    assert await late_by(store, await start(store, "run-4")) == 0


async def test_a_burst_goes_at_once(store: Store) -> None:
    rate = Rate(10, per="1s", burst=3)
    assert [await late_by(store, await start(store, f"run-{n}", rate)) for n in range(5)] == [0, 0, 0, 100, 200]


async def test_many_in_one_commit(store: Store) -> None:
    await store.commit([throttled(store, f"run-{n}") for n in range(20)])
    runs = await store.runs([f"run-{n}" for n in range(20)])
    assert sorted((run.wake_at_ms or 0) - store.now_ms() for run in runs) == [n * 100 for n in range(20)]


async def test_a_run_costs_as_much_as_it_says(store: Store) -> None:
    assert await late_by(store, await start(store, "run-0", cost=7)) == 0
    assert await late_by(store, await start(store, "run-1")) == 700


async def test_rates_of_other_names_and_namespaces_are_others(store: Store) -> None:
    await start(store, "run-0")
    assert await late_by(store, await start(store, "run-1", name="t-2")) == 0
    assert await late_by(store, await start(store, "run-2", namespace="other")) == 0
    assert await late_by(store, await start(store, "run-3")) == 100


async def test_a_start_that_is_offered_again_takes_nothing(store: Store) -> None:
    change = throttled(store, "run-0")
    first = await committed(store, change)
    assert await committed(store, change) == first
    assert await late_by(store, await start(store, "run-1")) == 100


async def test_a_start_that_is_refused_takes_nothing(store: Store) -> None:
    await start(store, "run-0", key="order-1")
    assert await refused(store, throttled(store, "run-1", key="order-1")) is not None
    assert await late_by(store, await start(store, "run-2")) == 100


async def test_a_start_that_finds_its_run_in_the_same_commit_takes_nothing(store: Store) -> None:
    changes = [throttled(store, f"run-{n}", key="order-1") for n in range(5)]
    await store.commit(changes)
    assert await late_by(store, await start(store, "run-9")) == 100


async def test_a_worker_does_not_get_at_once_what_has_to_wait(store: Store) -> None:
    first = await start(store, "run-0", owner="w-1")
    second = await start(store, "run-1", owner="w-1")
    assert (first.status, first.owner) == (Status.RUNNING, "w-1")
    assert (second.status, second.owner, second.epoch, second.nonce) == (Status.PENDING, None, 0, "")
    assert second.started_at_ms is None
    assert await late_by(store, second) == 100
    assert await store.held("w-1") == ["run-0"]


async def test_a_delay_is_added(store: Store) -> None:
    await start(store, "run-0", delay_ms=5000)
    assert await late_by(store, await start(store, "run-1", delay_ms=5000)) == 5100
    assert await late_by(store, await start(store, "run-2")) == 200


async def test_it_says_what_it_waits_for(store: Store) -> None:
    await start(store, "run-0")
    run = await start(store, "run-1")
    [kept] = await store.runs(["run-1"])
    for each in (run, kept):
        [wait] = waits.waits_of(each, served={each.workflow}, now_ms=store.now_ms())
        assert (wait.kind, wait.until_ms) == ("throttle", each.wake_at_ms)


async def test_a_rate_that_has_come_due_is_forgotten(store: Store, clock: FakeClock) -> None:
    await start(store, "run-0")
    await store.prune(100)
    assert await late_by(store, await start(store, "run-1")) == 100
    clock.advance(10_000)
    await store.prune(100)
    assert await late_by(store, await start(store, "run-2")) == 0


@pytest.mark.parametrize("burst", [1, 20])
async def test_it_is_exact_however_many_processes_start(backend: Backend, burst: int) -> None:
    rate = Rate(100, per="1s", burst=burst)
    stores = [await backend.another() for _ in range(4)]
    await asyncio.gather(
        *(offer(stores[n % 4], throttled(stores[n % 4], f"run-{n}", rate, key=f"k-{n}")) for n in range(100))
    )
    runs = await stores[0].runs([f"run-{n}" for n in range(100)])
    now_ms, due_at_us, expected = stores[0].now_ms(), rates.Micros(0), list[int]()
    for _ in range(100):
        due_at_us, goes_at_ms = rates.reserve(rate, due_at_us, now_ms=now_ms)
        expected.append(goes_at_ms)
    assert sorted(run.wake_at_ms or 0 for run in runs) == expected


async def test_a_step_of_the_wall_clock_moves_nothing(backend: Backend) -> None:
    first, second = [await backend.another() for _ in range(2)]
    await start(first, "run-0")
    for n, step_ms in enumerate((3_600_000, -7_200_000, 3_600_000), 1):
        backend.clock.wall += step_ms
        assert await late_by(first, await start([first, second][n % 2], f"run-{n}")) == n * 100
