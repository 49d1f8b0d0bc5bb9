"""Finding runs: which index to walk.

A search names several conditions; each of them has an index. The walk goes along one, and looks the others up run by
run, so the one with the fewest runs should lead. How many an index holds is counted up to a bound, which costs the
same however large the table is.

- Indexes that end in (created, id) give a page without sorting: status, workflow, attribute equality, creation. Several
  statuses are several such walks, a page of each, merged.
- Ranges of attributes, ends and key prefixes do not; they lead only if they hold few runs, which are then sorted.
- A window of creation or of end bounds the walk. What lies far from its beginning and is not so bounded (a range that
  holds many runs, all of them old) is walked to.
- What is walked and sorted are places; only the runs of the page are read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.kernel.searches import Condition, Search, Span
from holdfast.stores.sqlite.files import Database
from holdfast.stores.sqlite.rows import COLUMNS

FEW = 2_000
_LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xE000)  # code points that text never holds
_BY_ATTRIBUTE = "attributes a INDEXED BY attributes_by_value CROSS JOIN runs ON runs.id = a.run_id"

Term = tuple[str, tuple[Any, ...]]  # a condition in SQL, and what to bind


class Walk(NamedTuple):
    """A stretch of an index."""

    table: str  # with the index to be used
    where: str
    bindings: tuple[Any, ...]


class Lead(NamedTuple):
    """A way to find candidates: walks along one index. `covers` names the condition that they fulfil by themselves."""

    covers: str
    walks: tuple[Walk, ...]
    ordered: bool = True


def statement(db: Database, search: Search) -> Term:
    """The query for a page, and what to bind."""
    lead = _fewest(db, _leads(search))
    filters = [term for covers, term in _filters(search) if covers != lead.covers]
    way, than = ("DESC", "<") if search.newest_first else ("ASC", ">")
    parts: list[str] = []
    bindings: list[Any] = []
    for walk in lead.walks:
        place = ("a.created_ms", "a.run_id") if walk.table == _BY_ATTRIBUTE else ("runs.created_ms", "runs.id")
        terms = [(walk.where, walk.bindings), *filters]
        if lead.ordered and lead.covers != "creation" and (window := _window(search)).is_set:
            terms.append(_span(place[0], window))
        if search.after is not None:
            terms.append((f"({place[0]}, {place[1]}) {than} (?, ?)", search.after))
        # A unary plus keeps SQLite from choosing another index for the sake of the order.
        order = place if lead.ordered else (f"+{place[0]}", f"+{place[1]}")
        table = walk.table if filters else walk.table.partition(" CROSS JOIN")[0]  # places need no look at the run
        parts.append(
            f"SELECT * FROM (SELECT {place[0]} AS created, {place[1]} AS run FROM {table} "  # noqa: S608 - our own names; values are bound
            f"WHERE {' AND '.join(where for where, _ in terms)} ORDER BY {order[0]} {way}, {order[1]} {way} LIMIT ?)"
        )
        bindings += [value for _, values in terms for value in values] + [search.limit]
    page = f"SELECT run FROM ({' UNION ALL '.join(parts)}) ORDER BY created {way}, run {way} LIMIT ?"  # noqa: S608 - as above
    order_by = f"runs.created_ms {way}, runs.id {way}"
    sql = f"SELECT {COLUMNS} FROM ({page}) CROSS JOIN runs ON runs.id = run ORDER BY {order_by}"  # noqa: S608 - as above
    return sql, (*bindings, search.limit)


def _leads(search: Search) -> list[Lead]:
    ns = search.namespace
    leads = [_by_attribute(condition, ns) for condition in search.conditions]
    if search.statuses is not None:
        walks = tuple(_walk("runs_by_status", ("status = ?", (status,)), ns) for status in sorted(search.statuses))
        leads.append(Lead("status", walks))
    if search.workflow is not None:
        leads.append(Lead("workflow", (_walk("runs_by_workflow", ("workflow = ?", (search.workflow,)), ns),)))
    if search.key_prefix is not None:
        leads.append(Lead("key", (_walk("runs_by_any_key", _prefix("key", search.key_prefix), ns),), ordered=False))
    if search.finished.is_set:
        leads.append(Lead("end", (_walk("runs_by_end", _span("finished_ms", search.finished), ns),), ordered=False))
    return [*leads, Lead("creation", (_walk("runs_by_creation", _span("created_ms", _window(search)), ns),))]


def _window(search: Search) -> Span:
    """When the runs were created: no run ends before that, so the end bounds it too."""
    bounds = [bound for bound in (search.created.high_ms, search.finished.high_ms) if bound is not None]
    return Span(search.created.low_ms, min(bounds, default=None))


def _walk(index: str, term: Term, namespace: str) -> Walk:
    where, bindings = term
    return Walk(f"runs INDEXED BY {index}", f"namespace = ? AND {where}", (namespace, *bindings))


def _by_attribute(condition: Condition, namespace: str) -> Lead:
    where, bounds = _value("a.value", condition)
    walk = Walk(
        _BY_ATTRIBUTE,
        f"a.namespace = ? AND a.name = ? AND a.kind = ? AND {where}",
        (namespace, condition.name, condition.kind, *bounds),
    )
    return Lead(f"attribute {condition.name}", (walk,), condition.is_equality)


def _fewest(db: Database, leads: list[Lead]) -> Lead:
    """The lead with the fewest runs. If all hold many, any that is in order fills a page soon."""
    best, fewest = next(lead for lead in leads if lead.ordered), FEW
    for lead in leads if len(leads) > 1 else ():
        held = sum(_count(db, walk, fewest) for walk in lead.walks)
        if held < fewest:
            best, fewest = lead, held
    return best


def _count(db: Database, walk: Walk, bound: int) -> int:
    table = walk.table.partition(" CROSS JOIN")[0]
    count = f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {walk.where} LIMIT {bound})"  # noqa: S608 - as above
    return int(db.execute(count, walk.bindings).fetchall()[0][0])


def _filters(search: Search) -> list[tuple[str, Term]]:
    """Every condition, as it is looked up for one run."""
    filters: list[tuple[str, Term]] = []
    if search.workflow is not None:
        filters.append(("workflow", ("+workflow = ?", (search.workflow,))))
    if search.statuses is not None:
        marks = ", ".join("?" * len(search.statuses))
        filters.append(("status", (f"+status IN ({marks})", tuple(sorted(search.statuses)))))
    if search.key_prefix is not None:
        filters.append(("key", _prefix("+key", search.key_prefix)))
    if search.created.is_set:
        filters.append(("creation", _span("+runs.created_ms", search.created)))
    if search.finished.is_set:
        filters.append(("end", _span("+finished_ms", search.finished)))
    for condition in search.conditions:
        where, bounds = _value("value", condition)
        held = f"EXISTS (SELECT 1 FROM attributes WHERE run_id = runs.id AND name = ? AND kind = ? AND {where})"  # noqa: S608 - as above
        filters.append((f"attribute {condition.name}", (held, (condition.name, condition.kind, *bounds))))
    return filters


def _value(column: str, condition: Condition) -> Term:
    if condition.is_equality:
        return f"{column} = ?", (condition.low,)
    bounds = [
        (f"{column} {'>' if condition.low_open else '>='} ?", condition.low),
        (f"{column} {'<' if condition.high_open else '<='} ?", condition.high),
    ]
    given = [(where, bound) for where, bound in bounds if bound is not None]
    return " AND ".join(where for where, _ in given), tuple(bound for _, bound in given)


def _span(column: str, span: Span) -> Term:
    bounds = [(f"{column} >= ?", span.low_ms), (f"{column} < ?", span.high_ms)]
    given = [(where, bound) for where, bound in bounds if bound is not None]
    if not given:
        return f"{column} IS NOT NULL", ()
    return " AND ".join(where for where, _ in given), tuple(bound for _, bound in given)


def _prefix(column: str, prefix: str) -> Term:
    """SQLite compares text by code points: what begins with `prefix` lies before the first text that is too great."""
    following = ord(prefix[-1]) + 1
    if following > _LAST:
        return f"{column} >= ? AND substr({column}, 1, {len(prefix)}) = ?", (prefix, prefix)
    if following == _SURROGATES[0]:
        following = _SURROGATES[1]
    return f"{column} >= ? AND {column} < ?", (prefix, prefix[:-1] + chr(following))
