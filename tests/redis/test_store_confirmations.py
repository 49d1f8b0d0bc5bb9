"""What a process does because of what it has read: only if a replica has that, too, since a failover may undo it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from holdfast import Holdfast
from holdfast.kernel.messages import Watcher
from holdfast.lab.cluster.redis import RedisServer
from holdfast.ports.store import Claim
from holdfast.stores.redis import RedisStore
from tests.contract.helpers import WORKFLOW, admitted, completion, held, unread
from tests.paces import redis_store
from tests.redis.calls import PATIENT, unconfirmed
from tests.redis.test_store_outbox import die_after


@pytest.fixture
async def hf(primary: RedisServer, replica: RedisServer) -> AsyncIterator[Holdfast]:
    """On a primary whose replica confirms what is written. What has just been left is relayed, too."""
    assert replica.pid
    pace = replace(PATIENT, outbox_age_ms=-60_000)
    async with Holdfast(redis_store(f"{primary.url}?wait=1&shards=4", pace), worker=False) as hf:
        yield hf


async def test_what_a_process_holds_is_said_when_a_replica_has_it(hf: Holdfast, replica: RedisServer) -> None:
    """A worker whose claim got no answer asks what it holds, and works on that."""
    run = await admitted(hf.runtime.store, "run-1-00", key=None)
    replica.stop_signal()
    with unconfirmed(hf.runtime.store):
        await hf.runtime.store.claim(Claim("default", "w-1", "nonce", (WORKFLOW,), 1))
    with unconfirmed(hf.runtime.store):
        await hf.runtime.store.held("w-1")
    replica.cont()
    assert await hf.runtime.store.held("w-1") == [run.id]


async def test_a_message_between_shards_is_passed_on_when_a_replica_has_it(
    hf: Holdfast, replica: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(hf.runtime.store, RedisStore)
    parent, child = "parent-00", "child-01"
    await held(hf.runtime.store, parent, key=None)
    run = await held(hf.runtime.store, child, key=None, watcher=Watcher(parent, "child#1"))
    await die_after(hf.runtime.store, completion(hf.runtime.store, run), monkeypatch)
    replica.stop_signal()
    with unconfirmed(hf.runtime.store):
        await hf.runtime.store.relay(10)
    assert await unread(hf.runtime.store, parent) == ()
    replica.cont()
    assert await hf.runtime.store.relay(10) == 1
    assert len(await unread(hf.runtime.store, parent)) == 1


async def test_a_revocation_that_is_repeated_is_answered_when_a_replica_has_the_first_one(
    hf: Holdfast, replica: RedisServer
) -> None:
    _, key = await hf.api_keys.create("me", namespace="default", scope="read")
    replica.stop_signal()
    for _ in range(2):
        with unconfirmed(hf.runtime.store):
            await hf.api_keys.revoke("default", key.id)
    replica.cont()
    revoked = await hf.api_keys.revoke("default", key.id)
    assert revoked.revoked_at_ms is not None
    assert await hf.api_keys.revoke("default", key.id) == revoked
