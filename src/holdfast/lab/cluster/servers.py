"""All servers that can be started here."""

from __future__ import annotations

from holdfast.lab.cluster.nats import NatsCluster, NatsServer, start_nats, start_nats_cluster
from holdfast.lab.cluster.redis import RedisServer, start_redis
from holdfast.lab.cluster.redis_cluster import RedisCluster, start_redis_cluster
from holdfast.lab.cluster.sentinels import SentinelGroup, start_sentinel

__all__ = [
    "NatsCluster",
    "NatsServer",
    "RedisCluster",
    "RedisServer",
    "SentinelGroup",
    "start_nats",
    "start_nats_cluster",
    "start_redis",
    "start_redis_cluster",
    "start_sentinel",
]
