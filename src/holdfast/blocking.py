"""The verbs for code that is not async, such as Django's and Flask's: one portal to an event loop in its own thread.

Nothing is written twice: each verb here is the async one, called through the portal. The loop is started by the first
call, and again in a process that was forked since, which must not share the connections of its parent.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime
from functools import update_wrapper
from types import TracebackType
from typing import (
    Any,
    ClassVar,
    Concatenate,
    Generic,
    NamedTuple,
    ParamSpec,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from msgspec import UNSET, Struct

from holdfast.client import BulkVerb, Caller, Run, Runs, Snapshot, Started
from holdfast.engine.api.registry import Description
from holdfast.errors import UsageError
from holdfast.journal import RunEvent
from holdfast.kernel.attributes import Scalar
from holdfast.kernel.breakers import BreakerStatus
from holdfast.kernel.cancels import Receipt
from holdfast.kernel.effect_limits import LimitStatus
from holdfast.kernel.explanations import Story
from holdfast.kernel.searches import Range
from holdfast.kernel.units import Duration
from holdfast.lanes import Lane
from holdfast.pack import Call, Workflow
from holdfast.ports.store import Backlog, Member

__all__ = [
    "Blocking",
    "BlockingBulkPreview",
    "BlockingLane",
    "BlockingPage",
    "BlockingPreviewedRun",
    "BlockingRun",
    "BlockingRuns",
    "BlockingStarted",
    "SearchKeywords",
]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Opens = Callable[[], AbstractAsyncContextManager[Caller]]


class SearchKeywords(TypedDict, total=False):
    """The options of `runs`."""

    attributes: Mapping[str, Scalar | Range] | None
    key_prefix: str | None
    created_after: datetime | None
    created_before: datetime | None
    finished_after: datetime | None
    finished_before: datetime | None
    newest_first: bool
    roots_only: bool
    limit: int | None


class Portal:
    """An event loop in a thread of its own, with a `Caller` that is open in it."""

    def __init__(self, opens: Opens) -> None:
        self._opens = opens
        self._lock = threading.Lock()
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._context: AbstractAsyncContextManager[Caller] | None = None
        self._verbs: Caller | None = None

    def verbs(self) -> Caller:
        """What is open behind the portal; opened by the first call, in each process for itself."""
        _refuse_inside_a_loop()
        with self._lock:
            if self._verbs is None or self._pid != os.getpid():
                self._open()
            assert self._verbs is not None
            return self._verbs

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, once it is there. An interruption of this thread cancels it."""
        if self._loop is None or self._pid != os.getpid():
            work.close()
            raise UsageError(
                "what this belongs to is closed, or was opened in another process",
                hint="Ask for it again: `hf.get(run.id)`.",
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items, each when it is asked for."""
        try:
            while True:
                try:
                    yield self.call(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            close = getattr(items, "aclose", None)
            if close is not None and self._loop is not None and self._pid == os.getpid():
                self.call(close())

    def close(self) -> None:
        """Close what is open, and end the thread. A later call opens it again."""
        with self._lock:
            if self._verbs is None or self._pid != os.getpid():
                return
            assert self._context is not None
            try:
                self.call(_closed(self._context))
            finally:
                self._end()

    def _open(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast-portal", daemon=True)
        self._thread.start()
        try:
            self._context, self._verbs = self.call(_opened(self._opens))
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        # As `asyncio.run` ends a loop: a thread that still waits must learn that nothing comes any more.
        self.call(_interrupted())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = self._context = self._verbs = None


async def _opened(opens: Opens) -> tuple[AbstractAsyncContextManager[Caller], Caller]:
    context = opens()  # made in the loop that it will live in
    return context, await context.__aenter__()


async def _closed(context: AbstractAsyncContextManager[Caller]) -> None:
    await context.__aexit__(None, None, None)


async def _interrupted() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


def _refuse_inside_a_loop() -> None:
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise UsageError(
            "a blocking call was made inside an event loop, which would stand still meanwhile",
            hint="Use the async Holdfast here: `async with Holdfast(url) as hf`.",
        )


def _of_run(verb: Callable[Concatenate[Run[Any], P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The blocking twin of a verb of `Run`."""

    def blocking(self: BlockingRun[Any], *args: P.args, **kwargs: P.kwargs) -> T:
        _refuse_inside_a_loop()
        return self._portal.call(verb(self._run, *args, **kwargs))

    update_wrapper(blocking, verb, assigned=("__doc__",))  # its signature is that of the verb, too
    return blocking


def _of_caller(verb: Callable[Concatenate[Caller, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The blocking twin of a verb of `Holdfast`."""

    def blocking(self: Blocking, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.call(verb(self._portal.verbs(), *args, **kwargs))

    update_wrapper(blocking, verb, assigned=("__doc__",))  # its signature is that of the verb, too
    return blocking


def _of_start(
    verb: Callable[Concatenate[Caller, Call[R], P], Coroutine[Any, Any, Started[R]]],
) -> Callable[Concatenate[Any, Call[R], P], BlockingStarted[R]]:
    """The blocking twin of `start`, with all of its options: they are declared there, and nowhere else."""

    def blocking(self: Blocking, call: Call[R], *args: P.args, **kwargs: P.kwargs) -> BlockingStarted[R]:
        """Admit `call`, once per key; see `Holdfast.start`."""
        started = self._portal.call(verb(self._portal.verbs(), call, *args, **kwargs))
        return BlockingStarted(BlockingRun(started.run, self._portal), started.created)

    # For people and the reference: what it returns is another type, so the verb's signature is not all of it.
    shown = inspect.signature(verb).replace(return_annotation="BlockingStarted[R]")
    blocking.__signature__ = shown
    blocking.__name__, blocking.__qualname__ = "start", "Blocking.start"
    return blocking


class BlockingRun(Snapshot, Generic[R]):
    """A run as it was when this snapshot was taken, and its verbs."""

    __slots__ = ("_portal", "_run")

    def __init__(self, run: Run[R], portal: Portal) -> None:
        super().__init__(run._row, run._service, run._served, run._at_work, run._place)  # noqa: SLF001 - the same snapshot
        self._run = run
        self._portal = portal

    def result(self, timeout: Duration | None = None) -> R:
        """The value that the workflow returned. Waits for it; see `Run.result`."""
        _refuse_inside_a_loop()
        return self._portal.call(self._run.result(timeout))

    def events(self, after: int | None = None) -> Iterator[RunEvent]:
        """What happens to it, entry by entry, until it has ended."""
        _refuse_inside_a_loop()
        return self._portal.iterate(self._run.events(after))

    # `ClassVar`: a callable that is declared without it counts as one of the instance, and `self` is not bound.
    input: ClassVar[Callable[[Any], dict[str, Any]]] = _of_run(Run[Any].input)
    journal = _of_run(Run[Any].journal)
    explain: ClassVar[Callable[[Any], Story]] = _of_run(Run[Any].explain)
    receipt: ClassVar[Callable[[Any], Receipt]] = _of_run(Run[Any].receipt)
    input_json: ClassVar[Callable[[Any], bytes]] = _of_run(Run[Any].input_json)
    result_json: ClassVar[Callable[[Any], bytes]] = _of_run(Run[Any].result_json)
    signal = _of_run(Run[Any].signal)
    cancel = _of_run(Run[Any].cancel)

    def wait(self, timeout: Duration | None = None) -> BlockingRun[R]:
        """Wait until the run has ended or is blocked: a newer snapshot."""
        return self._moved(self._run.wait(timeout))

    def refresh(self) -> BlockingRun[R]:
        """A newer snapshot."""
        return self._moved(self._run.refresh())

    def retry(self) -> BlockingRun[R]:
        """Try a failed or blocked run again from its last record."""
        return self._moved(self._run.retry())

    def decide(
        self,
        step: str,
        *,
        returned: Any = UNSET,
        failed: str | None = None,
        not_performed: bool = False,
        by: str | None = None,
        reason: str | None = None,
    ) -> BlockingRun[R]:
        """Say what came of a step whose outcome is not known, and let the run go on."""
        return self._moved(
            self._run.decide(step, returned=returned, failed=failed, not_performed=not_performed, by=by, reason=reason)
        )

    def retry_now(self, step: str | None = None, *, by: str | None = None, reason: str | None = None) -> BlockingRun[R]:
        """Let the next attempt of an effect that waits for it begin at once; without `step`, of all that wait."""
        return self._moved(self._run.retry_now(step, by=by, reason=reason))

    def resume(self) -> BlockingRun[R]:
        """Let a cancelled run go on as if it had not been cancelled."""
        return self._moved(self._run.resume())

    def fork(self, at: str, *, key: str | None = None) -> BlockingRun[R]:
        """A new run that begins with what this one did before step `at`."""
        return self._moved(self._run.fork(at, key=key))

    def release_key(self, reason: str | None = None) -> BlockingRun[R]:
        """Take the key from this run, so that it can be used again."""
        return self._moved(self._run.release_key(reason))

    def _moved(self, work: Coroutine[Any, Any, Run[R]]) -> BlockingRun[R]:
        _refuse_inside_a_loop()
        return BlockingRun(self._portal.call(work), self._portal)


class BlockingLane(Struct, frozen=True, kw_only=True):
    """A lane as it was when this was read; see `Lane`."""

    name: str
    width: int
    active: int
    parked: int
    paused: bool
    head: BlockingRun[Any] | None
    active_runs: tuple[str, ...]
    parked_runs: tuple[str, ...]


class BlockingStarted(NamedTuple, Generic[R]):
    """The run that holds the key, and whether this start created it."""

    run: BlockingRun[R]
    created: bool


class BlockingPage(NamedTuple, Generic[R]):
    """Some of the runs that were searched for; `next` is where the next page begins."""

    runs: tuple[BlockingRun[R], ...]
    next: str | None


class BlockingPreviewedRun(NamedTuple):
    """A run, and why a verb would not be applied to it; empty if it would."""

    run: BlockingRun[Any]
    refusal: str


class BlockingBulkPreview(NamedTuple):
    """What a bulk operation would do if it began now; see `BulkPreview`."""

    verb: BulkVerb
    matched: int
    is_all: bool
    first: tuple[BlockingPreviewedRun, ...]


def _of_runs(
    verb: Callable[Concatenate[Runs[Any], P], Coroutine[Any, Any, Started[R]]],
) -> Callable[Concatenate[Any, P], BlockingStarted[R]]:
    """The blocking twin of a bulk verb of `Runs`."""

    def blocking(self: BlockingRuns[Any], *args: P.args, **kwargs: P.kwargs) -> BlockingStarted[R]:
        started = self._portal.call(verb(self._runs, *args, **kwargs))
        return BlockingStarted(BlockingRun(started.run, self._portal), started.created)

    update_wrapper(blocking, verb, assigned=("__doc__",))
    blocking.__signature__ = inspect.signature(verb).replace(return_annotation="BlockingStarted[BulkReport]")
    return blocking


class BlockingRuns(Generic[R]):
    """The runs that a search means: iterate over them, ask for a page, or apply a verb to all of them."""

    def __init__(self, runs: Runs[R], portal: Portal) -> None:
        self._runs = runs
        self._portal = portal

    def __iter__(self) -> Iterator[BlockingRun[R]]:
        for run in self._portal.iterate(aiter(self._runs)):
            yield BlockingRun(run, self._portal)

    def page(self, *, after: str | None = None, limit: int = 50) -> BlockingPage[R]:
        """Up to `limit` runs, those that come behind the cursor `after`."""
        page = self._portal.call(self._runs.page(after=after, limit=limit))
        return BlockingPage(tuple(BlockingRun(run, self._portal) for run in page.runs), page.next)

    retry = _of_runs(Runs[Any].retry)
    resume = _of_runs(Runs[Any].resume)
    cancel = _of_runs(Runs[Any].cancel)
    signal = _of_runs(Runs[Any].signal)
    bulk = _of_runs(Runs[Any].bulk)

    def dry_run(
        self, verb: BulkVerb, *, hook: str | None = None, payload: Any = None, first: int = 10
    ) -> BlockingBulkPreview:
        """What `bulk` would do if it began now; see `Runs.dry_run`."""
        found = self._portal.call(self._runs.dry_run(verb, hook=hook, payload=payload, first=first))
        runs = [BlockingPreviewedRun(BlockingRun(each.run, self._portal), each.refusal) for each in found.first]
        return BlockingBulkPreview(found.verb, found.matched, found.is_all, tuple(runs))


class Blocking:
    """`Holdfast`, or a `Client`, for code that is not async. Use it in a `with`, or keep one for the whole process."""

    def __init__(self, opens: Opens) -> None:
        self._portal = Portal(opens)

    def __enter__(self) -> Self:
        self._portal.verbs()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and end the thread."""
        self._portal.close()

    def call(self, workflow: str, arguments: Mapping[str, Any] | bytes) -> Call[Any]:
        """A call by name, for `start`."""
        return self._portal.verbs().call(workflow, arguments)

    start = _of_start(Caller.start)

    def get(self, run_id: str) -> BlockingRun[Any]:
        """The run of this id, or `UnknownRun`."""
        return self._found(self._portal.verbs().get(run_id))

    def find(self, workflow: Workflow[..., R] | str, key: str) -> BlockingRun[R]:
        """The run that holds this key, or `UnknownRun`."""
        return self._found(self._portal.verbs().find(workflow, key))

    def resume_hook(self, token: str, payload: Any = None, *, dedupe: str | None = None) -> BlockingRun[Any]:
        """Send a payload to the live run that holds this token; once per `dedupe`."""
        return self._found(self._portal.verbs().resume_hook(token, payload, dedupe=dedupe))

    @overload
    def runs(
        self,
        workflow: Workflow[..., R],
        status: str | Collection[str] | None = None,
        **filters: Unpack[SearchKeywords],
    ) -> BlockingRuns[R]: ...

    @overload
    def runs(
        self,
        workflow: str | None = None,
        status: str | Collection[str] | None = None,
        **filters: Unpack[SearchKeywords],
    ) -> BlockingRuns[Any]: ...

    def runs(
        self,
        workflow: Workflow[..., Any] | str | None = None,
        status: str | Collection[str] | None = None,
        **filters: Unpack[SearchKeywords],
    ) -> BlockingRuns[Any]:
        """The runs for which all of this holds; see `Holdfast.runs`."""
        return BlockingRuns(self._portal.verbs().runs(workflow, status, **filters), self._portal)

    def lane(self, name: str) -> BlockingLane:
        """The lane of this name, or `UnknownLane`."""
        return self._lane(self._portal.call(self._portal.verbs().lane(name)))

    def lanes(self) -> Iterator[BlockingLane]:
        """The lanes that there are, by name."""
        return map(self._lane, self._portal.iterate(aiter(self._portal.verbs().lanes())))

    def set_lane(
        self, name: str, *, width: int | None = None, paused: bool | None = None, by: str | None = None
    ) -> BlockingLane:
        """Make a lane wider or narrower, pause it or let it go on; see `Holdfast.set_lane`."""
        return self._lane(self._portal.call(self._portal.verbs().set_lane(name, width=width, paused=paused, by=by)))

    def explain(self, run: BlockingRun[Any] | Workflow[..., Any] | str, key: str | None = None) -> Story:
        """The story of a run, of a run id, or of the run that holds a key."""
        verbs = self._portal.verbs()
        return self._portal.call(verbs.explain(run.id if isinstance(run, BlockingRun) else run, key))

    workflows: ClassVar[Callable[[Any], tuple[Description, ...]]] = _of_caller(Caller.workflows)
    workflow = _of_caller(Caller.workflow)
    limit = _of_caller(Caller.limit)
    workers: ClassVar[Callable[[Any], list[Member]]] = _of_caller(Caller.workers)
    backlog: ClassVar[Callable[[Any], Backlog]] = _of_caller(Caller.backlog)
    export_journals = _of_caller(Caller.export_journals)
    breakers: ClassVar[Callable[[Any], list[BreakerStatus]]] = _of_caller(Caller.breakers)
    breaker = _of_caller(Caller.breaker)
    open_breaker = _of_caller(Caller.open_breaker)
    close_breaker = _of_caller(Caller.close_breaker)
    effect_limits: ClassVar[Callable[[Any], list[LimitStatus]]] = _of_caller(Caller.effect_limits)

    def _lane(self, lane: Lane) -> BlockingLane:
        head = None if lane.head is None else BlockingRun(lane.head, self._portal)
        return BlockingLane(
            name=lane.name,
            width=lane.width,
            active=lane.active,
            parked=lane.parked,
            paused=lane.paused,
            head=head,
            active_runs=lane.active_runs,
            parked_runs=lane.parked_runs,
        )

    def _found(self, work: Coroutine[Any, Any, Run[R]]) -> BlockingRun[R]:
        return BlockingRun(self._portal.call(work), self._portal)
