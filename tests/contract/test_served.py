"""Which workflows are executed: those of the workers whose lease is alive."""

from __future__ import annotations

from holdfast.ports.store import Serves, Store
from tests.builders import FakeClock
from tests.contract.conftest import Backend

CHECKOUT = Serves("default", ("shop.checkout", "shop.refund"))


async def test_nobody_serves_anything_at_first(store: Store) -> None:
    assert await store.served("default") == frozenset()


async def test_what_live_workers_serve_is_served(backend: Backend) -> None:
    store, other = await backend.another(), await backend.another()
    await store.join("w-1", 1_000, CHECKOUT)
    await other.join("w-2", 1_000, Serves("default", ("shop.refund", 'odd "name", é')))
    await other.join("w-3", 1_000, Serves("default", ()))
    await other.join("w-4", 1_000)  # it only starts runs
    for each in (store, other):
        assert await each.served("default") == {"shop.checkout", "shop.refund", 'odd "name", é'}


async def test_each_namespace_has_its_own(store: Store) -> None:
    await store.join("w-1", 1_000, CHECKOUT)
    await store.join("w-2", 1_000, Serves("tenant", ("shop.checkout",)))
    assert await store.served("default") == {"shop.checkout", "shop.refund"}
    assert await store.served("tenant") == {"shop.checkout"}
    assert await store.served("") == frozenset()


async def test_a_worker_whose_lease_has_expired_serves_nothing(store: Store, clock: FakeClock) -> None:
    await store.join("w-1", 1_000, CHECKOUT)
    clock.advance(999)
    assert await store.served("default") == {"shop.checkout", "shop.refund"}
    clock.advance(1)
    assert await store.served("default") == frozenset()


async def test_a_worker_that_renews_goes_on_serving(store: Store, clock: FakeClock) -> None:
    await store.join("w-1", 1_000, CHECKOUT)
    clock.advance(900)
    assert await store.renew("w-1", 1_000)
    clock.advance(900)
    assert await store.served("default") == {"shop.checkout", "shop.refund"}


async def test_a_worker_that_left_or_was_rescued_serves_nothing(store: Store, clock: FakeClock) -> None:
    await store.join("w-1", 1_000, CHECKOUT)
    await store.join("w-2", 1_000, Serves("default", ("shop.ship",)))
    await store.leave("w-1")
    assert await store.served("default") == {"shop.ship"}
    clock.advance(1_000)
    await store.rescue(10)
    assert await store.served("default") == frozenset()
    await store.join("w-3", 1_000, Serves("default", ("shop.ship",)))
    assert await store.served("default") == {"shop.ship"}
