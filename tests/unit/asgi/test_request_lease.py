"""The right to execute one request. Time stands still: two that settle in the same millisecond are told apart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from holdfast.asgi.request_lease import RequestLease
from holdfast.engine.api.documents import Documents
from holdfast.engine.api.scope import Scope
from holdfast.engine.api.subscriptions import Subscriptions
from holdfast.kernel import idempotency
from holdfast.kernel.documents import Document
from holdfast.kernel.idempotency import KIND, Proceed, Reply, RequestWanted
from holdfast.stores.memory import MemoryStore
from tests.builders import FakeClock, SeededIds

LEASE_MS = 600_000  # so long that nothing is renewed within a test
REPLIES = [Reply(200), Reply(201, (), b"made"), Reply(204, (), b""), Reply(503)]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def documents(clock: FakeClock) -> AsyncIterator[Documents]:
    store, unused = MemoryStore(clock=clock), cast("Any", None)
    await store.open()
    scope = Scope(
        store,
        unused,
        registry=unused,
        codec=unused,
        ids=SeededIds(),
        emit=lambda _: None,
        pace=unused,
        namespace="default",
        is_open=lambda: True,
    )
    yield Documents(scope, Subscriptions())
    await store.close()


async def begun(documents: Documents, holder: str) -> RequestLease:
    """The request in the hands of `holder`, which takes it over if it can."""
    wanted = RequestWanted("default", "key", "d1", holder, LEASE_MS, 10 * LEASE_MS)
    decision = idempotency.decide(await found(documents), wanted, now_ms=documents.now_ms())
    assert isinstance(decision, Proceed)
    assert await documents.write(decision.writing)
    return RequestLease(documents, wanted, decision.writing.document)


async def found(documents: Documents) -> Document | None:
    return await documents.read(KIND, "key")


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: f"{reply.status}")
async def test_of_two_that_settle_alike_in_the_same_millisecond_the_overtaken_one_learns_it(
    documents: Documents, clock: FakeClock, reply: Reply
) -> None:
    zombie = await begun(documents, "zombie")
    clock.advance(LEASE_MS)
    heir = await begun(documents, "heir")
    clock.advance(5)
    assert await heir.settle(reply)
    settled = await found(documents)
    assert not await zombie.settle(reply)
    assert await found(documents) == settled


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: f"{reply.status}")
async def test_an_overtaken_one_that_settles_first_changes_nothing(
    documents: Documents, clock: FakeClock, reply: Reply
) -> None:
    zombie = await begun(documents, "zombie")
    clock.advance(LEASE_MS)
    heir = await begun(documents, "heir")
    clock.advance(5)
    assert not await zombie.settle(reply)
    assert await heir.settle(reply)


async def test_how_long_it_cannot_be_taken_over(documents: Documents, clock: FakeClock) -> None:
    hold = await begun(documents, "one")
    clock.advance(1_000)
    assert hold.left_ms == LEASE_MS - 1_000
    await hold.end()
