"""A Redis (or Valkey) server on this machine.

It keeps state as a store needs it: every write in the append-only file, nothing evicted. All settings are written
into a file beside the data, so a server that is started again is the same one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.errors import TransientError
from holdfast.lab.cluster import binaries
from holdfast.lab.cluster.local_server import LocalServer
from holdfast.lab.cluster.ports import HOST, free_port
from holdfast.lab.cluster.processes import ServerProcess
from holdfast.lab.cluster.redis_commands import RedisCommandError, Reply, ask

HEALTHY_SECONDS = 60.0
ATTEMPTS = 10
Settings = Mapping[str, str | int]

DURABLE: Settings = {
    "bind": HOST,
    "appendonly": "yes",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
    "save": '""',
    "repl-diskless-sync": "yes",
    "repl-diskless-sync-delay": 0,  # five seconds by default, in which more replicas may come
}


class RedisServer(LocalServer):
    """One server. It has loaded its data once it is started."""

    def __init__(self, name: str, directory: Path, port: int, settings: Settings, *, sentinel: bool = False) -> None:
        self.directory = directory
        password = settings.get("requirepass")
        self.password = None if password is None else str(password)
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / "server.conf"
        lines = {**settings, "port": port, "dir": directory}.items()
        file.write_text("".join(f"{setting} {value}\n" for setting, value in lines))
        binary = binaries.find(binaries.REDIS_SENTINEL if sentinel else binaries.REDIS_SERVER)
        super().__init__(name, port, ServerProcess(name, [binary, file], log=directory / "server.log"))

    @property
    def url(self) -> str:
        return f"redis://{_login(self.password)}{self.address}"

    def ask(self, *words: str | int) -> Reply:
        """Send one command, and return the reply. Raises `RedisCommandError` or `OSError`."""
        return ask(HOST, self.port, *words, password=self.password)

    def info(self, section: str) -> dict[str, str]:
        """What INFO says, or CLUSTER INFO for the section `cluster_state`; nothing if it cannot answer."""
        if self.state != "running":
            return {}
        try:
            told = self.ask("CLUSTER", "INFO") if section == "cluster_state" else self.ask("INFO", section)
        except (OSError, RedisCommandError):
            return {}
        assert isinstance(told, str)
        return dict(line.split(":", 1) for line in told.splitlines() if ":" in line)

    def written(self) -> int:
        """How much there is in the append-only file now."""
        return self._append_only().stat().st_size

    def forget(self, since: int) -> None:
        """Kill it, take what was written since then out of its append-only file, and start it again."""
        self.kill()
        os.truncate(self._append_only(), since)
        self.start()

    def _append_only(self) -> Path:
        """The file that is being appended to: the newest, if it was rewritten."""
        return max(self.directory.glob("appendonlydir/*.incr.aof"), key=lambda file: file.stat().st_mtime_ns)

    def _is_replying(self) -> bool:
        try:
            return self.ask("PING") == "PONG" and self.info("server")["process_id"] == str(self.pid)
        except (OSError, RedisCommandError, KeyError):  # the server may still be loading its data
            return False


def start_redis(
    directory: Path, *, appendfsync: str = "always", port: int = 0, name: str = "redis", **settings: str | int
) -> RedisServer:
    """A single server. Further settings are those of redis.conf, with `_` for `-`."""
    given = {setting.replace("_", "-"): value for setting, value in settings.items()}
    return start_server(name, directory, {**DURABLE, "appendfsync": appendfsync, **given}, port)


def start_server(
    name: str, directory: Path, settings: Settings, port: int, *, has_bus: bool = False, sentinel: bool = False
) -> RedisServer:
    """A running server, on a port of ours unless one is given."""
    for _ in range(ATTEMPTS):
        bus: Settings = {"cluster-port": free_port()} if has_bus else {}
        server = RedisServer(name, directory, port or free_port(), {**settings, **bus}, sentinel=sentinel)
        try:
            server.start()
        except TransientError:
            server.kill()
            if port or not server.is_port_taken:
                raise
            continue
        except BaseException:
            server.kill()
            raise
        return server
    raise TransientError(f"{name} found no free port in {ATTEMPTS} attempts")


def is_in_step(server: RedisServer) -> bool:
    """Whether it is a primary, or a replica with its primary's data. One that never was could not be promoted."""
    told = server.info("replication")
    return told.get("role") == "master" or told.get("master_link_status") == "up"


def _login(password: str | None) -> str:
    return "" if password is None else f":{password}@"
