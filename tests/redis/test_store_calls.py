"""What a change costs on Redis: how many scripts, in how many round trips, with which keys."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from holdfast.kernel.changes import Blob, Change, Committed
from holdfast.lab.cluster.redis import RedisServer
from holdfast.stores.redis import RedisStore, scripts
from holdfast.stores.redis.commits import HELD_KEYS_MAX
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


async def test_a_further_start_under_a_held_key_only_looks_at_the_holder(store: RedisStore) -> None:
    holder = await committed(store, an_admission(store, "run-1", owner="worker-1"))
    assert await refused(store, an_admission(store, "run-2")) == holder
    traffic = Traffic(store)
    assert await refused(store, an_admission(store, "run-3")) == holder
    assert traffic.names() == [["holder"]]


async def test_a_key_that_is_free_again_is_had_by_the_start_that_expected_it_to_be_held(store: RedisStore) -> None:
    holder = await committed(store, an_admission(store, "run-1", owner="worker-1", retention_ms=-1))
    await refused(store, an_admission(store, "run-2"))
    await committed(store, completion(store, holder))
    assert await store.prune(10) == 1
    traffic = Traffic(store)
    third = an_admission(store, "run-3")
    others = [an_admission(store, f"run-{number}", key=f"order-{number}") for number in (7, 8)]
    answers = await store.commit([others[0], third, others[1]])
    assert [isinstance(answer, Committed) and answer.run for answer in answers] == [
        others[0].run,
        third.run,
        others[1].run,
    ]
    assert traffic.names() == [["admit", "holder", "admit"], ["admit"]]
    assert await refused(store, an_admission(store, "run-4")) == third.run


async def test_a_start_that_is_repeated_after_a_lost_reply_is_its_own_although_its_key_was_held(
    store: RedisStore,
) -> None:
    first = an_admission(store, "run-1", owner="worker-1")
    await committed(store, first)
    await refused(store, an_admission(store, "run-2"))
    assert await committed(store, first) == first.run


async def test_only_so_many_held_keys_are_remembered(store: RedisStore) -> None:
    keys = [f"order-{number}" for number in range(HELD_KEYS_MAX + 1)]
    for attempt in ("first", "second"):
        await store.commit([an_admission(store, f"{attempt}-{key}", key=key) for key in keys])
    traffic = Traffic(store)
    for key in (keys[0], keys[-1]):
        await refused(store, an_admission(store, f"third-{key}", key=key))
    assert traffic.names() == [["admit"], ["holder"]]


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
