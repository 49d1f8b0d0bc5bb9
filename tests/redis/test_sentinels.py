"""A client that asks sentinels who the primary is."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import InvalidConfig, StoreUnavailable
from holdfast.lab.cluster.sentinels import SentinelGroup
from tests.redis.calls import add, read
from tests.redis.conftest import Opens


async def test_writes_go_on_with_the_new_primary_when_the_sentinels_choose_another(
    redis_sentinel: SentinelGroup, opened: Opens, tag: bytes
) -> None:
    client = await opened(redis_sentinel.url)
    old = redis_sentinel.primary
    assert await client.run([add(tag)], writes=True) == [1]
    redis_sentinel.sentinels[0].ask("SENTINEL", "FAILOVER", "main")
    acknowledged, unknown, still = 1, 0, 20
    async with asyncio.timeout(30):
        while still:
            try:
                await client.run([add(tag)], writes=True)
                acknowledged += 1
            except StoreUnavailable:
                unknown += 1
            still -= redis_sentinel.primary is not old
    new = redis_sentinel.primary
    [found] = await client.run([read(tag)], writes=False)
    assert isinstance(found, bytes)
    assert acknowledged <= int(found) <= acknowledged + unknown
    assert new.ask("GET", tag.decode()) == found.decode()
    old.ask("REPLICAOF", "127.0.0.1", new.port)  # the sentinels take ten seconds for it
    redis_sentinel.wait_until_healthy()


async def test_sentinels_that_are_down_do_not_matter_while_one_is_up(
    redis_sentinel: SentinelGroup, opened: Opens, tag: bytes
) -> None:
    dead = "127.0.0.1:1"
    client = await opened(redis_sentinel.url.replace("://", f"://{dead},"))
    assert await client.run([add(tag)], writes=True) == [1]


async def test_a_name_that_the_sentinels_do_not_know_is_refused(redis_sentinel: SentinelGroup, opened: Opens) -> None:
    with pytest.raises(InvalidConfig, match="'nobody'"):
        await opened(redis_sentinel.url.replace("/main", "/nobody"))


async def test_a_sentinel_is_not_taken_for_a_server(redis_sentinel: SentinelGroup, opened: Opens) -> None:
    with pytest.raises(InvalidConfig, match="is a sentinel"):
        await opened(redis_sentinel.sentinels[0].url)
