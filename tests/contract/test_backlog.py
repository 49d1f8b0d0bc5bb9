"""How much there is to do, by status and by workflow. Counting costs the same however much there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from holdfast.kernel.runs import Status
from holdfast.ports.store import COUNT_MAX, Depth, Store
from holdfast.stores.sqlite import backlogs, files
from tests.builders import NOW_MS, FakeClock
from tests.contract.helpers import (
    admission,
    admitted,
    blockage,
    claim,
    committed,
    completion,
    database,
    ended,
    failed,
    held,
    let_go,
    signalled,
    stop,
)

NONE = dict.fromkeys(Status, 0)


async def test_nothing_is_to_be_done_at_first(store: Store) -> None:
    backlog = await store.backlog("default")
    assert (backlog.statuses, backlog.depths) == (NONE, ())


async def test_runs_are_counted_by_status(store: Store) -> None:
    await admitted(store, "pending", key=None)
    for n in range(2):
        await held(store, f"running-{n}", key=None)
    for n in range(3):
        await committed(store, let_go(store, await held(store, f"waiting-{n}", key=None)))
    await committed(store, blockage(store, await held(store, "blocked", key=None)))
    for n in range(4):
        await ended(store, f"ended-{n}", key=None)
    await failed(store, "failed", key=None)
    await committed(store, await stop(store, await admitted(store, "cancelled", key=None)))
    await admitted(store, "elsewhere", key=None, namespace="tenant")
    assert (await store.backlog("default")).statuses == {
        Status.PENDING: 1,
        Status.RUNNING: 2,
        Status.WAITING: 3,
        Status.BLOCKED: 1,
        Status.COMPLETED: 4,
        Status.FAILED: 1,
        Status.CANCELLED: 1,
    }
    assert (await store.backlog("tenant")).statuses == {**NONE, Status.PENDING: 1}


async def test_what_could_be_claimed_is_counted_by_workflow_with_the_age_of_the_first(
    store: Store, clock: FakeClock
) -> None:
    start_at_ms = store.now_ms()
    for n in range(3):
        await admitted(store, f"low-{n}", key=None, priority=n % 2)
        clock.advance(10)
    await admitted(store, "high", key=None, priority=9)
    await admitted(store, "later", key=None, delay_ms=60_000)
    await admitted(store, "refund", key=None, workflow="shop.refund", queue="slow")
    await admitted(store, "tenant", key=None, namespace="tenant")
    await held(store, "running", key=None, workflow="shop.ship")
    await ended(store, "ended", key=None, workflow="shop.audit")
    assert (await store.backlog("default")).depths == (
        Depth("shop.checkout", "default", ready=4, oldest_at_ms=start_at_ms),
        Depth("shop.refund", "slow", ready=1, oldest_at_ms=start_at_ms + 30),
    )
    assert (await store.backlog("tenant")).depths == (Depth("shop.checkout", "default", 1, start_at_ms + 30),)


async def test_what_can_be_claimed_later_only_is_not_ready(store: Store, clock: FakeClock) -> None:
    await admitted(store, "later", key=None, delay_ms=1_000)
    await committed(store, let_go(store, await held(store, "timer", key=None), wake_at_ms=store.now_ms() + 2_000))
    await committed(store, let_go(store, await held(store, "hook", key=None)))
    assert (await store.backlog("default")).depths == (Depth("shop.checkout", "default", ready=0, oldest_at_ms=None),)
    clock.advance(1_000)
    due_at_ms = store.now_ms()
    assert (await store.backlog("default")).depths == (
        Depth("shop.checkout", "default", ready=1, oldest_at_ms=due_at_ms),
    )
    clock.advance(1_000)
    await signalled(store, "hook")
    assert (await store.backlog("default")).depths == (
        Depth("shop.checkout", "default", ready=3, oldest_at_ms=due_at_ms),
    )


async def test_what_was_claimed_is_no_longer_ready(store: Store) -> None:
    for n in range(3):
        await admitted(store, f"run-{n}", key=None)
    runs = await claim(store, limit=2)
    [depth] = (await store.backlog("default")).depths
    assert depth.ready == 1
    await claim(store)
    for run in runs:
        await committed(store, completion(store, run))
    assert (await store.backlog("default")).depths == ()


async def test_no_number_exceeds_the_bound(store: Store) -> None:
    count = COUNT_MAX + 5
    changes = [admission(store, f"run-{n}", key=None, priority=n % 3) for n in range(count)]
    await store.commit(changes)
    backlog = await store.backlog("default")
    assert backlog.statuses == {**NONE, Status.PENDING: COUNT_MAX}
    assert [depth.ready for depth in backlog.depths] == [COUNT_MAX]
    await claim(store, limit=10)
    assert [depth.ready for depth in (await store.backlog("default")).depths] == [COUNT_MAX - 5]


FILL = """
WITH RECURSIVE n(i) AS (VALUES ({first}) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {end})
INSERT INTO runs (id, namespace, workflow, key, queue, priority, digest, request_id, retention_ms, created_ms, status,
                  epoch, nonce, length, holds_key, wake_ms, finished_ms, change_id)
SELECT printf('run-%07d', i), 'default', iif(i % 7, 'shop.checkout', 'shop.refund'), NULL, 'default', i % 3, 'd',
       printf('request-%d', i), 1, {now} + i, CASE i % 4 WHEN 0 THEN 'pending' WHEN 1 THEN 'waiting'
       WHEN 2 THEN 'completed' ELSE 'failed' END, 1, '', 1, 0, iif(i % 4 < 2, {now}, NULL), iif(i % 4 < 2, NULL, {now}),
       'c'
FROM n
"""


@pytest.mark.parametrize("count", [50_000, 150_000])
def test_counting_is_bounded_however_many_runs_there_are(tmp_path: Path, count: int) -> None:
    """Work is counted in the instructions of SQLite's own machine, never in time."""
    files.prepare(tmp_path / "filled.db").close()
    db = database(tmp_path / "filled.db")
    for setting in ("journal_mode = OFF", "synchronous = OFF"):
        db.execute(f"PRAGMA {setting}")
    db.execute(FILL.format(first=0, end=count, now=NOW_MS))
    steps: list[int] = []

    def note(event: dict[str, Any]) -> None:
        steps.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])

    connection = cast("Any", db)
    connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)
    backlog = backlogs.backlog(db, "default", now_ms=NOW_MS)
    connection.trace_v2(0, None)
    assert {backlog.statuses[status] for status in (Status.PENDING, Status.COMPLETED, Status.FAILED)} == {COUNT_MAX}
    assert {depth.workflow: depth.oldest_at_ms for depth in backlog.depths} == {
        "shop.checkout": NOW_MS,
        "shop.refund": NOW_MS,
    }
    counted = sum(backlog.statuses.values()) + sum(depth.ready for depth in backlog.depths)
    assert len(steps) > len(Status)
    assert sum(steps) < 10 * counted + 10_000  # some instructions for each that is counted, and few besides
    assert counted <= 6 * COUNT_MAX
    db.close()
