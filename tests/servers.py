"""Real servers for tests: one of each per process of tests, started when the first test asks for it.

Tests share them: each keeps to a name of its own (`?name=...`). A test that kills a server of these starts it again
and waits until it is healthy, or starts servers of its own in its `tmp_path`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.lab.cluster import servers


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.RedisServer]:
    """A single Redis that syncs every write."""
    server = servers.start_redis(tmp_path_factory.mktemp("redis"))
    yield server
    server.kill()


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.RedisCluster]:
    """Three primaries, each with one replica."""
    cluster = servers.start_redis_cluster(tmp_path_factory.mktemp("redis-cluster"))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def redis_sentinel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.SentinelGroup]:
    """A primary and its replica, watched by three Sentinels."""
    group = servers.start_sentinel(tmp_path_factory.mktemp("sentinel"))
    yield group
    group.stop()


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.NatsServer]:
    """A single NATS server with JetStream."""
    server = servers.start_nats(tmp_path_factory.mktemp("nats"))
    yield server
    server.kill()


@pytest.fixture(scope="session")
def nats_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.NatsCluster]:
    """Three NATS servers with one JetStream."""
    cluster = servers.start_nats_cluster(tmp_path_factory.mktemp("nats-cluster"))
    yield cluster
    cluster.stop()
