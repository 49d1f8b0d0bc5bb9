"""The gate's work for replicas in which a bug can be planted while they run, and taken out again.

A file says which bug of `tests.gate.planted` is to be there; an empty file, none. Each replica looks at it a few times
a second, and says beside it what it has planted: so one installation serves for many bugs.
"""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from pathlib import Path

from holdfast.lab.gate.replica import pack
from tests.gate.planted import PLANTED

__all__ = ["pack"]

FILE = "HOLDFAST_GATE_PLANTED"
LOOK_SECONDS = 0.05


def acknowledged(file: Path, pid: int) -> str | None:
    """What this process has planted."""
    told = file.with_name(f"{file.name}-{pid}")
    return told.read_text() if told.exists() else None


def _follow(file: Path) -> None:
    pause = threading.Event()
    planted, stack = "", ExitStack()
    while True:
        wanted = file.read_text()
        if wanted != planted:
            stack.close()
            planted, stack = wanted, ExitStack()
            if wanted:
                stack.enter_context(PLANTED[wanted].plant())
        told = file.with_name(f"{file.name}-{os.getpid()}")
        if not told.exists() or told.read_text() != planted:
            told.write_text(planted)
        pause.wait(LOOK_SECONDS)


if FILE in os.environ:
    threading.Thread(target=_follow, args=(Path(os.environ[FILE]),), daemon=True).start()
