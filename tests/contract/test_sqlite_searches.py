"""A search costs what its page costs, not what the file holds: walks along an index, never along a table (K16).

Work is counted in the instructions of SQLite's own machine, never in time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import apsw
import pytest
from msgspec.structs import replace

from holdfast.kernel.runs import Run, Status
from holdfast.kernel.searches import Range, Search, Span, conditions_of
from holdfast.stores.sqlite import files, searches
from holdfast.stores.sqlite.pace import SqlitePace
from holdfast.stores.sqlite.rows import run_of
from tests.builders import NOW_MS
from tests.contract.helpers import database

PAGE = 50
SMALL, LARGE = 10_000, 100_000
# A look at a run is some ten instructions; a search may look at `few_runs` of them for each condition, and sort them.
STEPS_MAX = 50 * SqlitePace().few_runs

FILL = """
WITH RECURSIVE n(i) AS (VALUES ({first}) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {end})
INSERT INTO runs (id, namespace, workflow, key, queue, priority, digest, request_id, retention_ms, created_ms, status,
                  epoch, nonce, length, holds_key, finished_ms, change_id)
SELECT printf('run-%06d', i), 'default', iif(i % 5000 = 7, 'shop.rare', 'shop.checkout'), printf('order:%d', i),
       'default', 0, 'd', printf('request-%d', i), 1, {now} + i,
       CASE WHEN i % 5000 = 8 THEN 'blocked' WHEN i % 2 THEN 'failed' ELSE 'completed' END,
       1, '', 1, 1, iif(i % 5000 = 8, NULL, {now} + i + 5), 'c'
FROM n;
INSERT INTO journal SELECT id, 0, CAST('[{{"what":"started","at_ms":1,"input":{{"json":1}}}}]' AS BLOB)
FROM runs WHERE created_ms >= {now} + {first};
INSERT INTO attributes SELECT id, 'region', 'default', 'text', iif(created_ms % 2, 'north', 'south'), created_ms
FROM runs WHERE created_ms >= {now} + {first};
INSERT INTO attributes SELECT id, 'customer', 'default', 'text', printf('c-%d', (created_ms - {now}) / 7), created_ms
FROM runs WHERE created_ms >= {now} + {first};
INSERT INTO attributes SELECT id, 'number', 'default', 'number', created_ms - {now}, created_ms
FROM runs WHERE created_ms >= {now} + {first};
"""


def _search(**fields: Any) -> Search:
    conditions = conditions_of(fields.pop("attributes", {}))
    return Search(namespace="default", limit=PAGE, conditions=conditions, **fields)


def _statuses(*names: str) -> frozenset[Status]:
    return frozenset(map(Status, names))


SEARCHES = {
    "everything": _search(),
    "equality, few": _search(attributes={"customer": "c-900"}),
    "equality, many": _search(attributes={"region": "north"}),
    "equality, none": _search(attributes={"customer": "nobody"}),
    "two equalities, one of few": _search(attributes={"region": "north", "customer": "c-900"}),
    "status, few": _search(statuses=_statuses("blocked")),
    "status, many": _search(statuses=_statuses("completed")),
    "status, none": _search(statuses=_statuses("cancelled")),
    "several statuses": _search(statuses=_statuses("completed", "failed", "blocked")),
    "several statuses, few": _search(statuses=_statuses("pending", "running", "waiting", "blocked")),
    "workflow, few": _search(workflow="shop.rare"),
    "workflow, many": _search(workflow="shop.checkout"),
    "workflow and status, both many": _search(workflow="shop.checkout", statuses=_statuses("failed")),
    "key prefix, few": _search(key_prefix="order:777"),
    "key prefix, many": _search(key_prefix="order:"),
    "key prefix, none": _search(key_prefix="shipment:"),
    "created, few": _search(created=Span(NOW_MS + 500, NOW_MS + 600)),
    "created, many": _search(created=Span(NOW_MS + 10, None)),
    "created long ago, many": _search(created=Span(NOW_MS, NOW_MS + 5_000)),
    "created long ago, many of a status": _search(created=Span(NOW_MS, NOW_MS + 5_000), statuses=_statuses("failed")),
    "created long ago, many of a workflow": _search(created=Span(NOW_MS, NOW_MS + 5_000), workflow="shop.checkout"),
    "created long ago, many with an attribute": _search(
        created=Span(NOW_MS, NOW_MS + 8_000), attributes={"region": "south"}
    ),
    "ended, few": _search(finished=Span(NOW_MS + 500, NOW_MS + 600)),
    "ended, many": _search(finished=Span(NOW_MS, None)),
    "ended long ago, many": _search(finished=Span(None, NOW_MS + 5_000)),
    "range, few": _search(attributes={"number": Range(ge=500, lt=600)}),
    "range, many": _search(attributes={"number": Range(ge=100)}),
    "range, none": _search(attributes={"number": Range(lt=0)}),
    "range of few and status of many": _search(attributes={"number": Range(gt=5)}, statuses=_statuses("blocked")),
    "equality of few and range of many": _search(attributes={"customer": "c-900", "number": Range(ge=0)}),
}


class Filled:
    """A file with many runs."""

    def __init__(self, path: Path) -> None:
        files.prepare(path).close()
        self.db = database(path)
        for setting in ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE", "cache_size = -400000"):
            self.db.execute(f"PRAGMA {setting}")
        self._count = 0

    def fill(self, count: int) -> None:
        self.db.execute("BEGIN")
        self.db.execute(FILL.format(first=self._count, end=count, now=NOW_MS))
        self.db.execute("COMMIT")
        self._count = count

    def costs(self) -> dict[str, int]:
        """What each search costs, in both directions, for its first and its second page."""
        return {
            f"{name}, {'newest' if newest_first else 'oldest'} first, {page}": self.cost(search)
            for name, each in SEARCHES.items()
            for newest_first in (True, False)
            for page, search in self._pages(replace(each, newest_first=newest_first))
        }

    def _pages(self, search: Search) -> Iterator[tuple[str, Search]]:
        yield "first page", search
        found = self.found(search)
        if len(found) == PAGE:
            yield "second page", replace(search, after=(found[-1].created_at_ms, found[-1].id))

    def found(self, search: Search) -> list[Run]:
        return [run_of(row) for row in self.db.execute(*searches.statement(self.db, search)).fetchall()]

    def cost(self, search: Search) -> int:
        """The instructions for the whole search: for choosing the way, and for walking it."""
        with self.counted() as steps:
            self.found(search)
        return sum(steps)

    @contextmanager
    def counted(self) -> Generator[list[int]]:
        steps: list[int] = []

        def note(event: dict[str, Any]) -> None:
            steps.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])

        connection = cast("Any", self.db)
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)
        yield steps
        connection.trace_v2(0, None)
        assert steps

    def plan(self, sql: str, bindings: dict[str, Any]) -> list[str]:
        return [str(row[-1]) for row in self.db.execute(f"EXPLAIN QUERY PLAN {sql}", bindings).fetchall()]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    filled = Filled(tmp_path_factory.mktemp("searches") / "filled.db")
    filled.fill(SMALL)
    yield filled
    filled.db.close()


def test_ten_times_the_runs_do_not_make_a_search_dearer(tmp_path: Path) -> None:
    """What was few may have become more, up to the bound; nothing may grow with the file beyond it."""
    filled = Filled(tmp_path / "grown.db")
    filled.fill(SMALL)
    small = filled.costs()
    filled.fill(LARGE)
    large = filled.costs()
    assert {name: (small.get(name), steps) for name, steps in large.items() if steps > STEPS_MAX} == {}
    with filled.counted() as steps:  # and a walk along the table would have shown
        filled.db.execute("SELECT count(*) FROM runs WHERE queue = 'another'").fetchall()
    assert sum(steps) > 2 * STEPS_MAX
    filled.db.close()


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_goes_along_an_index(filled: Filled, name: str) -> None:
    plan = filled.plan(*searches.statement(filled.db, SEARCHES[name]))
    tables = ("runs", "attributes", "a", "journal")
    walked = [step for step in plan if step.startswith("SCAN") and step.split()[1] in tables]
    assert walked == [], plan
    assert [step for step in plan if step.startswith("SEARCH")], plan


IN_ORDER = [name for name in SEARCHES if "few" not in name and "none" not in name and name != "several statuses"]


@pytest.mark.parametrize("name", IN_ORDER)
def test_what_may_be_many_is_walked_in_order_and_not_sorted(filled: Filled, name: str) -> None:
    sql, bindings = searches.statement(filled.db, SEARCHES[name])
    walk = sql[sql.index("SELECT * FROM (SELECT ") + 15 : sql.index(" LIMIT :limit)")] + " LIMIT :limit"
    plan = filled.plan(walk, bindings)
    assert [step for step in plan if "TEMP B-TREE" in step] == [], plan
