"""Every query finds its rows by index: the millionth finished run makes nothing slower."""

from __future__ import annotations

import re
from typing import cast

import apsw
import pytest

from holdfast.ports.store import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.files import Database
from holdfast.stores.sqlite.queries import SQL
from tests.builders import performed
from tests.contract.conftest import SqliteBackend
from tests.contract.helpers import (
    a_document,
    admission,
    admitted,
    claim,
    committed,
    completion,
    database,
    history,
    progress,
    writes,
)

# Read whole on purpose: one row, one row per process, one per workflow that is fair, the list that was passed in, or
# what a subquery has bounded.
SMALL = {"clock", "leases", "lines", "json_each", "(subquery"}
# What they answer may be long, or only its first row is wanted: the index has the order.
IN_ORDER = {
    *("ready", "over", "next_priority", "journal", "messages", "hook", "first_wake", "next_owner"),
    *("next_workflow", "first_waking", "documents", "due_documents", "over_documents"),
}
# Asked once, when a machine has restarted.
RARE = {"newest"}


def _bindings(sql: str) -> dict[str, str]:
    return dict.fromkeys(re.findall(r"(?<!:):(\w+)", sql), "[]")


def _plan(db: Database, sql: str) -> list[str]:
    return [row[-1] for row in db.execute("EXPLAIN QUERY PLAN " + sql, _bindings(sql)).fetchall()]


@pytest.mark.parametrize("name", sorted(set(SQL) - RARE))
async def test_no_query_walks_a_table(sqlite: SqliteBackend, name: str) -> None:
    await sqlite.another()
    db = database(sqlite.path)
    plan = _plan(db, SQL[name])
    walked = [step for step in plan if step.startswith("SCAN") and not any(f"SCAN {t}" in step for t in SMALL)]
    sorted_in_memory = [step for step in plan if "TEMP B-TREE" in step and name in IN_ORDER]
    assert walked == [], plan
    assert sorted_in_memory == [], plan
    db.close()


def test_every_value_is_bound_by_a_name() -> None:
    assert [name for name, sql in SQL.items() if "?" in sql] == []


async def test_the_check_sees_a_walk_when_there_is_one(sqlite: SqliteBackend) -> None:
    await sqlite.another()
    db = database(sqlite.path)
    assert [step for step in _plan(db, "SELECT id FROM runs WHERE queue = :queue") if step.startswith("SCAN")]
    db.close()


async def test_pruning_finds_everything_of_a_run_by_index(sqlite: SqliteBackend) -> None:
    await sqlite.another()
    db = database(sqlite.path)
    for table in ("journal", "blobs", "inbox", "watchers", "beats", "attributes", "hooks"):
        plan = _plan(db, f"DELETE FROM {table} WHERE run_id = :run_id")
        assert all(step.startswith("SEARCH") for step in plan), (table, plan)
    assert all(step.startswith("SEARCH") for step in _plan(db, "DELETE FROM runs WHERE id = :run_id"))
    db.close()


async def test_the_cost_of_a_step_does_not_grow_with_what_is_finished(sqlite: SqliteBackend) -> None:
    """Counted in the work that SQLite itself reports, not in time."""
    store = await sqlite.another()

    async def steps_of_one_life(run_id: str) -> int:
        before = await _work(store)
        await admitted(store, run_id, key=run_id)
        [run] = await claim(store, "w-1")
        run = await committed(store, progress(store, run, performed()))
        await history(store, run_id)
        await committed(store, completion(store, run))
        await store.next_wake_at_ms("default", ("shop.checkout",))
        await store.rescue(10)
        await store.prune(10)
        return await _work(store) - before

    early = [await steps_of_one_life(f"early-{n}") for n in range(5)]
    begun = [admission(store, f"run-{n}", key=f"order:{n}", owner="w-1") for n in range(2_000)]
    await store.commit(begun)
    await store.commit([completion(store, change.run) for change in begun if change.run is not None])
    late = [await steps_of_one_life(f"late-{n}") for n in range(5)]
    assert max(late) <= max(early) * 2, (early, late)


async def test_documents_read_together_cost_what_they_cost_alone_however_many_there_are(sqlite: SqliteBackend) -> None:
    store = await sqlite.another()
    await writes(store, *(a_document(store, f"d-{n}") for n in range(10)))
    places = [("default", "note", f"d-{n}") for n in range(10)]

    async def cost() -> int:
        before = await _work(store)
        assert len(await store.named(places)) == 10
        return await _work(store) - before

    few = await cost()
    await writes(store, *(a_document(store, f"other-{n}") for n in range(5_000)))
    assert await cost() <= few * 4, few  # the tree is deeper, that is all


async def _work(store: Store) -> int:
    """How many pages both connections have looked at since they were opened."""

    def pages(db: Database) -> int:
        connection = cast("apsw.Connection", cast("object", db))
        hit, _ = connection.status(apsw.SQLITE_DBSTATUS_CACHE_HIT)
        miss, _ = connection.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)
        return hit + miss

    assert isinstance(store, SqliteStore)
    return await store._writer.do(pages) + await store._reader.do(pages)
