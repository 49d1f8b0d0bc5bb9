"""What a gateway shows, as the values that `Run` and the other verbs are made of."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, cast

import msgspec

from holdfast import wire
from holdfast.engine.api.registry import Description
from holdfast.kernel import attributes, markers, searches, waits
from holdfast.kernel.explanations import Line, Story
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.searches import Condition, Search, Span
from holdfast.kernel.units import utc_of
from holdfast.kernel.waits import Wait
from holdfast.ports.store import Backlog, Depth, Member, Serves


def run(shown: wire.Run, namespace: str) -> Run:
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
        retention_ms=0,
        created_ms=_ms(shown.created_at),
        status=Status(shown.status),
        epoch=shown.fence,
        holds_key=shown.holds_key,
        finished_ms=None if shown.finished_at is None else _ms(shown.finished_at),
        expires_ms=None if shown.expires_at is None else _ms(shown.expires_at),
        version=shown.version or "",
        attributes=attributes.encode(wire.attributes_in(shown.attributes)),
        markers=markers.encode(tuple((each.name, _ms(each.at)) for each in shown.markers)),
        waits=waits.encode(wait_values(shown.waiting_on)),
    )


def wait_values(shown: Iterable[wire.Wait]) -> tuple[Wait, ...]:
    return tuple(
        Wait(cast("waits.Kind", each.kind), each.name, None if each.until is None else _ms(each.until), each.step)
        for each in shown
    )


def story(shown: wire.Story) -> Story:
    return Story(
        run_id=shown.run_id,
        headline=shown.headline,
        waiting_on=wait_values(shown.waiting_on),
        next_actions=tuple(shown.next_actions),
        lines=tuple(Line(line.position, line.at, line.text, line.counts) for line in shown.lines),
    )


def description(shown: wire.Workflow) -> Description:
    return Description(
        name=shown.name,
        doc=shown.doc,
        key=shown.key,
        version=shown.version,
        queue=shown.queue,
        retention_ms=shown.retention_ms,
        markers={name: tuple(after) for name, after in shown.markers.items()},
        outcomes=None if shown.outcomes is None else tuple(shown.outcomes),
        input_schema=shown.input_schema,
        result_schema=shown.result_schema,
    )


def member(shown: wire.Worker, namespace: str) -> Member:
    return Member(
        owner=shown.id,
        joined_ms=_ms(shown.joined_at),
        until_ms=_ms(shown.lease_until),
        serves=Serves(namespace, tuple(shown.workflows), shown.host, shown.pid, shown.concurrency),
        holds=shown.holds,
    )


def backlog(shown: wire.Backlog) -> Backlog:
    return Backlog(
        {Status(status): count for status, count in shown.statuses.items()},
        tuple(
            Depth(each.workflow, each.queue, each.ready, None if each.oldest_at is None else _ms(each.oldest_at))
            for each in shown.depths
        ),
    )


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
        "limit": search.limit,
        "after": None if search.after is None else searches.cursor(*search.after),
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _conditions(conditions: tuple[Condition, ...]) -> str | None:
    if not conditions:
        return None
    return msgspec.json.encode({each.name: _condition(each) for each in conditions}).decode()


def _condition(condition: Condition) -> wire.Attribute | wire.Filter:
    low, high = _bound(condition.kind, condition.low), _bound(condition.kind, condition.high)
    if condition.is_equality:
        return low
    return wire.Filter(
        ge=None if condition.low_open else low,
        gt=low if condition.low_open else None,
        le=None if condition.high_open else high,
        lt=high if condition.high_open else None,
    )


def _bound(kind: str, value: Any) -> Any:
    if value is None or kind in {"text", "number"}:
        return value
    return bool(value) if kind == "flag" else wire.At(attributes.instant(value))


def _span(name: str, span: Span) -> dict[str, str | None]:
    return {f"{name}_after": _instant(span.low_ms), f"{name}_before": _instant(span.high_ms)}


def _instant(ms: int | None) -> str | None:
    return None if ms is None else utc_of(ms).isoformat(timespec="milliseconds")


def _ms(instant: datetime) -> int:
    return attributes.micros(instant) // 1000
