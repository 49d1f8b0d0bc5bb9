"""The pack of the tests of many processes: its effects say in which process they were performed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast import Pack

whereabouts = Pack("whereabouts")


@whereabouts.effect
async def look(name: str) -> int:
    return os.getpid()


@whereabouts.workflow(key="where:{name}")
async def where(name: str) -> int:
    """The id of the process that performed its effect."""
    return await look(name)


@whereabouts.effect
async def stay(folder: str) -> int:
    begun = Path(folder)
    (begun / str(os.getpid())).touch()  # so that a test knows where it is
    while not (begun / "go").exists():
        await asyncio.sleep(0.02)
    return os.getpid()


@whereabouts.workflow(key="held:{folder}")
async def held(folder: str) -> int:
    """As `where`, but the effect ends when there is a file `go`."""
    return await stay(folder)


@whereabouts.effect
def inherit(name: str) -> list[str]:
    """What of its supervisor a process that an effect starts would see: variables, and sockets."""
    variables = [variable for variable in os.environ if "SUPERVISED" in variable]
    inheritable = [str(Path(f"/proc/self/fd/{fd}").readlink()) for fd in range(3, 256) if _is_inheritable(fd)]
    return [*variables, *(each for each in inheritable if each.startswith("socket:"))]


@whereabouts.workflow(key="heir:{name}")
async def heir(name: str) -> list[str]:
    return await inherit(name)


def _is_inheritable(fd: int) -> bool:
    try:
        return os.get_inheritable(fd)
    except OSError:
        return False
