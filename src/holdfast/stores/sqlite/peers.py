"""The other processes on the same file, and how they are reached: each has a socket in a directory beside the file.

    shop.db
    shop.db-wake/web1-4711-5f3c2a9e01b7    a Unix datagram socket, named by host, process and chance

Rules
- A datagram is a hint. A lost one costs time, a forged one costs a look.
- An empty datagram says: see who is there, and look at everything. It is what a process sends to each peer that it
  finds. So those who are there find a process that comes, and what they commit until they have found it, it looks for.
- Queues are short (10 on Linux). A datagram that does not fit is dropped, and those that fill the queue make up for it:
  so many at once count as an empty one.
- A peer that is stopped holds up no other: there is a socket for each of them, and sending never waits.
- Names are never used again. That of a dead process is removed by one that was connected to it, or that was refused
  twice with `look` in between: a socket refuses, too, in the moment in which it is being made.
- Only a process that may write the file may send: directory and sockets have the permissions of the file.
- Where any of this cannot be done, `trouble` says why, and nothing is raised: the file can be looked at instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import secrets
import socket
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from weakref import WeakSet

SUFFIX: Final = "-wake"
EVERYTHING: Final = b""  # the datagram that names nothing
DATAGRAM_MAX: Final = 8 * 1024
_CROWD: Final = 8  # as many as this at once: the queue may have been full
_DRAIN_MAX: Final = 64  # so many are received before others have their turn
_ADDRESS_MAX: Final = 100  # of 104 to 108 bytes, depending on the system
_HOST_MAX: Final = 32
_TRIES: Final = 5
_NO_ROOM: Final = (errno.EAGAIN, errno.ENOBUFS)


def label(host: str, pid: int) -> str:
    """What the names of a process begin with."""
    return f"{re.sub('[^A-Za-z0-9.]', '_', host)[:_HOST_MAX]}-{pid}"


class Peers:
    """The sockets of the others, and our own."""

    def __init__(self, path: Path, on_datagrams: Callable[[Sequence[bytes]], None]) -> None:
        self._path = path
        self._on_datagrams = on_datagrams
        self._directory = path.with_name(path.name + SUFFIX)
        self._fd = -1
        self._name = ""
        self._own: socket.socket | None = None
        self._found: dict[str, socket.socket] = {}
        self._behind: set[str] = set()  # those that a datagram was dropped for
        self._listed_ns = 0  # when the directory had changed last, as it was listed
        self._refusing: set[str] = set()
        self._suspects: set[str] = set()  # those that were refusing when `look` was called last
        self.trouble = "it is not open"

    @property
    def labels(self) -> frozenset[str]:
        """The processes that can be reached, and this one."""
        names = (*self._found, self._name) if self._own else self._found
        return frozenset(name.rpartition("-")[0] for name in names)

    @property
    def directory(self) -> Path:
        return self._directory

    def __len__(self) -> int:
        return len(self._found)

    # -- coming and going

    def open(self) -> None:
        """Make a socket and greet the others, or say what the trouble is."""
        path = self._path.resolve()  # as SQLite does for its own files: the name may be a link
        self._directory = path.with_name(path.name + SUFFIX)
        try:
            self._register(path)
            self.trouble = ""
            self._find()
        except (OSError, NotImplementedError) as error:
            self.close()
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            self.trouble = f"no socket can be made in {self._directory}: {reason}"

    def close(self) -> None:
        """Leave, and leave nothing behind."""
        _OPEN.discard(self)
        self.trouble = "it is not open"
        if self._own is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed before
                asyncio.get_running_loop().remove_reader(self._own)
            with contextlib.suppress(OSError):
                os.unlink(self._name, dir_fd=self._fd)
        self.abandon()
        with contextlib.suppress(OSError):  # others are still there
            self._directory.rmdir()

    def abandon(self) -> None:
        """Let go of the sockets and change nothing else: in a forked process they are those of its parent."""
        for each in (self._own, *self._found.values()):
            if each is not None:
                each.close()
        if self._fd >= 0:
            os.close(self._fd)
        self._own, self._fd, self._name = None, -1, ""
        self._found.clear()
        self._behind.clear()
        self._refusing.clear()
        self._suspects.clear()

    def _register(self, path: Path) -> None:
        file = path.stat()
        for left in reversed(range(_TRIES)):
            try:
                self._bind(file)
            except FileNotFoundError:  # the last process that was there has removed the directory this very moment
                self.abandon()
                if not left:
                    raise
            else:
                break
        assert self._own is not None
        _give(self._name, stat.S_IMODE(file.st_mode) & 0o666, file, dir_fd=self._fd)
        asyncio.get_running_loop().add_reader(self._own, self._receive)
        _OPEN.add(self)

    def _bind(self, file: os.stat_result) -> None:
        # Not from the port of ids: what a test may seed could give two processes the same name.
        name = f"{label(socket.gethostname(), os.getpid())}-{secrets.token_hex(6)}"
        self._fd = _directory(self._directory, file)
        self._own = _datagrams()
        self._own.bind(self._address(name))
        self._name = name

    def _address(self, name: str) -> str:
        """What the system takes for the path of a socket. It is short; a path through a descriptor always fits."""
        direct = self._directory / name
        return str(direct) if len(os.fsencode(direct)) <= _ADDRESS_MAX else f"/proc/self/fd/{self._fd}/{name}"

    # -- sending and receiving

    def send(self, datagram: bytes) -> None:
        """Tell all that are there. Never waits."""
        for name, peer in tuple(self._found.items()):
            self._send(name, peer, EVERYTHING if name in self._behind else datagram)

    def _send(self, name: str, peer: socket.socket, datagram: bytes) -> None:
        try:
            peer.send(datagram)
        except OSError as error:
            if error.errno == errno.EMSGSIZE and datagram:
                self._send(name, peer, EVERYTHING)
                return
            if error.errno in _NO_ROOM:
                self._behind.add(name)
                return
            self._drop(name)
            if error.errno == errno.ECONNREFUSED:
                self._remove(name)
        else:
            self._behind.discard(name)

    def _receive(self) -> None:
        assert self._own is not None
        datagrams: list[bytes] = []
        with contextlib.suppress(BlockingIOError):
            while len(datagrams) < _DRAIN_MAX:
                datagrams.append(self._own.recv(DATAGRAM_MAX))
        if EVERYTHING in datagrams or len(datagrams) >= _CROWD:
            with contextlib.suppress(OSError):  # no descriptor is left to list it; what came counts all the same
                self._find()
            datagrams = [EVERYTHING]
        if datagrams:
            self._on_datagrams(datagrams)

    # -- who is there

    def look(self) -> None:
        """Make good, now and then, for what was missed: peers that came or died, a name of ours that was removed."""
        try:
            os.stat(self._name, dir_fd=self._fd)
            if os.fstat(self._fd).st_mtime_ns != self._listed_ns or self._refusing:
                self._find()
        except OSError:
            self.close()
            self.open()
            return
        for name in self._suspects & self._refusing:
            self._remove(name)
        self._suspects = self._refusing = self._refusing - self._suspects

    def _find(self) -> None:
        changed_ns = os.fstat(self._fd).st_mtime_ns
        self._listed_ns = 0  # what cannot be listed is listed at the next look, though nothing changes until then
        names = {name for name in os.listdir(self._fd) if name != self._name}  # noqa: PTH208 - a path takes no descriptor
        self._listed_ns = changed_ns
        for name in self._found.keys() - names:
            self._drop(name)
        self._refusing = {name for name in names - self._found.keys() if not self._connect(name)}

    def _connect(self, name: str) -> bool:
        """False if it is a socket, and no process has it."""
        try:
            if not stat.S_ISSOCK(os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mode):
                return True  # none of ours
        except OSError:
            return True  # it has gone
        try:
            peer = _datagrams()
        except OSError:
            self._listed_ns = 0  # this process has no descriptor left; the next look may find one
            return True
        try:
            peer.connect(self._address(name))
        except OSError as error:
            peer.close()
            return error.errno != errno.ECONNREFUSED
        self._found[name] = peer
        self._send(name, peer, EVERYTHING)
        return True

    def _drop(self, name: str) -> None:
        self._found.pop(name).close()
        self._behind.discard(name)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError):  # another one was faster, or it is not ours to remove
            os.unlink(name, dir_fd=self._fd)


def _datagrams() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made


def _directory(directory: Path, file: os.stat_result) -> int:
    """A descriptor of the directory, which is made if it is missing."""
    mode = stat.S_IMODE(file.st_mode) & 0o666
    with contextlib.suppress(FileExistsError):
        directory.mkdir(0o700)
        _give(str(directory), mode | (mode & 0o444) >> 2, file)  # who may read the file may enter
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    if not _is_as_private(os.fstat(fd), file):
        os.close(fd)
        raise PermissionError(errno.EPERM, "the directory is open to others than the file is; remove it")
    return fd


def _give(target: str, mode: int, file: os.stat_result, *, dir_fd: int | None = None) -> None:
    """To those who have the file: its owner, if we may, its group and its permissions."""
    with contextlib.suppress(OSError):
        os.chown(target, file.st_uid if os.geteuid() == 0 else -1, file.st_gid, dir_fd=dir_fd)
    is_of_its_group = os.stat(target, dir_fd=dir_fd).st_gid == file.st_gid
    os.chmod(target, mode if is_of_its_group else mode & 0o707, dir_fd=dir_fd)


def _is_as_private(directory: os.stat_result, file: os.stat_result) -> bool:
    """Whether those who may write into the directory may write the file.

    What is sent names runs and workflows. In a directory such as /tmp another user may have made it first, to listen.
    """
    group_writes = bool(file.st_mode & stat.S_IWGRP) and directory.st_gid == file.st_gid
    all_write = bool(file.st_mode & stat.S_IWOTH)
    return (
        (directory.st_uid in {file.st_uid, os.geteuid(), 0} or group_writes or all_write)
        and (group_writes or not directory.st_mode & stat.S_IWGRP)
        and (all_write or not directory.st_mode & stat.S_IWOTH)
    )


_OPEN: WeakSet[Peers] = WeakSet()


def _let_go() -> None:
    """A forked process that kept the sockets would seem to be its parent, and go on doing so when that is dead."""
    for peers in tuple(_OPEN):
        peers.abandon()
    _OPEN.clear()


os.register_at_fork(after_in_child=_let_go)
