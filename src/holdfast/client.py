"""For callers: start work by key, find it, ask about it. What is done with one run is in `run.py`.

Each verb asks a `Backend`, which is the engine's service, or a gateway that has one; nothing here decides. Every type
that the verbs take or return can be imported from here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, overload

from msgspec.structs import replace

from holdfast.engine.api.backend import Backend
from holdfast.engine.api.exporting import EXPORTED_BYTES_MAX, EXPORTED_MAX, Exported, export_into
from holdfast.engine.api.queries import Replayed
from holdfast.engine.api.registry import Description
from holdfast.engine.api.start_options import Signal, StartOptions
from holdfast.errors import InputMismatch, LaneBusy, Overtaken, UsageError
from holdfast.kernel import bulks, searches
from holdfast.kernel.attributes import Scalar
from holdfast.kernel.breakers import BreakerStatus
from holdfast.kernel.bulks import PREVIEW_MAX, BulkError, BulkReport, BulkVerb
from holdfast.kernel.cancels import ChildLeft, Left, Outcome, Receipt, State as EffectState
from holdfast.kernel.effect_limits import LimitShare, LimitStatus
from holdfast.kernel.explanations import Line, Story
from holdfast.kernel.limits import LimitVerdict
from holdfast.kernel.rates import Rate
from holdfast.kernel.running_effects import RunningEffect
from holdfast.kernel.runs import Run as RunRow, Status
from holdfast.kernel.searches import PAGE_MAX, Bound, Range, Search
from holdfast.kernel.times import Instant, Millis
from holdfast.kernel.units import Duration, milliseconds
from holdfast.kernel.waits import Kind as WaitKind, LanePlace, Wait, may_be_parked
from holdfast.lanes import Lane, LanePage, Lanes, lane_of
from holdfast.pack import Call, ItemCall, Workflow
from holdfast.ports.store import Backlog, Depth, Member, Serves
from holdfast.run import Cancelling, ItemRun, Marker, Run, Snapshot, item_run, row_of, snapshot, words
from holdfast.workflow import running_scope

__all__ = [
    "Backlog",
    "Bound",
    "BreakerStatus",
    "BulkError",
    "BulkPreview",
    "BulkReport",
    "BulkVerb",
    "Caller",
    "Cancelling",
    "ChildLeft",
    "Depth",
    "Description",
    "Duration",
    "EffectState",
    "Exported",
    "Instant",
    "ItemRun",
    "Lane",
    "LanePage",
    "LanePlace",
    "Lanes",
    "Left",
    "LimitShare",
    "LimitStatus",
    "LimitVerdict",
    "Line",
    "Marker",
    "Member",
    "Millis",
    "Outcome",
    "Page",
    "PreviewedRun",
    "Range",
    "Rate",
    "Receipt",
    "Replayed",
    "Run",
    "RunningEffect",
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


class Started(NamedTuple, Generic[R]):
    """What a start returns: the run that holds the key, and whether this start created it."""

    run: Run[R]
    created: bool


class Page(NamedTuple, Generic[R]):
    """Some of the runs that were searched for; `next` is where the next page begins, None if there is none."""

    runs: tuple[Run[R], ...]
    next: str | None


class PreviewedRun(NamedTuple):
    """A run, and why a verb would not be applied to it; empty if it would."""

    run: Run[Any]
    refusal: str


class BulkPreview(NamedTuple):
    """What a bulk operation would do if it began now.

    `matched` runs are meant, or more if not `is_all`: counts stop at 10,000. `first` are the first of them.
    """

    verb: BulkVerb
    matched: int
    is_all: bool
    first: tuple[PreviewedRun, ...]


class Runs(Generic[R]):
    """The runs that a search means: iterate over them, ask for a page, or apply a verb to all of them."""

    def __init__(self, search: Search, service: Backend, limit: int | None) -> None:
        self._search = search
        self._service = service
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[Run[R]]:
        after, left = None, self._limit
        while left is None or left > 0:
            page = await self.page(after=after, limit=PAGE if left is None else min(PAGE, left))
            for run in page.runs:
                yield run
            after, left = page.next, None if left is None else left - len(page.runs)
            if after is None:
                return

    async def page(self, *, after: str | None = None, limit: int = PAGE) -> Page[R]:
        """Up to `limit` runs, those that come behind the cursor `after`."""
        if not 1 <= limit <= PAGE_MAX:
            raise UsageError(f"a page of {limit} runs is not possible", hint=f"Ask for 1 to {PAGE_MAX}.")
        place = None if after is None else searches.place_of(after)
        rows = await self._service.queries.search(replace(self._search, after=place, limit=limit))
        served = await self._service.queries.served(rows)
        at_work = await self._service.queries.at_work(rows)
        places = await self._service.queries.places(rows)
        runs = tuple(Run[R](row, self._service, served, at_work.get(row.id, ()), places.get(row.id)) for row in rows)
        return Page(runs, searches.cursor_of(rows[-1]) if len(rows) == limit else None)

    async def retry(
        self, *, rate: str | None = None, reason: str | None = None, key: str | None = None
    ) -> Started[BulkReport]:
        """Try all of them again that have failed or are blocked, as a run of its own; see `bulk`."""
        return await self.bulk("retry", rate=rate, reason=reason, key=key)

    async def resume(
        self, *, rate: str | None = None, reason: str | None = None, key: str | None = None
    ) -> Started[BulkReport]:
        """Let all of them go on that were cancelled, as a run of its own; see `bulk`."""
        return await self.bulk("resume", rate=rate, reason=reason, key=key)

    async def cancel(
        self,
        reason: str | None = None,
        *,
        deadline: Duration = "30s",
        rate: str | None = None,
        key: str | None = None,
    ) -> Started[BulkReport]:
        """Ask all of them to cancel that have not ended, as a run of its own; see `bulk`."""
        return await self.bulk("cancel", rate=rate, reason=reason, key=key, deadline=deadline)

    async def signal(
        self,
        hook: str,
        payload: Any = None,
        *,
        rate: str | None = None,
        reason: str | None = None,
        key: str | None = None,
    ) -> Started[BulkReport]:
        """Send a payload to a hook of all of them that have not ended, as a run of its own; see `bulk`."""
        return await self.bulk("signal", rate=rate, reason=reason, key=key, hook=hook, payload=payload)

    async def bulk(
        self,
        verb: BulkVerb,
        *,
        rate: str | None = None,
        reason: str | None = None,
        key: str | None = None,
        request_id: str | None = None,
        deadline: Duration = "30s",
        hook: str | None = None,
        payload: Any = None,
    ) -> Started[BulkReport]:
        """Start a run that applies a verb to all of these runs, each once: retry, cancel, resume or signal.

        It takes the runs that were created before it, in the order of the search, and of those the ones in a status
        that the verb takes. `rate="50/1s"` bounds how many it takes in any second. What it returns is started like any
        run: once per `key`, or per `request_id` if its reply was lost. `run.attributes` say how far it has come,
        `await run.result()` is a `BulkReport`; cancelled, it stands still, and `run.resume()` lets it go on.
        """
        order = self._order(verb, rate=rate, reason=reason, deadline=deadline, hook=hook, payload=payload)
        row, created = await self._service.bulk.start(order, StartOptions(key=key, request_id=request_id))
        return Started(await snapshot(row, self._service), created)

    async def dry_run(
        self, verb: BulkVerb, *, hook: str | None = None, payload: Any = None, first: int = 10
    ) -> BulkPreview:
        """What `bulk` would do if it began now: how many runs are meant, and what would become of the first ones.

        Nothing is changed.
        """
        if not 0 <= first <= PREVIEW_MAX:
            raise UsageError(f"first={first} is not possible", hint=f"Ask for 0 to {PREVIEW_MAX}.")
        order = self._order(verb, hook=hook, payload=payload)
        found = await self._service.bulk.preview(order, first)
        rows = [each.run for each in found.first]
        served = await self._service.queries.served(rows)
        places = await self._service.queries.places(rows)
        runs = [
            PreviewedRun(Run[Any](each.run, self._service, served, place=places.get(each.run.id)), each.refusal)
            for each in found.first
        ]
        return BulkPreview(verb, found.matched, found.is_all, tuple(runs))

    def _order(
        self,
        verb: BulkVerb,
        *,
        hook: str | None,
        payload: Any,
        rate: str | None = None,
        reason: str | None = None,
        deadline: Duration = 0,
    ) -> bulks.BulkOrder:
        return bulks.order(
            verb,
            self._search,
            limit=self._limit,
            rate=rate,
            reason=words(reason),
            deadline_ms=milliseconds(deadline),
            hook=hook,
            payload=payload,
        )


class Caller:
    """The verbs. `Holdfast` is this, with a store behind it."""

    def __init__(self, service: Backend) -> None:
        self._service = service

    async def start(
        self,
        call: Call[R] | ItemCall[R],
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
        timeout: Duration | None = None,
        lane: str | None = None,
        width: int | None = None,
        if_free: bool = False,
    ) -> Started[R]:
        """Admit `call`, once per key.

        If a live run holds the key, nothing is started: that run is returned, with `created=False`; with `join=False`
        it raises `InFlight`. The same key with another input raises `InputMismatch`. A start whose reply was lost may
        be repeated with the same `request_id`, and returns `created=True` again. `retention` says how long the key and
        the result of the finished run are kept; `delay` when it may begin; of the runs that are ready, a higher
        `priority` goes first. `attributes` are what the run can be found by. `timeout` says how long the run may take,
        from when it may begin until its end: then it fails with `RunTimedOut` or is cancelled, as its workflow says.

        `replace=run` supersedes the owner of the key: in one commit that run loses the key and is asked to cancel, and
        this one is admitted. If another one has the key by now: `Overtaken`. `signal=Signal(hook, payload)` delivers
        to the live owner of the key, or admits the run with the payload in its inbox; either in one commit. A tuple
        `(hook, payload, dedupe)` does as well.

        In a `lane` runs go one after the other, or up to `width` of them at once, in the order of their starts; the
        others wait, and cost nothing. With `if_free=True` the run is started only if the lane has no runs: otherwise
        it raises `LaneBusy`. A lane in which too many wait is refused with `LaneFull`. A run that is joined stays in
        the lane that it is in.

        An item of a batch, `start(embed.item(chunk))`, returns the run of its batch, whose `result()` is that of the
        item alone. `key` names the item: the same one is in a batch once.

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
            replace=None if replace is None else row_of(replace),
            signal=signal,
            traceparent=traceparent,
            join=join,
            timeout=timeout,
            lane=lane,
            width=width,
            if_free=if_free,
        )
        if isinstance(call, ItemCall):
            batch, created, item_id = await self._service.start_item(call, options)
            return Started(item_run(batch, self._service, item_id), created)
        try:
            row, created = await self._service.start(call, options)
        except (InputMismatch, LaneBusy, Overtaken) as error:
            found: object = error.run
            if isinstance(found, RunRow):
                error.run = Run[Any](found, self._service)
            raise
        if row.wake_at_ms is None and not may_be_parked(
            row
        ):  # it does not wait for a worker. What it is at is not looked for: it has just begun
            return Started(Run(row, self._service), created)
        return Started(await snapshot(row, self._service), created)

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
        return await snapshot(await self._service.get(run_id), self._service)

    async def find(self, workflow: Workflow[..., R] | str, key: str) -> Run[R]:
        """The run that holds this key, or `UnknownRun`."""
        return await snapshot(await self._service.find(self._name_of(workflow), key), self._service)

    @overload
    def runs(
        self,
        workflow: Workflow[..., R],
        status: str | Collection[str] | None = None,
        *,
        attributes: Mapping[str, Scalar | Range] | None = None,
        key_prefix: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        finished_after: datetime | None = None,
        finished_before: datetime | None = None,
        newest_first: bool = True,
        roots_only: bool = False,
        limit: int | None = None,
    ) -> Runs[R]: ...

    @overload
    def runs(
        self,
        workflow: str | None = None,
        status: str | Collection[str] | None = None,
        *,
        attributes: Mapping[str, Scalar | Range] | None = None,
        key_prefix: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        finished_after: datetime | None = None,
        finished_before: datetime | None = None,
        newest_first: bool = True,
        roots_only: bool = False,
        limit: int | None = None,
    ) -> Runs[Any]: ...

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
        roots_only: bool = False,
        limit: int | None = None,
    ) -> Runs[Any]:
        """The runs for which all of this holds, found by index: `async for run in hf.runs(...)`, or `.page()`.

        `status` is one or several; an attribute equals a value or lies in a `Range`; `..._after` is inclusive,
        `..._before` is not. With `roots_only` runs that another run has started are left out.
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
            roots_only=roots_only,
        )
        return Runs(search, self._service, limit)

    async def lane(self, name: str) -> Lane:
        """The lane of this name, or `UnknownLane` if no run has entered it lately."""
        return await lane_of(await self._service.lanes.lane(name), self._service)

    def lanes(self) -> Lanes:
        """The lanes that there are, by name: `async for lane in hf.lanes()`, or `.page()`."""
        return Lanes(self._service)

    async def set_lane(
        self, name: str, *, width: int | None = None, paused: bool | None = None, by: str | None = None
    ) -> Lane:
        """Make a lane wider or narrower, pause it or let it go on; what is not given stays as it is.

        It counts from now on, for a lane that no run has entered yet as well, and until a start declares another width
        than the one that was declared before. Runs that are active stay so, whatever the width is. That it was set is
        kept, with the name of who did `by`.
        """
        return await lane_of(await self._service.lanes.set(name, width, paused=paused, by=words(by)), self._service)

    async def resume_hook(self, token: str, payload: Any = None, *, dedupe: str | None = None) -> Run[Any]:
        """Send a payload to the live run that holds this token; once per `dedupe`. Returns the run that got it.

        Raises `UnknownHook` if no live run holds it, `PayloadRefused` if the payload does not fit the hook's type.
        """
        return await snapshot(await self._service.signals.to_token(token, payload, dedupe), self._service)

    async def limit(self, name: str, rate: Rate, *, cost: int = 1) -> LimitVerdict:
        """Take `cost` of what may happen under a name, if all of it may go now: `limit("mail:ada", Rate(5, per="1h"))`.

        It is counted for all processes of this namespace, in the store's clock. If `verdict.allowed` is false, nothing
        was taken, and after `verdict.retry_after` seconds as much may go. A `cost` of 0 takes nothing: it is a look.
        While the store is away each process lets its share pass. In a workflow it raises `UsageError`, since a replay
        would ask again: ask in an effect.
        """
        if running_scope() is not None:
            raise UsageError(
                f"limit({name!r:.60}) was called in a workflow, whose replay would ask again",
                hint="Call `await holdfast.effects.limit(...)` in an effect, and raise RetryAfter there.",
            )
        return await self._service.limit(name, rate, cost)

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

    async def export_journals(
        self,
        directory: str | Path,
        workflow: Workflow[..., Any] | str | None = None,
        status: str | Collection[str] | None = LIVE,
        limit: int | None = EXPORTED_MAX,
        *,
        bytes_max: int = EXPORTED_BYTES_MAX,
    ) -> Exported:
        """Write stored journals into a directory, one file per run, newest first: to be replayed without the store.

        The files have the payloads of the runs. A run whose file would be larger than `bytes_max` is left out, and
        named. By default the runs that have not ended are exported. `replay_exported` of `holdfast.testing` reads them.
        """
        name = None if workflow is None else self._name_of(workflow)
        statuses = searches.statuses_of(status) or frozenset(Status)
        return await export_into(Path(directory), self._service.export_journals(name, statuses, limit), bytes_max)

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

    async def breakers(self) -> list[BreakerStatus]:
        """The circuit breakers of effects, by name: each from the first time that an effect of it wanted to begin."""
        return await self._service.flow.breakers()

    async def breaker(self, name: str) -> BreakerStatus:
        """How a circuit breaker stands, or `UnknownBreaker`."""
        return await self._service.flow.breaker(name)

    async def open_breaker(self, name: str, *, by: str | None = None, lasts: Duration | None = None) -> BreakerStatus:
        """Open a circuit breaker: its effects wait until it is closed by hand, or for as long as `lasts` says.

        Who did it, and when, is kept with the breaker. All replicas are told at once.
        """
        return await self._service.flow.open_breaker(name, words(by), lasts)

    async def close_breaker(self, name: str, *, by: str | None = None) -> BreakerStatus:
        """Close a circuit breaker, whatever it has seen: its effects begin at once."""
        return await self._service.flow.close_breaker(name, words(by))

    async def effect_limits(self) -> list[LimitStatus]:
        """The limits at effects, by name: how many calls they let be under way, and which instance has which slots."""
        return await self._service.flow.limits()

    def _name_of(self, workflow: Workflow[..., Any] | str) -> str:
        return workflow.name if isinstance(workflow, Workflow) else self._service.full_name(workflow)
