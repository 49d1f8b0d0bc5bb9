"""Runs and what else is seen, as the gateway shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from holdfast import wire
from holdfast.client import Page, Run
from holdfast.engine.api.queries import RunEvent
from holdfast.engine.api.registry import Description
from holdfast.kernel.apikeys import ApiKey
from holdfast.kernel.explanations import Story
from holdfast.kernel.journal import Entry
from holdfast.kernel.units import utc_of
from holdfast.kernel.waits import Wait
from holdfast.ports.store import Backlog, Member

_encode = msgspec.json.Encoder().encode


def run(run: Run[Any]) -> wire.Run:
    """A run as it is."""
    return wire.Run(
        id=run.id,
        workflow=run.workflow,
        key=run.key,
        holds_key=run.holds_key,
        status=run.status,  # pyright: ignore[reportArgumentType] - one of those that the type lists
        queue=run.queue,
        priority=run.priority,
        version=run.version,
        fence=run.fence,
        attributes=wire.attributes_out(run.attributes),
        markers=[wire.Marker(marker.name, marker.at) for marker in run.markers],
        waiting_on=[_wait(each) for each in run.waiting_on],
        next_actions=list(run.next_actions),
        created_at=run.created_at,
        finished_at=run.finished_at,
        expires_at=run.expires_at,
    )


def page(page: Page) -> wire.RunPage:
    return wire.RunPage([run(each) for each in page.runs], page.next)


def story(story: Story) -> wire.Story:
    return wire.Story(
        run_id=story.run_id,
        headline=story.headline,
        waiting_on=[_wait(each) for each in story.waiting_on],
        next_actions=list(story.next_actions),
        lines=[wire.Line(line.position, line.at, line.text, line.counts) for line in story.lines],
    )


def journal(recorded: Sequence[RunEvent]) -> wire.Journal:
    return wire.Journal(recorded[0].cursor, [Raw(entry(event.entry)) for event in recorded])


def entry(entry: Entry) -> bytes:
    """An entry of a journal, as JSON."""
    return _encode(entry)


def workflow(described: Description) -> wire.Workflow:
    return wire.Workflow(
        name=described.name,
        doc=described.doc,
        key=described.key,
        version=described.version,
        queue=described.queue,
        retention_ms=described.retention_ms,
        markers={name: list(after) for name, after in described.markers.items()},
        outcomes=None if described.outcomes is None else list(described.outcomes),
        input_schema=described.input_schema,
        result_schema=described.result_schema,
    )


def worker(member: Member) -> wire.Worker:
    return wire.Worker(
        id=member.owner,
        host=member.serves.host,
        pid=member.serves.pid,
        concurrency=member.serves.concurrency,
        workflows=list(member.serves.workflows),
        holds=member.holds,
        joined_at=utc_of(member.joined_ms),
        lease_until=utc_of(member.until_ms),
    )


def backlog(backlog: Backlog) -> wire.Backlog:
    return wire.Backlog(
        statuses={status.value: count for status, count in backlog.statuses.items()},
        depths=[
            wire.Depth(
                workflow=depth.workflow,
                queue=depth.queue,
                ready=depth.ready,
                oldest_at=None if depth.oldest_ms is None else utc_of(depth.oldest_ms),
            )
            for depth in backlog.depths
        ],
    )


def api_key(key: ApiKey) -> wire.ApiKey:
    """A key, without its secret."""
    return wire.ApiKey(
        id=key.id,
        name=key.name,
        namespace=key.namespace,
        scope=key.scope,
        tail=key.tail,
        created_at=utc_of(key.created_ms),
        expires_at=None if key.expires_ms is None else utc_of(key.expires_ms),
        revoked_at=None if key.revoked_ms is None else utc_of(key.revoked_ms),
    )


def _wait(wait: Wait) -> wire.Wait:
    return wire.Wait(kind=wait.kind, name=wait.name, until=wait.until, step=wait.step, text=str(wait))
