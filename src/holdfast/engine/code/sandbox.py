"""What Python does for the whole process, made safe for workflows.

- Blocking calls in a workflow would stop every run of the process. They raise a `UsageError` that names the cure.
- `asyncio.as_completed` makes its tasks in the order of memory addresses. In a workflow it makes them in the order in
  which the awaitables were given, and refuses what has no order.
- The collector of cycles runs code of one run while another is being executed. Meanwhile no run is the running one.
- The future of a `gather` hashes by its memory address. In a workflow it hashes by its place in the run. So do the
  cancel scopes of anyio, by the task that entered them: a scope cancels those within it in the order of a set.

All of it looks at the event loop, and changes nothing outside a workflow. Nothing is changed by an import: what holds
for the whole process is arranged where the code of runs is about to be executed, by a worker or by a replay check.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
import inspect
import sys
import time
import types
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.engine.code.loop import WorkflowLoop, step_aside_for_the_collector
from holdfast.engine.code.tasks import WorkflowTask
from holdfast.errors import UsageError

_as_completed: Callable[..., Any] | None = None  # as Python has it, once ours is in its place


def keep_order() -> None:
    """From now on, asyncio deals the same step to the same awaitable of a workflow in every process."""
    global _as_completed  # noqa: PLW0603 - a function of asyncio is for the whole process
    _keep_order_of_scopes()
    if _as_completed is not None:
        return
    theirs = inspect.unwrap(asyncio.as_completed)  # other libraries may have wrapped it
    if isinstance(theirs, types.FunctionType) and not theirs.__code__.co_freevars:
        # Not the name is given another function, but the function other code: it may have been imported by its name.
        _as_completed = types.FunctionType(theirs.__code__, theirs.__globals__, theirs.__name__, theirs.__defaults__)
        _as_completed.__kwdefaults__ = theirs.__kwdefaults__
        theirs.__code__ = _code_in_order.__code__
    else:  # it is no plain function: only the name is left
        _as_completed = asyncio.as_completed
        asyncio.as_completed = asyncio.tasks.as_completed = in_order
    gathering: Any = getattr(asyncio.tasks, "_GatheringFuture", None)
    if gathering is not None:
        gathering.__hash__ = _place_of


def _keep_order_of_scopes() -> None:
    # Packs are imported before a worker begins: if anyio is not by now, no workflow uses it.
    if "anyio" in sys.modules:
        scope: Any = importlib.import_module("anyio._backends._asyncio").CancelScope
        scope.__hash__ = _place_of_scope


def _place_of_scope(scope: Any) -> int:
    entered_by = getattr(scope, "_host_task", None)  # before it is entered, it is in no set of anyio's
    return hash(entered_by) if isinstance(entered_by, WorkflowTask) else object.__hash__(scope)


def keep_the_collector_out() -> None:
    """From now on, what the garbage collector runs reaches no run."""
    if step_aside_for_the_collector not in gc.callbacks:
        gc.callbacks.append(step_aside_for_the_collector)


def _code_in_order(fs: Any, *, timeout: float | None = None) -> Any:
    from holdfast.engine.code.sandbox import in_order  # noqa: PLC0415 - it is executed with the names of asyncio.tasks

    return in_order(fs, timeout=timeout)


def in_order(fs: Iterable[Any], **options: Any) -> Any:
    """`asyncio.as_completed` with tasks that are made in the order given, if a workflow calls it."""
    assert _as_completed is not None
    loop = asyncio._get_running_loop()  # noqa: SLF001
    if isinstance(loop, WorkflowLoop) and not asyncio.isfuture(fs) and not asyncio.iscoroutine(fs):
        _refuse_disorder(fs)
        fs = [asyncio.ensure_future(awaitable, loop=loop) for awaitable in fs]
    return _as_completed(fs, **options)


def _refuse_disorder(fs: Iterable[Any]) -> None:
    """Refuse a set whose order is another in each process, if tasks would be made in that order.

    One member that hashes by its address is enough: it moves the others, whose hashes fall into its place.
    """
    if not isinstance(fs, set | frozenset) or all(type(each).__hash__ is not object.__hash__ for each in fs):
        return
    to_begin = [each for each in fs if not asyncio.isfuture(each)]
    if len(to_begin) > 1:
        for each in to_begin:
            if asyncio.iscoroutine(each):
                each.close()  # it is not going to be awaited
        raise UsageError(
            f"as_completed() was given a set of {len(to_begin)} awaitables, which has another order in each process",
            hint="Pass them in a list.",
        )


def _place_of(future: asyncio.Future[Any]) -> int:
    loop = future.get_loop()
    return loop.place_of(future) if isinstance(loop, WorkflowLoop) else object.__hash__(future)


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
    global _guarding  # noqa: PLW0603 - an audit hook is for the whole process, forever
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
