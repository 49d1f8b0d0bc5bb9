"""A member of a local cluster: one process under its name, whatever it runs. People and JSON call it a part."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from holdfast.adapters.machine import SystemClock
from holdfast.kernel.units import utc_of
from holdfast.lab.cluster.processes import ServerProcess, State

MemberRole = Literal["redis", "sentinel", "nats", "scheduler", "worker", "gateway"]


class MemberStatus(Struct, frozen=True):
    """A member as it is now. Its fields are in the JSON of `holdfast cluster`."""

    name: str
    role: MemberRole
    port: int
    pid: int
    state: State
    exit_code: int | None
    since: datetime
    log: str


class MemberServer(Protocol):
    """What a member is made of."""

    name: str
    process: ServerProcess

    @property
    def port(self) -> int: ...
    @property
    def url(self) -> str: ...
    def start(self) -> None: ...


class ClusterMember:
    """One process of a cluster."""

    def __init__(self, role: MemberRole, server: MemberServer) -> None:
        self.role: MemberRole = role
        self.server = server
        self._since = ((0, "running"), datetime.fromtimestamp(0, UTC))

    @property
    def name(self) -> str:
        return self.server.name

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def log(self) -> Path:
        return self.server.process.log

    @property
    def pid(self) -> int:
        return self.server.process.pid

    @property
    def state(self) -> State:
        return self.server.process.state

    @property
    def exit_code(self) -> int | None:
        return self.server.process.exit_code

    def status(self) -> MemberStatus:
        """How it is, and since when that was seen first."""
        process = self.server.process
        now = (process.pid, process.state)
        if self._since[0] != now:
            self._since = (now, utc_of(SystemClock().wall_ms()))
        return MemberStatus(
            name=self.name,
            role=self.role,
            port=self.port,
            pid=process.pid,
            state=process.state,
            exit_code=process.exit_code,
            since=self._since[1],
            log=str(self.log),
        )
