"""A Redis primary with its replicas on this machine, watched by Sentinels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import TransientError
from holdfast.kernel.times import Millis
from holdfast.lab.cluster.local_server import START_SECONDS
from holdfast.lab.cluster.ports import HOST
from holdfast.lab.cluster.processes import wait_until
from holdfast.lab.cluster.redis import DURABLE, HEALTHY_SECONDS, RedisServer, Settings, is_in_step, start_server
from holdfast.lab.cluster.redis_commands import RedisCommandError

SENTINEL_NAME = "main"
DOWN_AFTER_MS = Millis(1_000)


class SentinelGroup:
    """A primary with its replicas, and the Sentinels that watch them."""

    def __init__(self, servers: Sequence[RedisServer], sentinels: Sequence[RedisServer]) -> None:
        self.servers = tuple(servers)
        self.sentinels = tuple(sentinels)

    @property
    def url(self) -> str:
        return "redis+sentinel://" + ",".join(each.address for each in self.sentinels) + f"/{SENTINEL_NAME}"

    @property
    def primary(self) -> RedisServer:
        """Which server the first running Sentinel calls the primary."""
        for sentinel in self.sentinels:
            if sentinel.state == "running":
                answer = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SENTINEL_NAME)
                assert isinstance(answer, list)
                return next(server for server in self.servers if str(server.port) == answer[1])
        raise TransientError("no Sentinel is running")

    def wait_until_healthy(self, seconds: float = HEALTHY_SECONDS) -> None:
        """Until every Sentinel knows all others and the replicas, and each of these has its primary's data."""
        wait_until(self._is_healthy, seconds=seconds, what=lambda: "the Sentinels and their servers did not settle")

    def stop(self) -> None:
        for each in (*self.sentinels, *self.servers):
            each.kill()

    def _is_healthy(self) -> bool:
        whole = {
            "num-slaves": str(len(self.servers) - 1),
            "num-other-sentinels": str(len(self.sentinels) - 1),
            "flags": "master",
        }
        views = [_view(sentinel) for sentinel in self.sentinels if sentinel.state == "running"]
        running = [server for server in self.servers if server.state == "running"]
        return (
            all(view.items() >= whole.items() for view in views)
            and len({view["port"] for view in views}) == 1
            and self.primary.state == "running"
            and all(is_in_step(server) for server in running)
            and sum(server.info("replication").get("role") == "master" for server in running) == 1
        )


def start_sentinel(
    directory: Path,
    *,
    replicas: int = 1,
    sentinels: int = 3,
    down_after_ms: Millis = DOWN_AFTER_MS,
    appendfsync: str = "always",
) -> SentinelGroup:
    """A primary, its replicas, and Sentinels that agree by majority; returns when they know each other."""
    launched: list[RedisServer] = []
    try:
        settings: Settings = {**DURABLE, "appendfsync": appendfsync}
        for number in range(1, replicas + 2):
            follows: Settings = {"replicaof": f"{HOST} {launched[0].port}"} if launched else {}
            launched.append(start_server(f"redis-{number}", directory / f"redis-{number}", {**settings, **follows}, 0))
        servers = tuple(launched)
        for server in servers:
            wait_until(lambda server=server: is_in_step(server), seconds=START_SECONDS, what=lambda: "no replication")
        watched: Settings = {
            "bind": HOST,
            "sentinel monitor": f"{SENTINEL_NAME} {HOST} {servers[0].port} {sentinels // 2 + 1}",
            "sentinel down-after-milliseconds": f"{SENTINEL_NAME} {down_after_ms}",
            "sentinel failover-timeout": f"{SENTINEL_NAME} {down_after_ms * 5}",
        }
        for number in range(1, sentinels + 1):
            name = f"sentinel-{number}"
            launched.append(start_server(name, directory / name, watched, 0, sentinel=True))
        group = SentinelGroup(servers, launched[len(servers) :])
        group.wait_until_healthy()
    except BaseException:
        for each in launched:
            each.kill()
        raise
    return group


def _view(sentinel: RedisServer) -> dict[str, str]:
    """What a Sentinel knows about the primary; nothing if it does not answer."""
    try:
        told = sentinel.ask("SENTINEL", "MASTER", SENTINEL_NAME)
    except (OSError, RedisCommandError):
        return {}
    assert isinstance(told, list)
    words = [str(word) for word in told]
    return dict(zip(words[::2], words[1::2], strict=True))
