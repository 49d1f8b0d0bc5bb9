"""What Redis and NATS servers have in common here: a process on a port, which is ready when it replies itself."""

from __future__ import annotations

from abc import ABC, abstractmethod

from holdfast.errors import TransientError
from holdfast.lab.cluster.ports import HOST
from holdfast.lab.cluster.processes import ServerProcess, State, wait_until

START_SECONDS = 20.0


class LocalServer(ABC):
    """One server. The same port and the same data after each `restart`."""

    def __init__(self, name: str, port: int, process: ServerProcess) -> None:
        self.name = name
        self.port = port
        self.process = process

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def state(self) -> State:
        return self.process.state

    @property
    def is_port_taken(self) -> bool:
        """Whether it has ended because another process has its port."""
        return not self.process.is_alive and "already in use" in self.process.words()

    def start(self) -> None:
        """Start it, and return when it replies."""
        self.process.start()
        wait_until(lambda: not self.process.is_alive or self._is_replying(), seconds=START_SECONDS, what=self._failure)
        if not self.process.is_alive:
            raise TransientError(self._failure())

    def kill(self) -> None:
        self.process.kill()

    def stop_signal(self) -> None:
        self.process.stop_signal()

    def cont(self) -> None:
        self.process.cont()

    def stop(self) -> None:
        self.process.stop()

    def restart(self) -> None:
        """Stop it in order, if it is running, and start it again on its data."""
        self.stop()
        self.start()

    @abstractmethod
    def _is_replying(self) -> bool:
        """Whether it does so itself: while its port was free to us, another server may have taken it."""

    def _failure(self) -> str:
        return f"{self.name} did not start on port {self.port}:\n{self.process.last_words()}"
