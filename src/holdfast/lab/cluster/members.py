"""A part of a topology: one process under its name, whatever it runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from holdfast.adapters.machine import SystemClock
from holdfast.kernel.units import utc_of
from holdfast.lab.cluster.processes import ServerProcess, State

PartRole = Literal["redis", "sentinel", "nats", "scheduler", "worker", "gateway"]


class Seen(Struct, frozen=True):
    """A part as it is now."""

    name: str
    role: PartRole
    port: int
    pid: int
    state: State
    exit_code: int | None
    since: datetime
    log: str


class Server(Protocol):
    """What a part is made of."""

    name: str
    process: ServerProcess

    @property
    def port(self) -> int: ...
    @property
    def url(self) -> str: ...
    def start(self) -> None: ...


class Part:
    """One process of a topology."""

    def __init__(self, role: PartRole, server: Server) -> None:
        self.role: PartRole = role
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

    def look(self) -> Seen:
        """How it is, and since when that was seen first."""
        process = self.server.process
        now = (process.pid, process.state)
        if self._since[0] != now:
            self._since = (now, utc_of(SystemClock().wall_ms()))
        return Seen(
            name=self.name,
            role=self.role,
            port=self.port,
            pid=process.pid,
            state=process.state,
            exit_code=process.exit_code,
            since=self._since[1],
            log=str(self.log),
        )
