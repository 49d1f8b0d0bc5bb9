"""Values become what is sent: runs and what else is shown, by a gateway; and searches, by a client."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.client import Page, Run
from holdfast.engine.api.registry import Description
from holdfast.journal import Journal
from holdfast.kernel import attributes, searches
from holdfast.kernel.apikeys import ApiKey
from holdfast.kernel.attributes import Scalar
from holdfast.kernel.cancels import Receipt
from holdfast.kernel.explanations import Story
from holdfast.kernel.journal import Entry, Failure
from holdfast.kernel.running_effects import RunningEffect
from holdfast.kernel.searches import Condition, Search, Span
from holdfast.kernel.units import milliseconds, utc_or_none
from holdfast.kernel.waits import LanePlace, Wait
from holdfast.lanes import Lane
from holdfast.ports.store import Backlog, Member
from holdfast.wire.types import (
    ApiKeyView,
    At,
    Attribute,
    BacklogView,
    DepthView,
    ErrorView,
    Filter,
    JournalView,
    LaneView,
    LaneWaitView,
    LeftChildView,
    LeftEffectView,
    LineView,
    MarkerView,
    ReceiptView,
    RunningEffectView,
    RunPageView,
    RunView,
    StoryView,
    WaitView,
    WorkerView,
    WorkflowView,
)

_encode = msgspec.json.Encoder().encode


def run(run: Run[Any], *, result: Raw | UnsetType = UNSET) -> RunView:
    """A run as it is, why it failed or is blocked, and what it returned if that is to be shown."""
    return RunView(
        id=run.id,
        workflow=run.workflow,
        key=run.key,
        holds_key=run.holds_key,
        status=run.status,  # pyright: ignore[reportArgumentType] - one of those that the type lists
        queue=run.queue,
        priority=run.priority,
        version=run.version,
        fence=run.fence,
        attributes=scalars(run.attributes),
        markers=[MarkerView(marker.name, marker.at) for marker in run.markers],
        waiting_on=[_wait(each) for each in run.waiting_on],
        next_actions=list(run.next_actions),
        created_at=run.created_at,
        finished_at=run.finished_at,
        expires_at=run.expires_at,
        result=result,
        error=_error(run.error),
        times_out_at=run.times_out_at or UNSET,
        lane=run.lane or UNSET,
    )


def page(page: Page[Any]) -> RunPageView:
    return RunPageView([run(each) for each in page.runs], page.next)


def story(story: Story) -> StoryView:
    return StoryView(
        run_id=story.run_id,
        headline=story.headline,
        waiting_on=[_wait(each) for each in story.waiting_on],
        next_actions=list(story.next_actions),
        lines=[
            LineView(line.position, line.at, line.text, line.counts, line.traceback or UNSET) for line in story.lines
        ],
    )


def journal(recorded: Journal) -> JournalView:
    return JournalView(recorded.first, [Raw(entry(each)) for each in recorded])


def entry(entry: Entry) -> bytes:
    """An entry of a journal, as JSON."""
    return _encode(entry)


def workflow(described: Description) -> WorkflowView:
    return WorkflowView(
        name=described.name,
        doc=described.doc,
        key=described.key,
        version=described.version,
        queue=described.queue,
        retention_ms=milliseconds(described.retention),
        markers={name: list(after) for name, after in described.markers.items()},
        outcomes=None if described.outcomes is None else list(described.outcomes),
        input_schema=described.input_schema,
        result_schema=described.result_schema,
        lane=described.lane or UNSET,
        rules=list(described.rules) or UNSET,
    )


def worker(member: Member) -> WorkerView:
    return WorkerView(
        id=member.owner,
        host=member.serves.host,
        pid=member.serves.pid,
        concurrency=member.serves.concurrency,
        workflows=list(member.serves.workflows),
        holds=member.holds,
        joined_at=member.joined_at,
        lease_until=member.lease_until,
        instance=member.instance,
    )


def backlog(backlog: Backlog) -> BacklogView:
    return BacklogView(
        statuses={status.value: count for status, count in backlog.statuses.items()},
        depths=[
            DepthView(
                workflow=depth.workflow,
                queue=depth.queue,
                ready=depth.ready,
                oldest_at=depth.oldest_at,
            )
            for depth in backlog.depths
        ],
    )


def lane(lane: Lane) -> LaneView:
    return LaneView(
        name=lane.name,
        width=lane.width,
        active=lane.active,
        parked=lane.parked,
        paused=lane.paused,
        head=None if lane.head is None else run(lane.head),
        active_runs=list(lane.active_runs),
        parked_runs=list(lane.parked_runs),
    )


def api_key(key: ApiKey) -> ApiKeyView:
    """A key, without its secret."""
    return ApiKeyView(
        id=key.id,
        name=key.name,
        namespace=key.namespace,
        scope=key.scope,
        tail=key.tail,
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
    )


def receipt(receipt: Receipt) -> ReceiptView:
    return ReceiptView(
        run_id=receipt.run_id,
        outcome=receipt.outcome,
        effects=[
            LeftEffectView(key=str(left), name=left.name, step=left.step, state=left.state, problem=left.problem)
            for left in receipt.effects
        ],
        children=[
            LeftChildView(run_id=each.run_id, workflow=each.workflow, outcome=each.outcome) for each in receipt.children
        ],
        reason=receipt.reason,
        stopped=receipt.stopped,
    )


def scalars(attributes: Mapping[str, Scalar]) -> dict[str, Attribute]:
    """Attributes that are set on a run."""
    return {name: At(value) if isinstance(value, datetime) else value for name, value in attributes.items()}


def query(search: Search) -> dict[str, Any]:
    """A search, as the gateway's parameters."""
    wanted: dict[str, Any] = {
        "workflow": search.workflow,
        "status": None if search.statuses is None else sorted(search.statuses),
        "attributes": _conditions(search.conditions),
        "key_prefix": search.key_prefix,
        **_span("created", search.created),
        **_span("finished", search.finished),
        "newest_first": "true" if search.newest_first else "false",
        # Only where it is wanted: a gateway of an earlier version does not know it.
        "roots_only": "true" if search.roots_only else None,
        "limit": search.limit,
        "after": None if search.after is None else searches.cursor(*search.after),
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _error(failure: Failure | None) -> ErrorView | UnsetType:
    return UNSET if failure is None else ErrorView(type=failure.type, message=failure.message, line=failure.line)


def _wait(wait: Wait) -> WaitView:
    return WaitView(
        kind=wait.kind,
        name=wait.name,
        until=wait.until,
        step=wait.step,
        text=str(wait),
        instance=wait.instance or UNSET,
        effect=UNSET if wait.effect is None else _running(wait.effect),
        error=wait.error or UNSET,
        version=wait.version or UNSET,
        detail=wait.detail or UNSET,
        lane=UNSET if wait.place is None else _place(wait.place),
        ahead=wait.ahead or UNSET,
    )


def _place(place: LanePlace) -> LaneWaitView:
    return LaneWaitView(ahead=place.ahead, first=place.first, since=place.since, paused=place.paused)


def _running(effect: RunningEffect) -> RunningEffectView:
    return RunningEffectView(
        name=effect.name,
        attempt=effect.attempt,
        since=effect.since,
        timeout_ms=effect.timeout_ms,
        remote=effect.remote,
        lost=effect.lost,
        heartbeat=effect.heartbeat_json,
        heartbeat_at=effect.heartbeat_at,
    )


def _conditions(conditions: tuple[Condition, ...]) -> str | None:
    if not conditions:
        return None
    return _encode(conditions_of(conditions)).decode()


def conditions_of(conditions: tuple[Condition, ...]) -> dict[str, Any]:
    """Conditions on attributes, as a gateway takes them."""
    return {each.name: _condition(each) for each in conditions}


def _condition(condition: Condition) -> Attribute | Filter:
    low, high = _bound(condition.kind, condition.low), _bound(condition.kind, condition.high)
    if condition.is_equality:
        return low
    return Filter(
        ge=None if condition.low_open else low,
        gt=low if condition.low_open else None,
        le=None if condition.high_open else high,
        lt=high if condition.high_open else None,
    )


def _bound(kind: str, value: Any) -> Any:
    if value is None or kind in {"text", "number"}:
        return value
    return bool(value) if kind == "flag" else At(attributes.instant(value))


def _span(name: str, span: Span) -> dict[str, str | None]:
    low, high = utc_or_none(span.since_ms), utc_or_none(span.until_ms)
    return {
        f"{name}_after": None if low is None else low.isoformat(timespec="milliseconds"),
        f"{name}_before": None if high is None else high.isoformat(timespec="milliseconds"),
    }
