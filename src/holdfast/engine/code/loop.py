"""The event loop of one workflow: deterministic asyncio, without a selector, threads or a clock.

Rules
- It runs callbacks in the order in which they became ready, until none is. Nothing else makes it move, so "the
  workflow is blocked" is a fact and not a guess.
- Its time is what the engine says: the instant of the last thing that was delivered to the run.
- A timer is a step of the run. It fires when the engine delivers it, never by itself.
- Whatever belongs to the world (sockets, threads, subprocesses, real time) is refused, see `isolated_loop`.
- Each task knows its lineage, so that steps are numbered per task.
- What Python runs to free memory (`finally` blocks of abandoned generators, `__del__`, callbacks of weak references) is
  code of the run if its last reference went away in the run's own code: that is the same on every replay. What the
  collector of cycles runs, at any moment and in whatever is executed then, reaches no run.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from asyncio import _get_running_loop, _set_running_loop, futures
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from sys import get_asyncgen_hooks
from typing import Any, Protocol, cast

from holdfast.calls import Call
from holdfast.engine.code.generators import GeneratorOwner, on_begun, tell_apart
from holdfast.engine.code.isolated_loop import IsolatedLoop
from holdfast.engine.code.lineage import LINEAGE, outside_of_its_run
from holdfast.engine.code.tasks import Handle, WorkflowFuture, WorkflowTask
from holdfast.engine.code.turns import HERE, HeldUp
from holdfast.errors import UsageError
from holdfast.kernel.replay import TaskLineage
from holdfast.kernel.times import EPOCH, Instant
from holdfast.kernel.units import DURATION_MS_MAX
from holdfast.workflow import WorkflowScope

_swap_task = getattr(asyncio.tasks, "_swap_current_task", None) if sys.version_info >= (3, 14) else None
_ANYIO_REPEATS = "_deliver_cancellation"  # the method of its cancel scopes that asks to be called again in every turn
_SLEEP_CALLBACK = getattr(futures, "_set_result_unless_cancelled", None)

CALLBACKS_AT_ONCE = 500  # some ten milliseconds; a lease must be renewed in between, however wide the code fans out

_GONE: Any = None
_PLACE = "_holdfast_place"


class Timer(asyncio.TimerHandle):
    """A durable timer: a step of the run, with the instant at which it is due."""

    step: str = ""
    due_at_ms: Instant = EPOCH


class LoopScope(WorkflowScope, Protocol):
    """The scope of a run, as its loop needs it."""

    def may_set_timer(self) -> bool:
        """Whether the code may wait for a timer."""
        ...


class Timers(Protocol):
    """The timers that the code waits for."""

    def set_timer(self, timer: Timer) -> None: ...
    def cancel_timer(self, timer: Timer) -> None: ...


class WorkflowLoop(IsolatedLoop, GeneratorOwner):
    """Drives the coroutine of one run. `holdfast` is the run's scope, found there by the authoring functions."""

    def __init__(self, holdfast: LoopScope, timers: Timers, withholds: Callable[[WorkflowTask], bool]) -> None:
        self.holdfast = holdfast
        self._timers = timers
        self._withholds = withholds
        self.now_ms = EPOCH
        self._ready: deque[Handle | asyncio.Handle] = deque()
        self._tasks: list[WorkflowTask] = []
        self._turn = HERE.turn  # of the thread that makes and runs this loop
        self._evicted = False
        self._repeated: deque[Handle] | None = None  # cancellations that anyio delivers again and again
        self._outer: asyncio.AbstractEventLoop | None = None  # what is set aside while this loop runs
        self._outer_task: Any = None
        self.held_up_at = ""  # the line at which its code was interrupted: nothing of it can be relied on since
        self.is_irregular = False  # it was held up, or has dropped a call: looked at when it is quiet

    # Python looks up what a class has a default for the slow way, also when the instance has it. So only what is seldom
    # read is a default.
    _made = 0
    _places = 0  # apart from the former: journals of runs under way rely on how tasks hash
    _tasks_kept = 64

    # -- driven by the engine

    def start(self, coroutine: Coroutine[Any, Any, Any], *, path: str = "") -> WorkflowTask:
        """A root task of the run. Its context is empty: nothing of the process leaks into the run."""
        context = contextvars.Context()
        context.run(LINEAGE.set, TaskLineage(path))
        return self._task(coroutine, name="Task", context=context)

    def tasks(self) -> list[WorkflowTask]:
        """The tasks that have not ended, in the order in which they were made."""
        return [task for task in self._tasks if not task.done()]

    def run_some(self) -> bool:
        """Run what is ready, or as much as takes no time worth mentioning; whether there is more.

        The caller's own loop is set aside meanwhile, and with it everything that this process does otherwise.
        """
        ready, left, turn = self._ready, CALLBACKS_AT_ONCE, self._turn
        self._enter()
        try:
            turn.is_inside = True
            try:
                while ready and left:
                    left -= 1
                    turn.steps += 1
                    handle = ready.popleft()
                    if not handle._cancelled:  # noqa: SLF001 - asyncio's own loops call its private `_run`
                        try:
                            handle._context.run(handle._callback, *handle._args)  # noqa: SLF001
                        except (SystemExit, KeyboardInterrupt):
                            raise
                        except BaseException:  # noqa: BLE001, S110 - a callback's error is not the loop's, as in asyncio
                            pass
            finally:
                turn.is_inside = False
                if turn.is_firing:
                    self.held_up_at, self.is_irregular = turn.settle(), True
        except HeldUp:  # it came at a line of ours
            turn.is_inside = False
            self.held_up_at, self.is_irregular = turn.settle(), True
        finally:
            self._leave()
        return bool(ready) or (self._repeated is not None and self._repeat_cancellations())

    def _repeat_cancellations(self) -> bool:
        """Deliver the cancellations of anyio once more; whether that made something ready.

        anyio asks for it in every turn of the loop until the cancelled code has ended, which may be a week if the code
        is in a shield. Here that is done whenever the code is quiet otherwise. What then moves nothing is left until
        the engine delivers something: otherwise the run would never be quiet.
        """
        repeated, self._repeated = self._repeated or (), None
        self._enter()
        try:
            for handle in repeated:
                if not handle.cancelled():
                    handle._context.run(handle._callback, *handle._args)  # noqa: SLF001
        finally:
            self._leave()
        return bool(self._ready)

    def _enter(self) -> None:
        """Become the running loop. The one of the caller is set aside."""
        if get_asyncgen_hooks().firstiter is not on_begun:
            tell_apart()
        self._outer = outer = _get_running_loop()
        # Since 3.14 a thread has one current task, whatever the loop: the worker's own is set aside too.
        self._outer_task = _swap_task(outer, None) if _swap_task is not None and outer is not None else None
        # At last: a collection may come between any two of these lines, and asks the running loop to leave.
        _set_running_loop(self)

    def _leave(self) -> None:
        _set_running_loop(self._outer)
        if _swap_task is not None and self._outer is not None:
            _swap_task(self._outer, self._outer_task)

    def step_aside(self) -> Callable[[], None]:
        """Let others run as if this run were not being executed; returns what makes it the running loop again.

        The context variables stay: Python 3.11 collects in the middle of setting one, and would crash if another were
        set then. A reader of the lineage makes sure that its own run is being executed.
        """
        task = None if _swap_task is None else _swap_task(self, None)
        self._leave()

        def step_back() -> None:
            self._enter()
            if _swap_task is not None:
                _swap_task(self, task)

        return step_back

    def is_here(self) -> bool:
        """Whether the code that is being executed is that of this run."""
        return _get_running_loop() is self

    def refuse_elsewhere(self) -> None:
        """Raise a `UsageError` if the code that is being executed is not that of this run."""
        if not self.is_here():
            raise outside_of_its_run()

    def finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        # Left by the last reference in its own run, it is closed as a task of the run. Anywhere else, its code is not
        # executed at all: Python frees a generator whose finalizer did nothing.
        if self.is_here() and not self._evicted:
            self.create_task(generator.aclose())

    def evict(self) -> None:
        """Forget the run: close its coroutines without letting them reach the engine again."""
        self._evicted = True
        if left := self.tasks():
            # A `finally` inside a `finally` may be finalized by Python itself, which prints what it raises.
            hook, sys.unraisablehook = sys.unraisablehook, _say_nothing
            self._enter()
            try:
                _close_all(left)
            finally:
                self._leave()
                sys.unraisablehook = hook
        if self.generators:
            self.leave_generators()
        self._tasks.clear()
        self._ready.clear()
        self._repeated = None
        # Loop, machine and tasks refer to each other. Thousands of runs a second would keep the collector busy.
        self.holdfast = self._timers = self._outer = _GONE

    # -- what asyncio needs of a loop

    def time(self) -> float:
        return self.now_ms / 1000

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if context is None:  # elsewhere it would be the context of another run
            context = contextvars.copy_context() if self.is_here() else contextvars.Context()
            if getattr(callback, "__name__", "") == _ANYIO_REPEATS and not self._evicted:
                repeated = Handle(callback, args, context)
                self._repeated = self._repeated or deque()
                self._repeated.append(repeated)
                return repeated  # pyright: ignore[reportReturnType]
        handle = Handle(callback, args, context)
        if not self._evicted:
            self._ready.append(handle)
        return handle  # pyright: ignore[reportReturnType] - it can all that is done with one

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        if self._evicted:  # it never fires. Refused, code that catches everything and tries again would never end
            return Timer(when, callback, args, self, context)
        if _set_aside.step_back is not None:
            raise outside_of_its_run()
        timer = Timer(when, callback, args, self, context)
        timer.due_at_ms = self._due_at_ms(when)
        if timer.due_at_ms <= self.now_ms:
            self._ready.append(timer)
        elif self.holdfast.may_set_timer():
            timer.step = LINEAGE.get().step("sleep" if callback is _SLEEP_CALLBACK else "timeout")
            timer._scheduled = True  # noqa: SLF001 - so that cancel() reports it back
            self._timers.set_timer(timer)
        return timer

    def _due_at_ms(self, when: float) -> Instant:
        if when != when:  # noqa: PLR0124 - NaN
            raise UsageError("a workflow waits until NaN", hint="Pass a number of seconds.")
        latest_at_ms = self.now_ms + DURATION_MS_MAX  # "forever" must fit into a store
        return latest_at_ms if when * 1000 >= latest_at_ms else Instant(round(when * 1000))

    def fire(self, timer: Timer) -> None:
        """Deliver a timer that has come due."""
        timer._scheduled = False  # noqa: SLF001
        self._ready.append(timer)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if isinstance(handle, Timer) and handle._scheduled and self.is_here():  # noqa: SLF001
            self._timers.cancel_timer(handle)

    def place(self) -> int:
        """The next number for what is not a task or a future of this loop, and must hash alike on every replay."""
        self._places += 1
        return self._places

    def place_of(self, future: asyncio.Future[Any]) -> int:
        """The place of a future that asyncio has made by itself: given when it is first hashed."""
        place = getattr(future, _PLACE, None)
        if place is None:
            place = self.place()
            setattr(future, _PLACE, place)
        return place

    def create_future(self) -> asyncio.Future[Any]:
        self._made += 1
        return WorkflowFuture(self._made, loop=self)

    def create_task(  # pyright: ignore[reportIncompatibleMethodOverride] - calls may be given where asyncio wants coroutines
        self,
        coro: Coroutine[Any, Any, Any] | Awaitable[Any],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **_: Any,
    ) -> asyncio.Task[Any]:
        if isinstance(coro, Call):
            coro.is_taken = True  # the task may be cancelled before it begins
            coro = _awaiting(coro)
        elif not asyncio.iscoroutine(coro):
            coro = _awaiting(coro)
        if self._evicted:
            coro.close()
            return cast(
                "asyncio.Task[Any]", self.create_future()
            )  # it never ends; the code that awaits it is closed too
        context = contextvars.copy_context() if context is None else context.copy()
        if not self.is_here():
            coro.close()
            raise outside_of_its_run()
        lineage = LINEAGE.get().child()
        context.run(LINEAGE.set, lineage)
        return self._task(coro, name=name or f"Task-{lineage.path}", context=context)

    def _task(self, coro: Coroutine[Any, Any, Any], *, name: str | None, context: contextvars.Context) -> WorkflowTask:
        self._made += 1
        task = WorkflowTask(coro, loop=self, name=name, context=context)
        task.order, task.withholds, task.context = self._made, self._withholds, context
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_kept:  # forget ended tasks now and then, not each time
            self._tasks = [task for task in self._tasks if not task.done()]
            self._tasks_kept = max(64, 2 * len(self._tasks))
        return task

    def get_task_factory(self) -> None:
        """None, as in a plain loop of asyncio: anyio asks before it makes a task."""

    def set_task_factory(self, factory: object) -> None:
        if factory is not None:
            raise UsageError(
                "a workflow set a task factory, and its tasks are made by the engine",
                hint="Leave it as it is: a task factory is for the loops of your own process.",
            )

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        # asyncio reports what was never awaited: an exception in a task that was dropped, or tasks still pending when
        # a run is let go. Neither changes what the run does, and both happen again on every replay.
        del context

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        del context

    # It says False, and is no function of Python: asyncio asks for each future and each task that is made.
    get_debug = staticmethod(bool)  # pyright: ignore[reportAssignmentType] - it is called as the method would be

    def set_debug(self, enabled: bool) -> None:  # noqa: FBT001 - asyncio's signature
        del enabled

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    async def shutdown_asyncgens(self) -> None:
        """Async generators end with their run."""

    @property
    def is_evicted(self) -> bool:
        return self._evicted


class _SetAside(threading.local):
    """The run that is set aside while the collector works in this thread."""

    step_back: Callable[[], None] | None = None


_set_aside = _SetAside()


def step_aside_for_the_collector(phase: str, info: dict[str, int]) -> None:
    """For `gc.callbacks`. What a collection runs may be of any run: none of them is the running one meanwhile."""
    del info
    if phase == "start":
        _set_aside.step_back = None
        loop = _get_running_loop()
        if isinstance(loop, WorkflowLoop) and _has_room(_FRAMES):
            _set_aside.step_back = loop.step_aside()
    elif (step_back := _set_aside.step_back) is not None:
        _set_aside.step_back = None
        step_back()


_FRAMES = 10  # more than stepping aside and back take


def _has_room(frames: int) -> bool:
    """Whether the stack has room for so many calls."""
    # A collection may come at the very end of the stack. There, nothing must be done by halves: the run would not be
    # the running one when the collection is over. And nothing that the collector runs gets far there.
    try:
        return frames == 0 or _has_room(frames - 1)
    except RecursionError:
        return False


async def _awaiting(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _say_nothing(unraisable: object) -> None:
    del unraisable


def _close_all(tasks: list[WorkflowTask]) -> None:
    for task in tasks:
        task.context.run(_close, task)


def _close(task: WorkflowTask) -> None:
    """Close a task's coroutine. Its `finally` blocks run, but may not wait for anything any more.

    They run as a part of the task: what refuses to work outside of one (`asyncio.timeout`) would be tried again forever
    by code that catches everything, and nothing could interrupt it here.
    """
    coroutine, loop = task.get_coro(), task.get_loop()
    asyncio.tasks._enter_task(loop, task)  # noqa: SLF001 - documented for authors of tasks
    try:
        for _ in range(16):  # a block that awaits although it is being closed must be closed once more
            try:
                coroutine.close()
            except BaseException:  # noqa: BLE001, S112 - the run goes on elsewhere, or has ended; this copy is only memory
                continue
            return
        _keep_forever(coroutine)
    finally:
        asyncio.tasks._leave_task(loop, task)  # noqa: SLF001


def _keep_forever(coroutine: object) -> None:
    """Code that cannot be closed is not freed either: Python would close it then, and perhaps never come back."""
    import ctypes  # noqa: PLC0415 - hardly any process needs it, and each would take longer to start

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coroutine))
