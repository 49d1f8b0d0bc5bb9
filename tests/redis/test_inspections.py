"""What `doctor` sees of real servers. What each setting means is in tests/unit/stores/test_redis_inspections.py."""

from __future__ import annotations

from holdfast.lab.cluster.redis import RedisServer
from holdfast.lab.cluster.redis_cluster import RedisCluster
from holdfast.stores.redis.inspections import inspect
from tests.redis.conftest import Opens, Starts


async def test_a_server_that_syncs_always_lacks_nothing_but_a_replica(redis_server: RedisServer, opened: Opens) -> None:
    found = await inspect(await opened(redis_server.url))
    assert [finding.what for finding in found if finding.level != "ok"] == ["replicas"]


async def test_a_cluster_in_which_all_is_well(redis_cluster: RedisCluster, opened: Opens) -> None:
    redis_cluster.wait_until_healthy()
    found = await inspect(await opened(f"{redis_cluster.url}?wait=1"))
    assert [finding for finding in found if finding.level != "ok"] == []
    assert "cluster" in [finding.what for finding in found]


async def test_each_server_that_could_lose_something_is_named(opened: Opens, started: Starts) -> None:
    server = started(appendonly="no", no_appendfsync_on_rewrite="yes", maxmemory="8mb")
    found = {finding.what: finding for finding in await inspect(await opened(server.url))}
    assert {what for what, finding in found.items() if finding.level == "error"} == {"append-only file", "sync"}
    assert all(server.address in finding.detail for finding in found.values() if finding.level == "error")
    assert found["sync while rewriting"].level == "warning"
    assert found["memory"].detail.endswith("of 0.01 GiB are used")


async def test_a_server_that_hides_its_settings_may_be_used_and_is_warned_of(opened: Opens, started: Starts) -> None:
    server = started(rename_command='CONFIG ""')
    found = {finding.what: finding.level for finding in await inspect(await opened(server.url))}
    assert (found["eviction"], found["sync"], found["append-only file"]) == ("warning", "warning", "ok")
