"""Processes of ours: started under a reaper, signalled by pid, never left behind.

Rules
- Each is the leader of a session of its own, so that Ctrl-C reaches only us, and we decide the order in which they end.
- Its words go to a log file. It goes on although no process reads a pipe.
- Whatever becomes of us, even SIGKILL, none of them survives: one reaper process per process of ours sees to that.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from holdfast.errors import TransientError
from holdfast.lab.cluster import reaper

State = Literal["running", "stopped", "dead"]
GRACE_SECONDS = 10.0
LOOK_SECONDS = 0.02
LINES_SHOWN = 8


class ServerProcess:
    """One process that can be started again and again with the same command."""

    def __init__(
        self, name: str, command: Sequence[str | Path], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = [str(word) for word in command]
        self.log = log
        self._environment = environment  # ours, if none is given
        self._popen: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._is_stopped = False

    def start(self) -> None:
        """Start it. What it says is appended to the log."""
        assert not self.is_alive, f"{self.name} is running already"
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._popen = subprocess.Popen(  # noqa: S603 - the command is ours
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        self._is_stopped = False
        _reaper.watch(self._popen.pid)

    @property
    def pid(self) -> int:
        """The id of its process; of the last one, if it is dead."""
        assert self._popen is not None, f"{self.name} was never started"
        return self._popen.pid

    @property
    def is_alive(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How it has ended; negative is the signal that ended it."""
        return None if self._popen is None else self._popen.poll()

    @property
    def state(self) -> State:
        if not self.is_alive:
            return "dead"
        return "stopped" if self._is_stopped else "running"

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._signal(signal.SIGKILL)
        self._reap()

    def stop_signal(self) -> None:
        """SIGSTOP: it stays, holds its connections, and does nothing. All its threads stand still when this returns."""
        self._signal(signal.SIGSTOP)
        # The signal alone is only on its way: a thread may serve one more request.
        wait_until(self._stands_still, seconds=GRACE_SECONDS, what=lambda: f"{self.name} does not stop")
        self._is_stopped = True

    def cont(self) -> None:
        """SIGCONT: it goes on where it was, unaware that time has passed."""
        self._signal(signal.SIGCONT)
        self._is_stopped = False

    def signal(self, number: int) -> None:
        """Any signal. A stopped process gets it when it goes on, before it does anything else."""
        self._signal(number)

    def terminate(self) -> None:
        """SIGTERM: ask it to end in order, and do not wait for that."""
        self._signal(signal.SIGTERM)

    def wait(self, seconds: float = GRACE_SECONDS) -> bool:
        """Whether it has ended within that time."""
        if self._popen is None:
            return True
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._reap()
        return True

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """End it in order; by force if it takes longer than the grace."""
        self.terminate()
        self.end(grace_seconds)

    def end(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Wait until it has ended, as it was asked to; by force after the grace."""
        self.cont()  # a stopped process has not heard of it
        if not self.wait(grace_seconds):
            self.kill()

    def words(self) -> str:
        """What it has said since it was last started."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def last_words(self) -> str:
        """The end of that, for messages."""
        return "\n".join(f"  {line}" for line in self.words().splitlines()[-LINES_SHOWN:])

    def _signal(self, number: int) -> None:
        # Not reaped yet means that the pid is still its own: a signal never hits a stranger.
        if self._popen is not None and self._popen.poll() is None:
            self._popen.send_signal(number)

    def _stands_still(self) -> bool:
        # WNOWAIT leaves exit codes to `poll`.
        look = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        return not self.is_alive or os.waitid(os.P_PID, self.pid, look) is not None

    def _reap(self) -> None:
        if self._popen is not None:
            self._popen.wait()
            _reaper.forget(self._popen.pid)


def wait_until(condition: Callable[[], bool], *, seconds: float, what: Callable[[], str]) -> None:
    """Return as soon as `condition` holds. `what` words the `TransientError` if it does not in time."""
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            raise TransientError(what())
        time.sleep(LOOK_SECONDS)


class _Reaper:
    """The reaper process, started with the first process that needs one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._popen: subprocess.Popen[bytes] | None = None
        self._parents_popen: subprocess.Popen[bytes] | None = None

    def watch(self, pid: int) -> None:
        self._tell(f"+{pid}\n")

    def forget(self, pid: int) -> None:
        self._tell(f"-{pid}\n")

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._popen is None:
                self._popen = subprocess.Popen(  # noqa: S603 - a script of ours
                    [sys.executable, "-I", "-S", reaper.__file__],
                    stdin=subprocess.PIPE,
                    bufsize=0,
                    start_new_session=True,
                )
                atexit.register(self._close)
                os.register_at_fork(after_in_child=self._let_go)
            if self._popen.stdin is not None:
                self._popen.stdin.write(line.encode())

    def _close(self) -> None:
        """The reaper sees the end of its pipe, kills what is left, and ends."""
        if self._popen is not None and self._popen.stdin is not None:
            self._popen.stdin.close()
            self._popen.wait()

    def _let_go(self) -> None:
        """A fork of ours must not keep the pipe open in our place; it gets a reaper of its own if it needs one."""
        if self._popen is not None and self._popen.stdin is not None:
            self._popen.stdin.close()
            self._parents_popen, self._popen = self._popen, None


_reaper = _Reaper()
