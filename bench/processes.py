"""Child processes that live exactly as long as a block, and are ended by their own id."""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

STOP_S = 20.0


@asynccontextmanager
async def running(command: Sequence[str], *, log: Path) -> AsyncGenerator[Process, None]:
    """The command as a process; all that it says goes to the end of `log`."""
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield process
    finally:
        await _stop(process)


async def _stop(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_S)
    except TimeoutError:
        # Its group too, which is its own: a parent killed alone would leave its children behind.
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
