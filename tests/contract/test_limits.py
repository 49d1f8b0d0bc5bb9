"""The limiter: all costs of a call or none, exact among processes, in the store's clock, and nothing kept for long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from holdfast.kernel import limits
from holdfast.kernel.limits import Cost, RateCounts
from holdfast.kernel.rates import Exceeded, Granted, Rate
from holdfast.kernel.times import Instant, Millis
from holdfast.ports.store import Store
from holdfast.stores.memory import MemoryStore
from holdfast.stores.redis import RedisStore
from holdfast.stores.sqlite import SqliteStore
from tests.builders import FakeClock
from tests.contract.conftest import Backend, SqliteBackend

NS = "default"
TEN = Rate(10, per="1s")


def own(name: str = "mail", rate: Rate = TEN, cost: int = 1) -> Cost:
    return Cost("own", name, rate, cost)


async def passes(store: Store, *costs: Cost, namespace: str = NS) -> bool:
    return all(isinstance(each, Granted) for each in await store.limiter.spend(namespace, costs))


async def kept(store: Store) -> int:
    """How many counts the store keeps."""
    match store:
        case MemoryStore():
            await store.limiter.spend(NS, [own("another", cost=0)])  # whatever is spent removes what is over
            return len(store.limiter.counts)
        case SqliteStore():
            assert store.limiter._thread is not None
            return await store.limiter._thread.do(lambda db: db.execute("SELECT count(*) FROM counts").fetchall()[0][0])
        case RedisStore():
            pattern = f"{{hf:{store._url.name}:*}}limit:*".encode()
            found = await store._client.every_primary(b"KEYS", pattern)
            return sum(len(keys) for keys in found.values() if isinstance(keys, list))
        case _:
            raise AssertionError(store)


async def test_as_many_pass_as_the_rate_says_and_then_one_for_each_interval(store: Store, clock: FakeClock) -> None:
    assert [await passes(store, own()) for _ in range(12)] == [True] * 10 + [False] * 2
    clock.advance(99)
    assert not await passes(store, own())
    clock.advance(1)
    assert [await passes(store, own()) for _ in range(2)] == [True, False]


async def test_of_calls_at_the_same_time_in_two_processes_exactly_so_many_pass(backend: Backend) -> None:
    stores = [await backend.another(), await backend.another()]
    found = await asyncio.gather(*(passes(stores[n % 2], own()) for n in range(30)))
    assert sum(found) == 10


async def test_a_verdict_says_what_is_left_and_how_long_to_wait(store: Store) -> None:
    [first] = await store.limiter.spend(NS, [own(cost=9)])
    assert (first.remaining, first.reset_ms) == (1, 900)
    [second] = await store.limiter.spend(NS, [own(cost=3)])
    assert second == Exceeded(Millis(200), 1, Millis(900))


async def test_all_costs_of_a_call_are_spent_or_none_is(store: Store, clock: FakeClock) -> None:
    wide, narrow = own("wide"), own("narrow", Rate(2, per="1s"))
    assert [await passes(store, wide, narrow) for _ in range(5)] == [True, True, False, False, False]
    first, second = await store.limiter.spend(NS, [wide, narrow])
    assert (first.remaining, type(second)) == (8, Exceeded)
    clock.advance(1_000)
    [look] = await store.limiter.spend(NS, [own("wide", cost=0)])
    assert look.remaining == 10


async def test_two_keys_of_one_tenant_cannot_exceed_the_tenant(store: Store) -> None:
    tenant = own("tenant", Rate(5, per="1s"))
    found = [await passes(store, own(key), tenant) for key in ("a", "b") for _ in range(4)]
    assert found == [True] * 4 + [True] + [False] * 3


@pytest.mark.parametrize("name", ["{}", "{a}b", "}{", "a}", "{hf:other:1}", "ü", "a b", "x" * 256])
async def test_whatever_a_name_has_in_it_is_a_name(store: Store, name: str) -> None:
    both = (own(name, Rate(2, per="1s")), own("tenant"))
    assert [await passes(store, *both) for _ in range(3)] == [True, True, False]


async def test_namespaces_and_rates_and_kinds_of_limit_are_counted_apart(store: Store) -> None:
    one = Rate(1, per="1m")
    assert await passes(store, own(rate=one))
    assert not await passes(store, own(rate=one))
    assert await passes(store, own(rate=one), namespace="other")
    assert await passes(store, own(rate=Rate(1, per="2m")))
    assert await passes(store, Cost("api_key", "mail", one))


async def test_a_look_takes_nothing_and_keeps_nothing(store: Store) -> None:
    for _ in range(3):
        [look] = await store.limiter.spend(NS, [own(cost=0)])
        assert (look.remaining, look.reset_ms) == (10, 0)
    assert await kept(store) == 0


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
async def test_the_wall_clock_of_a_process_does_not_matter(backend: Backend, step_ms: int) -> None:
    first = await backend.another()
    assert [await passes(first, own()) for _ in range(10)] == [True] * 10
    backend.clock.wall += step_ms
    second = await backend.another()
    assert not await passes(second, own())
    backend.clock.advance(100)
    assert [await passes(each, own()) for each in (second, first)] == [True, False]


async def test_idle_counts_are_gone_after_two_periods(store: Store, clock: FakeClock) -> None:
    if isinstance(store, RedisStore):
        pytest.skip("the expiry of keys goes by Redis' own clock: see the test below")
    for n in range(50):
        assert await passes(store, own(f"user-{n}"))
    assert await kept(store) == 50
    clock.advance(2_000)
    if isinstance(store, SqliteStore):
        clock.advance(store._pace.limits_sweep_seconds * 1000)
        assert store.limiter._sweeping is not None
        async with asyncio.timeout(20):
            await store.limiter._sweeping
    assert await kept(store) == 0


async def test_redis_is_told_when_a_count_is_over(store: Store) -> None:
    if not isinstance(store, RedisStore):
        pytest.skip("what only Redis does")
    assert await passes(store, own("user", Rate(1, per="10m"), 1))
    assert await passes(store, own("brief", Rate(1, per="1ms"), 1))
    [key] = [store._shards.count_key(NS, own("user", Rate(1, per="10m")).place)]
    left = await store._client._topology.node(key).ask(b"PTTL", key)
    assert isinstance(left, int)
    assert 0 < left <= 600_000
    async with asyncio.timeout(20):
        while await kept(store) > 1:
            await asyncio.sleep(0.002)


@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 400),
            st.lists(
                st.tuples(st.sampled_from("abc"), st.integers(0, 3)), min_size=1, max_size=3, unique_by=lambda c: c[0]
            ),
        ),
        max_size=12,
    ),
    count=st.integers(1, 12),
    burst=st.integers(3, 6),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_store_says_what_the_kernel_says(
    new_loop_store: Callable[[Callable[[Store, FakeClock], Awaitable[None]]], None],
    steps: list[tuple[int, list[tuple[str, int]]]],
    count: int,
    burst: int,
) -> None:
    rate = Rate(count, per="1s", burst=burst)

    async def compare(store: Store, clock: FakeClock) -> None:
        namespace, model = f"n{id(steps)}-{count}-{burst}-{clock.steady}", RateCounts()
        for gap_ms, wanted in steps:
            clock.advance(gap_ms)
            costs = [own(name, rate, cost) for name, cost in wanted]
            assert await store.limiter.spend(namespace, costs) == model.spend(costs, now_ms=store.now_ms())

    new_loop_store(compare)


@pytest.fixture
def new_loop_store(backend: Backend, store: Store) -> Callable[[Callable[[Store, FakeClock], Awaitable[None]]], None]:
    """Hypothesis calls without a loop: what it wants is done by the one of the fixtures."""
    loop = asyncio.get_event_loop_policy().get_event_loop()

    def do(work: Callable[[Store, FakeClock], Awaitable[None]]) -> None:
        async def run() -> None:
            await work(store, backend.clock)

        loop.run_until_complete(run())

    return do


async def test_a_start_of_the_machine_has_counts_of_its_own(sqlite: SqliteBackend) -> None:
    """A file that was never synced may be in any state after a crash of the machine."""
    store = await sqlite.another()
    assert isinstance(store, SqliteStore)
    assert await passes(store, own(rate=Rate(1, per="1h")))
    before = store.limiter.path
    before.write_bytes(b"what a crash has left")
    await store.close()
    sqlite.clock.boot, sqlite.clock.steady = "boot-2", 10.0
    again = await sqlite.another()
    assert isinstance(again, SqliteStore)
    assert await passes(again, own(rate=Rate(1, per="1h")))
    assert not before.exists()


async def test_no_file_is_made_where_nothing_is_limited(sqlite: SqliteBackend) -> None:
    await sqlite.another()
    assert not list(sqlite.path.parent.glob("*-limits-*"))


async def test_a_lock_on_the_database_does_not_hold_up_a_limit(sqlite: SqliteBackend) -> None:
    store = await sqlite.another()
    assert isinstance(store, SqliteStore)
    locked, release = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold(_: object) -> None:
        loop.call_soon_threadsafe(locked.set)
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result()

    holding = asyncio.create_task(store._write(hold))
    await locked.wait()
    assert await passes(store, own())
    release.set()
    await holding


def test_the_place_of_a_count_has_its_rate() -> None:
    assert own(rate=Rate(5, per="1h")).place != own(rate=Rate(5, per="1h", burst=2)).place
    assert own(rate=Rate(5, per="1h")).place == own(rate=Rate(5, per=3600, burst=5)).place
    assert limits.decide([own()], [limits.UNUSED], now_ms=Instant(1)).are_spent
