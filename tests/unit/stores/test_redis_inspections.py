"""What each setting of a Redis means for the store."""

from __future__ import annotations

import pytest

from holdfast.ports.store import Finding
from holdfast.stores.redis import inspections
from holdfast.stores.redis.inspections import InspectedServer

REPLICA = "ip=h,port=1,state=online,offset=5,lag=0"
FOLLOWED = {"slave0": REPLICA}
GONE = {"slave0": REPLICA.replace("lag=0", "lag=30")}
SYNCING = {"slave0": REPLICA.replace("online", "wait_bgsave")}


@pytest.mark.parametrize(
    ("found", "level"),
    [
        (inspections.version({"redis_version": "7.0.15"}), "ok"),
        (inspections.version({"redis_version": "7.2.4", "valkey_version": "8.1.1"}), "ok"),
        (inspections.version({"redis_version": "6.2.5"}), "error"),
        (inspections.version({}), "error"),
        (inspections.eviction({"maxmemory-policy": "noeviction"}), "ok"),
        (inspections.eviction({"maxmemory-policy": "volatile-lru"}), "error"),
        (inspections.eviction({"maxmemory-policy": "allkeys-lfu"}), "error"),
        (inspections.eviction(None), "warning"),
        (inspections.append_only({"aof_enabled": "1"}), "ok"),
        (inspections.append_only({"aof_enabled": "0"}), "error"),
        (inspections.sync({"appendfsync": "always"}), "ok"),
        (inspections.sync({"appendfsync": "everysec"}), "warning"),
        (inspections.sync({"appendfsync": "no"}), "error"),
        (inspections.sync(None), "warning"),
        (inspections.sync_on_rewrite({"no-appendfsync-on-rewrite": "no"}), "ok"),
        (inspections.sync_on_rewrite({"no-appendfsync-on-rewrite": "yes"}), "warning"),
        (inspections.disk({"aof_last_write_status": "ok"}), "ok"),
        (inspections.disk({"aof_last_write_status": "err"}), "error"),
        (inspections.memory({"used_memory": "50", "maxmemory": "100"}), "ok"),
        (inspections.memory({"used_memory": "85", "maxmemory": "100"}), "warning"),
        (inspections.memory({"used_memory": "96", "maxmemory": "100"}), "error"),
        (inspections.memory({"used_memory": "96", "maxmemory": "0", "total_system_memory": "1000"}), "ok"),
        (inspections.memory({"used_memory": "96"}), "ok"),
        (inspections.confirmations(None, 0), "warning"),
        (inspections.confirmations(None, 1), "warning"),
        (inspections.confirmations(1, 1), "ok"),
        (inspections.confirmations(1, 2), "warning"),
        (inspections.confirmations(None, 2), "warning"),
        (inspections.confirmations(0, 1), "warning"),
        (inspections.confirmations(1, 0), "error"),
        (inspections.confirmations(2, 2), "ok"),
        (inspections.clocks({"a": 3.0, "b": -20.0}), "ok"),
        (inspections.clocks({"a": 300.0, "b": -300.0}), "warning"),
        (inspections.clocks({"a": -9000.0, "b": -9000.0}), "warning"),
        (inspections.cluster({name: {"cluster_state": "ok", "cluster_slots_ok": "16384"} for name in "abc"}), "ok"),
        (inspections.cluster({"a": {"cluster_state": "ok", "cluster_slots_ok": "16384"}}), "warning"),
        (inspections.cluster({"a": {"cluster_state": "ok", "cluster_slots_ok": "9"}}), "error"),
        (inspections.cluster({"a": {"cluster_state": "fail", "cluster_slots_ok": "16384"}}), "error"),
    ],
)
def test_how_bad_a_setting_is(found: Finding, level: str) -> None:
    assert found.level == level
    assert level == "ok" or found.hint


CLUSTER = FOLLOWED | {"redis_mode": "cluster"}


@pytest.mark.parametrize(
    ("wait", "info", "settings", "level"),
    [
        (None, {}, {}, "ok"),  # there is no replica to replace it
        (None, GONE, {}, "ok"),
        (None, SYNCING, {}, "ok"),
        (None, FOLLOWED, {"min-replicas-to-write": "0"}, "warning"),
        (None, FOLLOWED, {"min-replicas-to-write": "1"}, "ok"),
        (1, FOLLOWED, {"min-replicas-to-write": "0"}, "ok"),
        (0, FOLLOWED, None, "warning"),
        (None, CLUSTER, {"cluster-node-timeout": "5000"}, "ok"),
        (None, CLUSTER, {"cluster-node-timeout": "15000"}, "warning"),
        (1, CLUSTER, {"cluster-node-timeout": "15000"}, "ok"),
    ],
)
def test_what_becomes_of_writes_to_a_primary_that_is_cut_off(
    wait: int | None, info: dict[str, str], settings: dict[str, str] | None, level: str
) -> None:
    assert inspections.cut_off(wait, InspectedServer("h:1", info, settings)).level == level
