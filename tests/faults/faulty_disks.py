"""Disks that misbehave, put beneath SQLite as its file system. No privileges needed, and exact to the call.

FailingDisk   every sync fails while a flag is raised
LosingDisk    keeps a second copy of each file, into which only synced writes go: what a power loss would leave
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import apsw

BELOW = "unix"


class FailingDisk(apsw.VFS):
    """EIO from every sync, while the flag is there."""

    def __init__(self, flag: Path) -> None:
        self._flag = flag
        super().__init__("failing", BELOW, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        return _FailingFile(name, flags, self._flag)


class _FailingFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], flag: Path) -> None:
        self._flag = flag
        super().__init__(BELOW, name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._flag.exists():
            raise apsw.IOError("Input/output error")
        super().xSync(flags)


class LosingDisk(apsw.VFS):
    """Copies synced writes to `survives`, and nothing else. For one process at a time."""

    def __init__(self, survives: Path) -> None:
        survives.mkdir(exist_ok=True)
        self._survives = survives
        self._pending: dict[str, list[tuple[int, bytes | None]]] = {}
        super().__init__("losing", BELOW, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        return _LosingFile(name, flags, self, path)

    def xDelete(self, name: str, sync_directory: bool) -> None:  # noqa: N802
        super().xDelete(name, sync_directory)
        with contextlib.suppress(FileNotFoundError):
            (self._survives / Path(name).name).unlink()

    def wrote(self, path: str, offset: int, data: bytes | None) -> None:
        """Remember a write, or a truncation (without data), until it is synced."""
        self._pending.setdefault(path, []).append((offset, data))

    def synced(self, path: str) -> None:
        """What was written to this file survives from now on."""
        file = os.open(self._survives / Path(path).name, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            for offset, data in self._pending.pop(path, []):
                if data is None:
                    os.ftruncate(file, offset)
                else:
                    os.pwrite(file, data, offset)
        finally:
            os.close(file)


class _LosingFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], disk: LosingDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        super().__init__(BELOW, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        super().xWrite(data, offset)
        self._disk.wrote(self._path, offset, bytes(data))

    def xTruncate(self, size: int) -> None:  # noqa: N802
        super().xTruncate(size)
        self._disk.wrote(self._path, size, None)

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._disk.synced(self._path)
