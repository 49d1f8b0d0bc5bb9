"""Ports that no process listens on.

They lie below the range from which Linux takes the ports of outgoing connections, so a server that is started again
finds its port free. A port that was given out stays ours while this process lives: others of our kind ask for the lock
of its byte in a file that all share. A stranger may still take it before our server does: who starts one tries again
with other ports then.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import tempfile
from functools import cache
from pathlib import Path

PORTS = range(20_000, 32_000)
HOST = "127.0.0.1"
_given: set[int] = set()


def free_port(among: range = PORTS) -> int:
    """A port that is free now, and never given out again."""
    while True:
        port = secrets.choice(among)
        if port not in _given and _is_free(port) and _is_reserved(port):
            _given.add(port)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _is_reserved(port: int) -> bool:
    """Whether it is reserved for this process now, until it ends."""
    try:
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _locks() -> int:
    """The file of which each byte stands for a port. Never closed: that would give up all locks.

    It lies at the same place for all, also for those that were told to keep their temporary files elsewhere.
    """
    place = next(each for each in (Path("/tmp"), Path(tempfile.gettempdir())) if os.access(each, os.W_OK))  # noqa: S108 - no stranger can use it: it is opened without following links
    file = place / f"holdfast-ports-{os.getuid()}"
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
