"""For callers: start work by key, talk to it, find it, wait for its result, cancel it.

A `Run` is an immutable snapshot: `refresh()` returns a newer one. Everything that changes a run goes through
`Backend`, which is the engine's service, or a gateway that has one; nothing here decides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar, cast

from msgspec.structs import replace

from holdfast.engine.api.backend import Backend, Operating
from holdfast.engine.api.queries import Replayed
from holdfast.engine.api.registry import Description
from holdfast.engine.api.start_options import Signal, StartOptions
from holdfast.engine.cancelling import Cancellation
from holdfast.errors import InputMismatch, Overtaken, UsageError
from holdfast.journal import Journal, RunEvent
from holdfast.kernel import attributes as attributes_, markers as markers_, searches, waits
from holdfast.kernel.attributes import Scalar
from holdfast.kernel.cancels import ChildLeft, Left, Outcome, Receipt, State as EffectState
from holdfast.kernel.explanations import Line, Story
from holdfast.kernel.runs import SETTLED, Run as RunRow, Status
from holdfast.kernel.searches import PAGE_MAX, Bound, Range, Search
from holdfast.kernel.times import Instant, Millis
from holdfast.kernel.units import Duration, utc_of
from holdfast.kernel.waits import Kind as WaitKind, Wait
from holdfast.pack import Call, Workflow
from holdfast.ports.store import Backlog, Depth, Member, Serves

__all__ = [
    "Backlog",
    "Bound",
    "Caller",
    "Cancelling",
    "ChildLeft",
    "Depth",
    "Description",
    "Duration",
    "EffectState",
    "Instant",
    "Left",
    "Line",
    "Marker",
    "Member",
    "Millis",
    "Outcome",
    "Page",
    "Range",
    "Receipt",
    "Replayed",
    "Run",
    "Runs",
    "Scalar",
    "Serves",
    "Signal",
    "Snapshot",
    "Started",
    "Status",
    "Story",
    "Wait",
    "WaitKind",
]

R = TypeVar("R")
PAGE = 50
LIVE = ("pending", "running", "waiting", "blocked")


class Marker(NamedTuple):
    """A marker that a run has reached, and when."""

    name: str
    at: datetime


class Snapshot:
    """What can be seen of a run: as it was when this was taken."""

    __slots__ = ("_row", "_served", "_service")

    def __init__(self, row: RunRow, service: Backend, served: frozenset[str] | None = None) -> None:
        self._row = row
        self._service = service
        self._served = served

    @property
    def id(self) -> str:
        return self._row.id

    @property
    def workflow(self) -> str:
        """The workflow's full name: `pack.function`."""
        return self._row.workflow

    @property
    def key(self) -> str | None:
        return self._row.key

    @property
    def holds_key(self) -> bool:
        """Whether the key is still its own: not released, and not taken over by a successor."""
        return self._row.key is not None and self._row.holds_key

    @property
    def status(self) -> str:
        """One of pending, running, waiting, blocked, completed, failed, cancelled."""
        return self._row.status.value

    @property
    def is_settled(self) -> bool:
        """Whether it has ended, or is blocked until a person does something."""
        return self._row.status in SETTLED

    @property
    def fence(self) -> int:
        """Grows each time the run changes hands."""
        return self._row.epoch

    @property
    def priority(self) -> int:
        return self._row.priority

    @property
    def queue(self) -> str:
        return self._row.queue

    @property
    def version(self) -> str | None:
        """The version of the workflow under which it was admitted, if that declared one."""
        return self._row.version or None

    @property
    def attributes(self) -> dict[str, Scalar]:
        """What it can be found by. Names that begin with `holdfast.` are the engine's own."""
        return attributes_.decode(self._row.attributes)

    @property
    def markers(self) -> tuple[Marker, ...]:
        """The markers that it has reached, in order."""
        return tuple(Marker(name, utc_of(at_ms)) for name, at_ms in markers_.decode(self._row.markers))

    @property
    def waiting_on(self) -> tuple[Wait, ...]:
        """Why it is not finished: timers, hooks, children, retries, a worker, a person. Empty once it has ended."""
        return self._service.queries.waits_of(self._row, self._served)

    @property
    def next_actions(self) -> tuple[str, ...]:
        """What may be done with it now: signal, cancel, retry, resume, fork, release_key."""
        return waits.next_actions(self._row)

    @property
    def created_at(self) -> datetime:
        return utc_of(self._row.created_ms)

    @property
    def finished_at(self) -> datetime | None:
        """When it ended; None while it has not."""
        return None if self._row.finished_ms is None else utc_of(self._row.finished_ms)

    @property
    def expires_at(self) -> datetime | None:
        """Until when the key and the result of a finished run are kept."""
        return None if self._row.expires_ms is None else utc_of(self._row.expires_ms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and self._row == other._row

    def __hash__(self) -> int:
        return hash(self._row.id)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.id!r}, workflow={self.workflow!r}, key={self.key!r}, status={self.status!r})"
        )


class Run(Snapshot, Generic[R]):
    """One execution of a workflow, as it was when this snapshot was taken."""

    __slots__ = ()

    async def result(self, timeout: Duration | None = None) -> R:
        """The value that the workflow returned. Waits for it.

        Raises `RunFailed` (with the workflow's exception as its cause), `RunCancelled`, `TimedOut` if `timeout`
        passes first, or, if the run is blocked, what blocks it: `ReplayDiverged`, `UnknownOutcome`, `WaitsForNothing`.
        """
        return cast("R", await self._service.result(self._row, self._service.returns_of(self._row.workflow), timeout))

    async def wait(self, timeout: Duration | None = None) -> Run[R]:
        """Wait until the run has ended or is blocked: a newer snapshot. Raises `TimedOut` if `timeout` passes first."""
        return await self._snapshot(await self._service.wait(self._row, timeout))

    async def result_json(self) -> bytes:
        """What a settled run returned, as JSON. Raises as `result()` does."""
        return await self._service.result_json(self._row)

    async def input(self) -> dict[str, Any]:
        """The arguments that the run was started with, by name."""
        return await self._service.input(self._row)

    async def input_json(self) -> bytes:
        """The arguments that the run was started with, by name, as JSON."""
        return await self._service.input_json(self._row)

    async def refresh(self) -> Run[R]:
        """A newer snapshot. Raises `UnknownRun` if the run has been removed."""
        return await self._snapshot(await self._service.get(self._row.id))

    async def journal(self, after: int | None = None) -> Journal:
        """What the run has done so far, entry by entry, since it last continued as new; with `after`, behind a cursor.

        It is a tuple of entries that knows their cursors: `run.events(after=journal.cursor)` goes on where it ends.
        """
        journal = await self._service.queries.journal(self._row.id)
        return journal if after is None else journal.after(after)

    def events(self, after: int | None = None) -> AsyncIterator[RunEvent]:
        """What happens to it, entry by entry, until it has ended; `after` is the cursor of the last event seen."""
        return self._service.queries.events(self._row.id, after)

    async def explain(self) -> Story:
        """Its story: what happened, why it waits, what may be done now. `str()` of it is text."""
        return await self._service.queries.explain(self._row.id)

    async def signal(self, hook: str, payload: Any = None, *, dedupe: str | None = None) -> None:
        """Send a payload to one of its hooks, durably; once per `dedupe` and hook.

        Raises `NotAllowedNow` if the run has ended, `PayloadRefused` if the payload does not fit the hook's type.
        """
        await self._service.signals.to_run(self._row.id, hook, payload, dedupe)

    async def cancel(self, reason: str | None = None, *, deadline: Duration = "30s") -> Receipt:
        """Cancel the run, wait until it has ended, and say what it left behind.

        When `deadline` has passed it is stopped without further cleanup, and the receipt says so.
        """
        return await self._service.operations.cancel(self._row.id, _words(reason), deadline)

    async def ask_cancel(self, reason: str | None = None, *, deadline: Duration = "30s") -> Cancelling:
        """Ask for the cancellation, durably, without waiting for it: `await cancelling.receipt()` does."""
        operations = self._service.operations
        return Cancelling(await operations.ask_cancel(self._row.id, _words(reason), deadline), operations)

    async def receipt(self) -> Receipt:
        """What the cancellation of an ended run has left behind."""
        return await self._service.operations.receipt(self._row.id)

    async def retry(self) -> Run[R]:
        """Try a failed or blocked run again from its last record. Raises `NotAllowedNow` in any other status."""
        return await self._snapshot(await self._service.operations.retry(self._row.id))

    async def resume(self) -> Run[R]:
        """Let a cancelled run go on as if it had not been cancelled.

        Raises `NotAllowedNow` if something was undone, or if the code did something about the cancellation.
        """
        return await self._snapshot(await self._service.operations.resume(self._row.id))

    async def fork(self, at: str, *, key: str | None = None) -> Run[R]:
        """A new run that begins with what this one did before step `at`.

        It takes over the key of a run that has ended; a live one can be forked under another `key`.
        """
        return await self._snapshot(await self._service.operations.fork(self._row.id, at, key))

    async def release_key(self, reason: str | None = None) -> Run[R]:
        """Take the key from this run, so that it can be used again. For operators; it is recorded."""
        return await self._snapshot(await self._service.operations.release_key(self._row.id, _words(reason)))

    async def _snapshot(self, row: RunRow) -> Run[R]:
        return Run(row, self._service, await self._service.queries.served([row]))


class Cancelling:
    """A cancellation that will be done, whether or not its receipt is waited for."""

    def __init__(self, asked: Cancellation, operations: Operating) -> None:
        self._asked = asked
        self._operations = operations

    async def receipt(self) -> Receipt:
        """What it left behind, once the run has ended."""
        return await self._operations.cancelled(self._asked)


class Started(NamedTuple, Generic[R]):
    """What a start returns: the run that holds the key, and whether this start created it."""

    run: Run[R]
    created: bool


class Page(NamedTuple):
    """Some of the runs that were searched for; `next` is where the next page begins, None if there is none."""

    runs: tuple[Run[Any], ...]
    next: str | None


class Runs:
    """The runs that a search means: iterate over them, or ask for a page."""

    def __init__(self, search: Search, service: Backend, limit: int | None) -> None:
        self._search = search
        self._service = service
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[Run[Any]]:
        after, left = None, self._limit
        while left is None or left > 0:
            page = await self.page(after=after, limit=PAGE if left is None else min(PAGE, left))
            for run in page.runs:
                yield run
            after, left = page.next, None if left is None else left - len(page.runs)
            if after is None:
                return

    async def page(self, *, after: str | None = None, limit: int = PAGE) -> Page:
        """Up to `limit` runs, those that come behind the cursor `after`."""
        if not 1 <= limit <= PAGE_MAX:
            raise UsageError(f"a page of {limit} runs is not possible", hint=f"Ask for 1 to {PAGE_MAX}.")
        place = None if after is None else searches.place_of(after)
        rows = await self._service.queries.search(replace(self._search, after=place, limit=limit))
        served = await self._service.queries.served(rows)
        runs = tuple(Run[Any](row, self._service, served) for row in rows)
        return Page(runs, searches.cursor_of(rows[-1]) if len(rows) == limit else None)


class Caller:
    """The verbs. `Holdfast` is this, with a store behind it."""

    def __init__(self, service: Backend) -> None:
        self._service = service

    async def start(
        self,
        call: Call[R],
        *,
        key: str | None = None,
        retention: Duration | None = None,
        attributes: Mapping[str, Scalar] | None = None,
        replace: Snapshot | None = None,
        signal: Signal | tuple[str, Any] | tuple[str, Any, str] | None = None,
        request_id: str | None = None,
        delay: Duration | None = None,
        priority: int = 0,
        traceparent: str | None = None,
        join: bool = True,
    ) -> Started[R]:
        """Admit `call`, once per key.

        If a live run holds the key, nothing is started: that run is returned, with `created=False`; with `join=False`
        it raises `InFlight`. The same key with another input raises `InputMismatch`. A start whose reply was lost may
        be repeated with the same `request_id`, and returns `created=True` again. `retention` says how long the key and
        the result of the finished run are kept; `delay` when it may begin; of the runs that are ready, a higher
        `priority` goes first. `attributes` are what the run can be found by.

        `replace=run` supersedes the owner of the key: in one commit that run loses the key and is asked to cancel, and
        this one is admitted. If another one has the key by now: `Overtaken`. `signal=Signal(hook, payload)` delivers
        to the live owner of the key, or admits the run with the payload in its inbox; either in one commit. A tuple
        `(hook, payload, dedupe)` does as well.

        `traceparent` names the span of a distributed trace that causes the start (W3C Trace Context). Without it the
        current OpenTelemetry span does, where this Holdfast has `traces`.
        """
        options = StartOptions(
            key=key,
            retention=retention,
            request_id=request_id,
            delay=delay,
            priority=priority,
            attributes=attributes,
            replace=None if replace is None else _row_of(replace),
            signal=signal,
            traceparent=traceparent,
            join=join,
        )
        try:
            row, created = await self._service.start(call, options)
        except (InputMismatch, Overtaken) as error:
            if isinstance(error.run, RunRow):
                error.run = Run[Any](error.run, self._service)
            raise
        return Started(await self._snapshot(row), created)

    def call(self, workflow: str, arguments: Mapping[str, Any] | bytes) -> Call[Any]:
        """A call by name, for `start`: arguments by name, or the JSON object that holds them.

        Raises `InputRefused`, with the path, if they do not fit the workflow's parameters.
        """
        return self._service.call(workflow, arguments)

    @property
    def namespace(self) -> str:
        return self._service.namespace

    async def get(self, run_id: str) -> Run[Any]:
        """The run of this id, or `UnknownRun`."""
        return await self._snapshot(await self._service.get(run_id))

    async def find(self, workflow: Workflow[..., R] | str, key: str) -> Run[R]:
        """The run that holds this key, or `UnknownRun`."""
        return await self._snapshot(await self._service.find(self._name_of(workflow), key))

    def runs(
        self,
        workflow: Workflow[..., Any] | str | None = None,
        status: str | Collection[str] | None = None,
        *,
        attributes: Mapping[str, Scalar | Range] | None = None,
        key_prefix: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        finished_after: datetime | None = None,
        finished_before: datetime | None = None,
        newest_first: bool = True,
        limit: int | None = None,
    ) -> Runs:
        """The runs for which all of this holds, found by index: `async for run in hf.runs(...)`, or `.page()`.

        `status` is one or several; an attribute equals a value or lies in a `Range`; `..._after` is inclusive,
        `..._before` is not.
        """
        if limit is not None and limit < 0:
            raise UsageError(f"limit={limit} is not possible", hint="Leave it out for all of them.")
        search = Search(
            namespace=self._service.namespace,
            limit=PAGE,
            workflow=None if workflow is None else self._name_of(workflow),
            statuses=searches.statuses_of(status),
            conditions=searches.conditions_of(attributes or {}),
            key_prefix=key_prefix or None,
            created=searches.span(created_after, created_before),
            finished=searches.span(finished_after, finished_before),
            newest_first=newest_first,
        )
        return Runs(search, self._service, limit)

    async def resume_hook(self, token: str, payload: Any = None, *, dedupe: str | None = None) -> Run[Any]:
        """Send a payload to the live run that holds this token; once per `dedupe`. Returns the run that got it.

        Raises `UnknownHook` if no live run holds it, `PayloadRefused` if the payload does not fit the hook's type.
        """
        return await self._snapshot(await self._service.signals.to_token(token, payload, dedupe))

    async def explain(self, run: Run[Any] | Workflow[..., Any] | str, key: str | None = None) -> Story:
        """The story of a run, of a run id, or of the run that holds a key: `explain(checkout, "checkout:o-1")`."""
        if key is None and isinstance(run, Workflow):
            raise UsageError(f"explain({run!r}) needs a key", hint="explain(checkout, 'checkout:o-1')")
        if key is not None and not isinstance(run, Run):
            run = await self.find(run, key)
        run_id = run.id if isinstance(run, Run) else str(run)
        return await self._service.queries.explain(run_id)

    async def replay_check(
        self,
        workflow: Workflow[..., Any] | str | None = None,
        status: str | Collection[str] | None = LIVE,
        limit: int | None = None,
    ) -> list[Replayed]:
        """Replay stored journals against the code of this process, newest first: which would diverge, and where.

        Nothing is performed and nothing is written. By default the runs that have not ended are looked at.
        """
        name = None if workflow is None else self._name_of(workflow)
        statuses = searches.statuses_of(status) or frozenset(Status)
        return await self._service.replay_check(name, statuses, limit)

    async def workflows(self) -> tuple[Description, ...]:
        """What the workflows declare about themselves."""
        return await self._service.descriptions()

    async def workflow(self, name: str) -> Description:
        """What the workflow of this name declares about itself, or `UnknownWorkflow`."""
        return await self._service.description(name)

    async def workers(self) -> list[Member]:
        """The live workers, in the order in which they joined."""
        return await self._service.queries.members()

    async def backlog(self) -> Backlog:
        """How many runs there are by status, and how many wait for a worker. Counts stop at 10,000."""
        return await self._service.queries.backlog()

    def _name_of(self, workflow: Workflow[..., Any] | str) -> str:
        return workflow.name if isinstance(workflow, Workflow) else self._service.full_name(workflow)

    async def _snapshot(self, row: RunRow) -> Run[Any]:
        return Run(row, self._service, await self._service.queries.served([row]))


def _words(reason: str | None) -> str:
    if reason is not None and not isinstance(reason, str):
        raise UsageError(f"reason={reason!r:.60} is not text", hint="Say it in words.")
    return reason or ""


def _row_of(run: Snapshot) -> RunRow:
    if not isinstance(run, Snapshot):
        raise UsageError(f"replace={run!r:.60} is not a run", hint="Pass the run that start() or find() returned.")
    return run._row  # noqa: SLF001 - of this very module
