"""How much there is to do, counted along indexes. A count ends at its bound: a million runs cost no more."""

from __future__ import annotations

from holdfast.kernel.runs import Status
from holdfast.kernel.times import Instant
from holdfast.ports.store import COUNT_MAX, Backlog, Depth
from holdfast.stores.sqlite.files import Database
from holdfast.stores.sqlite.queries import SQL

_PRIORITY_TOP = 1 << 62


def priorities(db: Database, namespace: str, workflow: str) -> list[int]:
    """The distinct priorities that have work, highest first: one index seek each, however much work there is."""
    found: list[int] = []
    while rows := db.execute(
        SQL["next_priority"],
        {"namespace": namespace, "workflow": workflow, "below": found[-1] if found else _PRIORITY_TOP},
    ).fetchall():
        found.append(rows[0][0])
    return found


def next_wake_at_ms(db: Database, namespace: str, workflows: tuple[str, ...]) -> Instant | None:
    """When the next run may be claimed; None if none is in sight."""
    wakes: list[Instant] = [
        db.execute(SQL["first_wake"], {"namespace": namespace, "workflow": workflow, "priority": priority}).fetchall()[
            0
        ][0]
        for workflow in workflows
        for priority in priorities(db, namespace, workflow)
    ]
    return min(wakes, default=None)


def due_workflows(db: Database, namespace: str, workflows: tuple[str, ...], *, now_ms: Instant) -> tuple[str, ...]:
    """Those that have a run which may be claimed by now."""
    return tuple(
        workflow
        for workflow in workflows
        if (wake_at_ms := next_wake_at_ms(db, namespace, (workflow,))) is not None and wake_at_ms <= now_ms
    )


def backlog(db: Database, namespace: str, *, now_ms: Instant) -> Backlog:
    place = {"namespace": namespace, "limit": COUNT_MAX}
    with db:  # one snapshot, so that the numbers belong together
        statuses = {
            status: int(db.execute(SQL["count_status"], {**place, "status": status}).fetchall()[0][0])
            for status in Status
        }
        depths = tuple(_depth(db, namespace, workflow, now_ms) for workflow in _workflows(db, namespace))
    return Backlog(statuses, depths)


def _workflows(db: Database, namespace: str) -> list[str]:
    """Those whose runs may be claimed, now or later: one index seek each."""
    found: list[str] = []
    workflow = ""
    place = {"namespace": namespace}
    while (workflow := db.execute(SQL["next_workflow"], {**place, "after": workflow}).fetchall()[0][0]) is not None:
        found.append(workflow)
    return found


def _depth(db: Database, namespace: str, workflow: str, now_ms: Instant) -> Depth:
    ready = 0
    first: list[tuple[Instant, str]] = []  # the first run of each priority: when it may be claimed, and its queue
    for priority in priorities(db, namespace, workflow):
        place = {"namespace": namespace, "workflow": workflow, "priority": priority}
        first += db.execute(SQL["first_waking"], place).fetchall()
        ready += db.execute(SQL["count_ready"], place | {"now_ms": now_ms, "limit": COUNT_MAX - ready}).fetchall()[0][0]
    oldest_at_ms, queue = min(first)
    return Depth(workflow, queue, ready, oldest_at_ms if oldest_at_ms <= now_ms else None)
