"""What a change costs on Redis: how many scripts, in how many round trips, with which keys."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from holdfast.kernel.changes import Blob, Change, HolderOf
from holdfast.lab.cluster.redis import RedisServer
from holdfast.stores.redis import RedisStore, scripts
from holdfast.stores.redis.net.client import Reply, ScriptCall, ScriptFailed
from holdfast.stores.redis.pace import RedisPace
from tests.builders import performed
from tests.contract.helpers import WORKFLOW, admission, committed, completion, progress, refused
from tests.paces import redis_store

_numbers = itertools.count()


class Traffic:
    """Stands between a store and its client: counts round trips, and may spoil replies."""

    def __init__(self, store: RedisStore) -> None:
        self.trips: list[list[ScriptCall]] = []
        self.without_rows = False
        self._run = store._client.run
        store._client.run = self.run  # type: ignore[method-assign]

    async def run(self, calls: Sequence[ScriptCall], *, writes: bool) -> list[Reply | ScriptFailed]:
        self.trips.append(list(calls))
        replies = await self._run(calls, writes=writes)
        if self.without_rows:
            for reply in replies:
                if isinstance(reply, list) and reply and reply[0] == b"held":
                    reply[1] = None
        return replies

    def names(self) -> list[list[str]]:
        return [[call.script.name for call in trip if isinstance(call.script, scripts.Script)] for trip in self.trips]


@pytest.fixture
async def store(redis_server: RedisServer) -> AsyncIterator[RedisStore]:
    store = redis_store(f"{redis_server.url}?name=calls-{os.getpid()}-{next(_numbers)}&shards=4", RedisPace())
    await store.open()
    yield store
    await store.close()


def an_admission(store: RedisStore, run_id: str, **fields: Any) -> Change:
    key = fields.get("key", "order-1")
    named = store.id_for(run_id, namespace="default", workflow=WORKFLOW, key=key)
    return admission(store, named, **{"key": key, **fields})


async def test_a_start_under_a_held_key_is_one_script_that_brings_the_holder(store: RedisStore) -> None:
    holder = await committed(store, an_admission(store, "run-1", owner="worker-1"))
    traffic = Traffic(store)
    assert await refused(store, an_admission(store, "run-2")) == holder
    assert traffic.names() == [["admit"]]


async def test_a_look_at_the_holder_of_a_key_is_one_script_that_brings_it(store: RedisStore) -> None:
    holder = await committed(store, an_admission(store, "run-1", owner="worker-1"))
    looking = an_admission(store, "run-2").run
    assert looking is not None
    traffic = Traffic(store)
    guard = HolderOf(looking.id, looking.namespace, looking.workflow, looking.key or "")
    assert await refused(store, Change("look", guard)) == holder
    assert traffic.names() == [["holder"]]


async def test_where_the_script_may_not_look_at_the_holder_it_is_looked_up(store: RedisStore) -> None:
    """Behind a proxy, or by an access list, that wants to know every key before."""
    holder = await committed(store, an_admission(store, "run-1", owner="worker-1"))
    traffic = Traffic(store)
    traffic.without_rows = True
    assert await refused(store, an_admission(store, "run-2")) == holder
    assert traffic.names() == [["admit"], ["run"]]


async def test_a_plain_change_names_only_the_keys_that_it_touches(store: RedisStore) -> None:
    traffic = Traffic(store)
    run = await committed(store, an_admission(store, "run-1", owner="worker-1"))
    on_the_way = await committed(store, progress(store, run, performed()))
    await committed(store, completion(store, on_the_way))
    [[admit], [recorded], [settle]] = traffic.trips
    whole = store._shards.whole(run.id)
    assert admit.keys == tuple(whole[name] for name in ("index", "names", "run", "journal"))
    assert recorded.keys == tuple(whole[name] for name in ("run", "journal"))
    assert settle.keys == tuple(whole[name] for name in ("index", "run", "journal", "aux", "out"))


async def test_a_list_may_be_longer_than_lua_hands_over_at_once(store: RedisStore) -> None:
    blobs = tuple(Blob(f"digest-{number}", b"%d" % number) for number in range(5_000))
    run = await committed(store, an_admission(store, "run-1", blobs=blobs))
    assert [await store.blob(run.id, f"digest-{number}") for number in (0, 499, 500, 4_999)] == [
        b"0",
        b"499",
        b"500",
        b"4999",
    ]
