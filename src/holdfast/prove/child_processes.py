"""Other processes of this Python, which import what this one can import. Their stdout carries one reply."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import NamedTuple


class ChildEnd(NamedTuple):
    """How a process has ended, and what it wrote."""

    code: int | None
    output: bytes
    errors: bytes

    @property
    def last_words(self) -> str:
        """The last line of what it wrote about errors: of a traceback, the error itself."""
        return self.errors.decode(errors="replace").strip().rpartition("\n")[2]


async def run_module(
    module: str, *arguments: str, environment: Mapping[str, str] | None = None, limit_seconds: float | None = None
) -> ChildEnd:
    """Execute `python -m module` until it has ended. Raises `TimeoutError`, and kills it, if that takes too long."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **(environment or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(limit_seconds):
            output, errors = await process.communicate()
    except (TimeoutError, asyncio.CancelledError):
        process.kill()
        await process.wait()
        raise
    return ChildEnd(process.returncode, output, errors)


def reply_descriptor() -> int:
    """Where such a process writes its reply: its stdout so far. What else is printed goes to stderr from now on.

    To be called before any module of the user is imported: it may print, and so may what it calls.
    """
    descriptor = os.dup(1)
    os.dup2(2, 1)
    return descriptor
