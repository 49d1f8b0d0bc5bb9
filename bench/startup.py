"""How long processes take to begin: their own processor time, since on a busy machine the clock measures the others.

Bytecode is written first, as an installation does it: without it, each process would compile all that it imports.
"""

import asyncio
import os
import statistics
import sys
from collections import defaultdict
from pathlib import Path

COMMANDS = {
    "pass_ms": [sys.executable, "-c", "pass"],
    "asyncio_ms": [sys.executable, "-c", "import asyncio"],
    "import_ms": [sys.executable, "-c", "import holdfast"],
    "names_ms": [sys.executable, "-c", "from holdfast import Holdfast, Pack"],
    "help_ms": [str(Path(sys.executable).with_name("holdfast")), "--help"],
}


async def start_ups(_contender: object, size: int) -> dict[str, float]:
    """Medians of `size` rounds, in which the commands take turns. A thread waits, so that the contender goes on."""
    return await asyncio.to_thread(_rounds, size)


def _rounds(size: int) -> dict[str, float]:
    taken: defaultdict[str, list[float]] = defaultdict(list)
    for turn in range(-1, size):
        for figure, command in COMMANDS.items():
            seconds = _processor_seconds(command)
            if turn >= 0:  # the round before the first one writes the bytecode
                taken[figure].append(seconds)
    return {figure: statistics.median(seconds) * 1000 for figure, seconds in taken.items()}


def _processor_seconds(command: list[str]) -> float:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    silent = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
    process = os.posix_spawn(command[0], command, environment, file_actions=[silent])
    _, status, usage = os.wait4(process, 0)
    assert os.waitstatus_to_exitcode(status) == 0, command
    return usage.ru_utime + usage.ru_stime
