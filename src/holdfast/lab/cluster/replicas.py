"""A replica of Holdfast on this machine: `holdfast serve` in one role, on a port of its own.

Its settings are those that it is given, and no others: neither the settings file of the directory nor our variables
concern it. A cluster in the middle of a project must not share that project's bus, or wait for its keys.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from holdfast import config
from holdfast.errors import TransientError
from holdfast.lab.cluster.ports import HOST, free_port
from holdfast.lab.cluster.probes import is_ok
from holdfast.lab.cluster.processes import ServerProcess, State, wait_until

Role = Literal["gateway", "worker", "scheduler"]
START_SECONDS = 60.0


class ReplicaProcess:
    """One process. The same role and the same port after each `start`."""

    def __init__(
        self, name: str, role: Role, directory: Path, *, packs: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.port = free_port()
        directory.mkdir(parents=True, exist_ok=True)
        settings = ("--config", os.devnull, "--roles", role, "--host", HOST, "--port")
        self._command = [sys.executable, "-m", "holdfast", "serve", *packs, *settings]
        self.process = ServerProcess(
            name,
            [*self._command, str(self.port)],
            log=directory / "server.log",
            environment={**_environment_without_settings(), **environment},
        )

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def state(self) -> State:
        return self.process.state

    def launch(self) -> None:
        """Start it, and do not wait until it is ready."""
        self.process.start()

    def wait_until_ready(self, seconds: float = START_SECONDS) -> None:
        """Until it says so itself. Raises `TransientError` if it has ended instead."""
        wait_until(lambda: not self.process.is_alive or self.is_ready(), seconds=seconds, what=self._failure)
        if not self.process.is_alive:
            raise TransientError(self._failure())

    def settle(self) -> None:
        """Until it is ready after its first start; on another port if another process took its own meanwhile."""
        try:
            self.wait_until_ready()
        except TransientError:
            if f"port {self.port} of {HOST} is in use" not in self.process.words():
                raise
            self.port = free_port()
            self.process.command = [*self._command, str(self.port)]
            self.start()

    def start(self) -> None:
        """Start it, and return when it is ready."""
        self.launch()
        self.wait_until_ready()

    def is_ready(self) -> bool:
        """Whether it says so itself. The process that replies may be another one if ours has just ended."""
        return is_ok(self.port, "/readyz")

    def _failure(self) -> str:
        return f"{self.name} did not become ready on port {self.port}:\n{self.process.last_words()}"


def _environment_without_settings() -> dict[str, str]:
    """Our environment without settings of Holdfast."""
    return {name: value for name, value in os.environ.items() if not name.startswith(config.PREFIX)}
