"""Who works: the live workers of a namespace, where they run, what they serve, and how much they hold."""

from __future__ import annotations

from holdfast.ports.store import Member, Serves, Store
from tests.builders import FakeClock
from tests.contract.conftest import Backend
from tests.contract.helpers import committed, completion, held, let_go

HERE = Serves("default", ("shop.checkout", 'odd "name", é'), host="host-1", pid=4_242, concurrency=200)
THERE = Serves("default", ("shop.refund",), host="host-2", pid=7, concurrency=1)


async def _owners(store: Store, namespace: str = "default") -> list[str]:
    return [member.owner for member in await store.members(namespace)]


async def test_nobody_works_at_first(store: Store) -> None:
    assert await store.members("default") == []


async def test_members_come_in_the_order_in_which_they_joined(backend: Backend) -> None:
    store, other = await backend.another(), await backend.another()
    joined_at_ms = store.now_ms()
    await store.join("w-9", 1_000, HERE)
    backend.clock.advance(10)
    await other.join("w-1", 2_000, THERE)
    for each in (store, other):
        assert await each.members("default") == [
            Member("w-9", joined_at_ms, joined_at_ms + 1_000, HERE, holds=0),
            Member("w-1", joined_at_ms + 10, joined_at_ms + 2_010, THERE, holds=0),
        ]


async def test_a_renewal_moves_the_end_and_not_the_beginning(store: Store, clock: FakeClock) -> None:
    joined_at_ms = store.now_ms()
    await store.join("w-1", 1_000, HERE)
    clock.advance(900)
    await store.renew("w-1", 1_000)
    [member] = await store.members("default")
    assert (member.joined_at_ms, member.until_ms) == (joined_at_ms, joined_at_ms + 1_900)


async def test_a_member_holds_what_it_was_given_and_has_not_let_go(store: Store) -> None:
    await store.join("w-1", 1_000, HERE)
    await store.join("w-2", 1_000, THERE)
    runs = [await held(store, f"run-{n}", key=None, owner="w-1") for n in range(4)]
    await held(store, "other", key=None, owner="w-2")
    await held(store, "orphan", key=None, owner="nobody")
    await committed(store, completion(store, runs[0]))
    await committed(store, let_go(store, runs[1]))
    assert [(member.owner, member.holds) for member in await store.members("default")] == [("w-1", 2), ("w-2", 1)]


async def test_whoever_has_left_or_expired_or_was_rescued_is_no_member(store: Store, clock: FakeClock) -> None:
    await store.join("left", 1_000, HERE)
    await store.join("expired", 1_000, HERE)
    await store.join("alive", 1_001, HERE)
    await store.leave("left")
    assert await _owners(store) == ["alive", "expired"]
    clock.advance(1_000)
    assert await _owners(store) == ["alive"]
    await store.rescue(10)
    assert await _owners(store) == ["alive"]


async def test_namespaces_have_members_of_their_own(store: Store) -> None:
    await store.join("w-1", 1_000, HERE)
    await store.join("w-2", 1_000, Serves("tenant", ("shop.checkout",)))
    await store.join("w-3", 1_000)  # it serves nothing, anywhere
    assert await _owners(store) == ["w-1"]
    assert await _owners(store, "tenant") == ["w-2"]
    assert await _owners(store, "other") == []
