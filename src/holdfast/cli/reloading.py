"""`dev --reload`: the work is done by a child process, which is started again whenever a file of the packs changes.

Only the code is exchanged: runs go on from their journal, as after any restart. A child that cannot start has said
why; the next change starts it again.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path

from holdfast.adapters.machine import SystemClock
from holdfast.cli.output import Output

LOOK_SECONDS = 0.5


async def supervise(arguments: list[str], packs: Iterable[str], out: Output) -> None:
    """Run `holdfast` with these arguments until SIGTERM or SIGINT, again for each change of the packs' files."""
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    roots = [_root(name) for name in packs]
    while not asked.is_set():
        child = await asyncio.create_subprocess_exec(sys.executable, "-m", "holdfast", *arguments)
        stop, change = asyncio.create_task(asked.wait()), asyncio.create_task(_change(roots))
        await asyncio.wait({stop, change}, return_when=asyncio.FIRST_COMPLETED)
        if change.done():
            out.note(f"{change.result()} has changed: starting again.", "yellow")
        stop.cancel()
        change.cancel()
        if child.returncode is None:
            child.terminate()
        await child.wait()


def _root(name: str) -> Path:
    """The directory, or the file, where a pack's code is."""
    top = name.partition(":")[0].partition(".")[0]
    spec = PathFinder.find_spec(top, [str(Path.cwd()), *sys.path])
    if spec is not None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path.cwd() / f"{top}.py" if spec is None or spec.origin is None else Path(spec.origin)


async def _change(roots: list[Path]) -> Path:
    """The first file that is not as it was."""
    clock = SystemClock()
    before = _stamps(roots)
    while True:
        await clock.pause(LOOK_SECONDS)
        now = _stamps(roots)
        if changed := now.items() ^ before.items():
            return min(changed)[0]


def _stamps(roots: list[Path]) -> dict[Path, int]:
    files = (file for root in roots for file in (root.rglob("*.py") if root.is_dir() else [root]))
    return {file: file.stat().st_mtime_ns for file in files if file.exists()}
