"""What arrived as JSON becomes values again: what a gateway shows, and what a request to a gateway holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import cast

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.engine.api.lanes import FoundLane
from holdfast.engine.api.registry import Description
from holdfast.errors import UsageError
from holdfast.kernel import attributes, markers, waits
from holdfast.kernel.apikeys import ApiKey
from holdfast.kernel.attributes import Scalar
from holdfast.kernel.cancels import ChildLeft, Left, Receipt
from holdfast.kernel.explanations import Line, Story
from holdfast.kernel.journal import Failure
from holdfast.kernel.lanes import Lane, LaneState
from holdfast.kernel.running_effects import RunningEffect
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.searches import Range
from holdfast.kernel.times import NO_TIME, Instant
from holdfast.kernel.waits import LanePlace, Wait
from holdfast.ports.store import Backlog, Depth, Member, Serves
from holdfast.wire.types import (
    ApiKeyView,
    At,
    Attribute,
    BacklogView,
    Bound,
    ErrorView,
    Filter,
    LaneView,
    LaneWaitView,
    ReceiptView,
    RunningEffectView,
    RunView,
    StoryView,
    WaitView,
    WorkerView,
    WorkflowView,
)


def run(shown: RunView, namespace: str) -> Run:
    """The row of a run, as far as it is shown. `waits` has what the gateway said it waits for."""
    return Run(
        id=shown.id,
        namespace=namespace,
        workflow=shown.workflow,
        key=shown.key,
        queue=shown.queue,
        priority=shown.priority,
        digest="",
        request_id="",
        retention_ms=NO_TIME,
        created_at_ms=instant(shown.created_at),
        status=Status(shown.status),
        epoch=shown.fence,
        holds_key=shown.holds_key,
        finished_at_ms=instant_or_none(shown.finished_at),
        expires_at_ms=instant_or_none(shown.expires_at),
        version=shown.version or "",
        attributes=attributes.encode(scalars(shown.attributes)),
        markers=markers.encode(tuple((each.name, instant(each.at)) for each in shown.markers)),
        waits=waits.encode(wait_values(shown.waiting_on)),
        error=_failure(shown.error),
        lane="" if shown.lane is UNSET else shown.lane,
    )


def wait_values(shown: Iterable[WaitView]) -> tuple[Wait, ...]:
    return tuple(
        Wait(
            cast("waits.Kind", each.kind),
            each.name,
            instant_or_none(each.until),
            each.step,
            None if each.effect is UNSET else _running(each.effect),
            "" if each.error is UNSET else each.error,
            "" if each.version is UNSET else each.version,
            "" if each.detail is UNSET else each.detail,
            None if each.lane is UNSET else _place(each.lane),
            0 if each.ahead is UNSET else each.ahead,
        )
        for each in shown
    )


def _place(shown: LaneWaitView) -> LanePlace:
    return LanePlace(shown.ahead, shown.first, instant_or_none(shown.since), shown.paused)


def _running(shown: RunningEffectView) -> RunningEffect:
    return RunningEffect(
        shown.name,
        shown.attempt,
        instant(shown.since),
        shown.timeout_ms,
        remote=shown.remote,
        lost=shown.lost,
        heartbeat_json=shown.heartbeat,
        heartbeat_at_ms=instant_or_none(shown.heartbeat_at),
    )


def story(shown: StoryView) -> Story:
    return Story(
        run_id=shown.run_id,
        headline=shown.headline,
        waiting_on=wait_values(shown.waiting_on),
        next_actions=tuple(shown.next_actions),
        lines=tuple(
            Line(line.position, line.at, line.text, line.counts, "" if line.traceback is UNSET else line.traceback)
            for line in shown.lines
        ),
    )


def description(shown: WorkflowView) -> Description:
    return Description(
        name=shown.name,
        doc=shown.doc,
        key=shown.key,
        version=shown.version,
        queue=shown.queue,
        retention=timedelta(milliseconds=shown.retention_ms),
        markers={name: tuple(after) for name, after in shown.markers.items()},
        outcomes=None if shown.outcomes is None else tuple(shown.outcomes),
        input_schema=shown.input_schema,
        result_schema=shown.result_schema,
        lane=None if shown.lane is UNSET else shown.lane,
        rules=() if shown.rules is UNSET else tuple(shown.rules),
    )


def member(shown: WorkerView, namespace: str) -> Member:
    return Member(
        owner=shown.id,
        joined_at_ms=instant(shown.joined_at),
        until_ms=instant(shown.lease_until),
        serves=Serves(namespace, tuple(shown.workflows), shown.host, shown.pid, shown.concurrency),
        holds=shown.holds,
    )


def backlog(shown: BacklogView) -> Backlog:
    return Backlog(
        {Status(status): count for status, count in shown.statuses.items()},
        tuple(Depth(each.workflow, each.queue, each.ready, instant_or_none(each.oldest_at)) for each in shown.depths),
    )


def lane(shown: LaneView, namespace: str) -> FoundLane:
    state = LaneState(
        Lane(namespace, shown.name, shown.width, paused=shown.paused),
        shown.active,
        shown.parked,
        tuple(shown.active_runs),
        tuple(shown.parked_runs),
    )
    return FoundLane(state, None if shown.head is None else run(shown.head, namespace))


def api_key(shown: ApiKeyView) -> ApiKey:
    return ApiKey(
        id=shown.id,
        name=shown.name,
        namespace=shown.namespace,
        scope=shown.scope,
        tail=shown.tail,
        created_at_ms=instant(shown.created_at),
        expires_at_ms=instant_or_none(shown.expires_at),
        revoked_at_ms=instant_or_none(shown.revoked_at),
    )


def receipt(shown: ReceiptView) -> Receipt:
    return Receipt(
        run_id=shown.run_id,
        outcome=shown.outcome,
        effects=tuple(
            Left(left.key, name=left.name, step=left.step, state=left.state, problem=left.problem)
            for left in shown.effects
        ),
        children=tuple(ChildLeft(each.run_id, each.workflow, each.outcome) for each in shown.children),
        reason=shown.reason,
        stopped=shown.stopped,
    )


def scalars(shown: Mapping[str, Attribute]) -> dict[str, Scalar]:
    """Attributes, as they are set on a run."""
    return {name: value.at if isinstance(value, At) else value for name, value in shown.items()}


def conditions(wanted: Mapping[str, str | int | float | bool | Filter]) -> dict[str, Scalar | Range]:
    """Attributes to search by. Raises `UsageError` where one is to equal an instant and to lie in a range."""
    return {name: _condition(name, value) if isinstance(value, Filter) else value for name, value in wanted.items()}


def _condition(name: str, wanted: Filter) -> Scalar | Range:
    bounds = (wanted.ge, wanted.gt, wanted.le, wanted.lt)
    if wanted.at is not None and any(bound is not None for bound in bounds):
        raise UsageError(f"the filter of {name!r} has an instant and a range", hint="Send one of the two.")
    if wanted.at is not None:
        return wanted.at
    ge, gt, le, lt = map(_bound, bounds)
    return Range(ge=ge, gt=gt, le=le, lt=lt)


def _bound(bound: Bound | None) -> float | datetime | None:
    return bound.at if isinstance(bound, At) else bound


def _failure(shown: ErrorView | UnsetType) -> bytes | None:
    return None if shown is UNSET else msgspec.json.encode(Failure(shown.type, shown.message, line=shown.line))


def instant(at: datetime) -> Instant:
    """What a gateway has said as text, as the engine has it."""
    return Instant(attributes.micros(at) // 1000)


def instant_or_none(at: datetime | None) -> Instant | None:
    """The same, if there is one."""
    return None if at is None else instant(at)
