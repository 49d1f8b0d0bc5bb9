"""The directory of a local cluster, as several processes use it: who runs it, what it is, and what is wanted of it.

    cluster.lock       locked by the process that runs the cluster, for as long as it lives; holds its pid
    cluster.json       the cluster as that process last saw it
    wanted/kill worker-1   a request of another process; gone when it was done

Only the process that runs a cluster signals its parts: it alone knows that a pid still means the same process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args

import msgspec
from msgspec import Struct

from holdfast.errors import InvalidConfig, TransientError, UsageError
from holdfast.lab.cluster.members import MemberStatus
from holdfast.lab.cluster.processes import wait_until

Action = Literal["kill", "stop", "pause", "resume", "start"]
DONE_SECONDS = 90.0


class ClusterState(Struct, frozen=True):
    """A cluster as it is now. Its fields are in the JSON of `holdfast cluster`."""

    pid: int
    directory: str
    store: str
    bus: str | None
    gateways: tuple[str, ...]
    parts: tuple[MemberStatus, ...]


class MemberRequest(NamedTuple):
    """What is to happen to a part."""

    action: Action
    part: str


class StateDirectory:
    """One such directory."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock = self.path / "cluster.lock"
        self._record = self.path / "cluster.json"
        self._wanted = self.path / "wanted"
        self._written: ClusterState | None = None

    @contextmanager
    def occupy(self) -> Generator[None]:
        """Have the directory to oneself, emptied. What is left in it afterwards is there to be read: the logs."""
        if self.path.exists() and any(self.path.iterdir()) and not self._lock.exists():
            raise InvalidConfig(
                f"{self.path} holds other things than a cluster's", hint="Name another with --directory."
            )
        self.path.mkdir(parents=True, exist_ok=True)
        with self._lock.open("a+") as lock:
            if not _try_lock(lock.fileno()):
                raise UsageError(f"a cluster is up in {self.path}", hint="`holdfast cluster down` ends it.")
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            self._empty()
            self._wanted.mkdir()
            yield

    def write(self, state: ClusterState) -> None:
        """Show others what there is now."""
        if state == self._written:
            return
        self._written = state
        beside = self._record.with_suffix(".new")
        beside.write_bytes(msgspec.json.encode(state))
        beside.replace(self._record)  # at once, so that no reader sees half of it

    def read(self) -> ClusterState:
        """What there is; raises if no cluster is up here."""
        self.pid()
        try:
            return msgspec.json.decode(self._record.read_bytes(), type=ClusterState)
        except FileNotFoundError:
            raise TransientError(f"the cluster in {self.path} is still starting") from None

    def pid(self) -> int:
        """The process that runs the cluster."""
        if not self.is_taken():
            raise UsageError(f"no cluster is up in {self.path}", hint="`holdfast cluster up PACK` starts one.")
        if not (pid := self._lock.read_text()):
            raise TransientError(f"the cluster in {self.path} is still starting")
        return int(pid)

    def is_taken(self) -> bool:
        """Whether a process that lives has this directory."""
        if not self._lock.exists():
            return False
        with self._lock.open("a+") as lock:
            return not _try_lock(lock.fileno())

    def wait_until_free(self, seconds: float) -> None:
        """Until no process has this directory any more."""
        wait_until(
            lambda: not self.is_taken(), seconds=seconds, what=lambda: f"the cluster in {self.path} does not end"
        )

    def ask(self, action: Action, part: str) -> MemberStatus:
        """Have something done to a part, and wait for it. Returns the part as it is then."""
        known = [each.name for each in self.read().parts]
        if part not in known:
            raise UsageError(f"there is no part {part!r}", hint=f"The parts are: {', '.join(known)}.")
        file = self._wanted / f"{action} {part}"
        file.touch()
        wait_until(
            lambda: not (file.exists() and self.is_taken()),
            seconds=DONE_SECONDS,
            what=lambda: f"the cluster in {self.path} does not answer",
        )
        return next(each for each in self.read().parts if each.name == part)

    def requests(self) -> list[MemberRequest]:
        """What is wanted now, oldest first."""
        files = sorted(self._wanted.iterdir(), key=lambda file: file.stat().st_mtime_ns)
        words = [file.name.partition(" ") for file in files]
        return [MemberRequest(cast("Action", action), part) for action, _, part in words if action in get_args(Action)]

    def mark_done(self, request: MemberRequest) -> None:
        """Tell who asked; `write` what has come of it first."""
        with suppress(FileNotFoundError):
            (self._wanted / f"{request.action} {request.part}").unlink()

    def _empty(self) -> None:
        """The lock stays: who waits for it holds this very file open."""
        for entry in self.path.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry != self._lock:
                entry.unlink()


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
