"""What Python does for the whole process, made safe for workflows.

- Blocking calls in a workflow would stop every run of the process. They raise a `UsageError` that names the cure.
- `asyncio.as_completed` orders by memory address. In a workflow it orders by what it was given.

Both look at the running event loop, and change nothing outside a workflow.
"""

from __future__ import annotations

import asyncio
import functools
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.engine.loop import WorkflowLoop
from holdfast.errors import UsageError


def _in_order(as_completed: Callable[..., Any]) -> Callable[..., Any]:
    """`asyncio.as_completed` makes its tasks in the order of a set; in a workflow they are made in the order given."""

    @functools.wraps(as_completed)
    def in_order(fs: Iterable[Any], **options: Any) -> Any:
        loop = asyncio._get_running_loop()  # noqa: SLF001
        if isinstance(loop, WorkflowLoop):
            fs = [asyncio.ensure_future(awaitable, loop=loop) for awaitable in fs]
        return as_completed(fs, **options)

    return in_order


asyncio.as_completed = asyncio.tasks.as_completed = _in_order(asyncio.as_completed)

_BLOCKING = {
    "time.sleep": "await holdfast.sleep(...)",
    "socket.connect": "an effect",
    "socket.bind": "an effect",
    "socket.getaddrinfo": "an effect",
    "subprocess.Popen": "an effect",
    "os.system": "an effect",
    "open": "an effect",
}
_guarding = False


def forbid_blocking_calls() -> None:
    """From now on, blocking calls in a workflow raise a `UsageError` instead of stopping every other run."""
    global _guarding  # noqa: PLW0603 - an audit hook is for the whole process and for ever
    if not _guarding:
        _guarding = True
        sys.addaudithook(_refuse_blocking)
        if sys.version_info < (3, 13):  # only since then does time.sleep announce itself
            time.sleep = _announced(time.sleep)


def _announced(sleep: Callable[[float], None]) -> Callable[[float], None]:
    @functools.wraps(sleep)
    def announce(seconds: float, /) -> None:
        _refuse_blocking("time.sleep", (seconds,))
        sleep(seconds)

    return announce


def _refuse_blocking(event: str, args: tuple[Any, ...]) -> None:
    cure = _BLOCKING.get(event)
    if cure is None or not isinstance(asyncio._get_running_loop(), WorkflowLoop):  # noqa: SLF001
        return
    if event == "open" and not _is_data(args):
        return
    raise UsageError(f"a workflow called {event}, which blocks every run of this process", hint=f"Use {cure} instead.")


def _is_data(args: tuple[Any, ...]) -> bool:
    # Python itself opens files while a module is imported, a traceback is written or a time zone is looked up.
    path = str(args[0])
    return not (path.endswith((".py", ".pyc", ".so")) or "zoneinfo" in path)
