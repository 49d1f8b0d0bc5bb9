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

from collections.abc import Collection
from typing import Any, NamedTuple

from holdfast.kernel.attributes import PARENT
from holdfast.kernel.runs import Status
from holdfast.kernel.searches import Condition, Search, Span
from holdfast.stores.sqlite.files import Database
from holdfast.stores.sqlite.pace import PACE
from holdfast.stores.sqlite.rows import COLUMNS_OF_RUNS

_LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xE000)  # code points that text never holds
_BY_ATTRIBUTE = "attributes a INDEXED BY attributes_by_value CROSS JOIN runs ON runs.id = a.run_id"

Bindings = dict[str, Any]
Term = tuple[str, Bindings]  # a condition in SQL, and what to bind by name


class Walk(NamedTuple):
    """A stretch of an index."""

    table: str  # with the index to be used
    where: str
    bindings: Bindings


class Lead(NamedTuple):
    """A way to find candidates: walks along one index. `covers` names the condition that they fulfil by themselves."""

    covers: str
    walks: tuple[Walk, ...]
    ordered: bool = True


def statement(db: Database, search: Search, *, few: int = PACE.few_runs) -> Term:
    """The query for a page, and what to bind."""
    lead = _fewest(db, _leads(search), few)
    filters = [term for covers, term in _filters(search) if covers != lead.covers]
    way, than = ("DESC", "<") if search.newest_first else ("ASC", ">")
    parts: list[str] = []
    bindings: Bindings = {"limit": search.limit}
    for walk in lead.walks:
        place = ("a.created_ms", "a.run_id") if walk.table == _BY_ATTRIBUTE else ("runs.created_ms", "runs.id")
        terms = [(walk.where, walk.bindings), *filters]
        if lead.ordered and lead.covers != "creation" and (window := _window(search)).is_set:
            terms.append(_span(place[0], window, name="window"))
        if search.after is not None:
            after_at_ms, after_id = search.after
            terms.append(
                (
                    f"({place[0]}, {place[1]}) {than} (:after_ms, :after_id)",
                    {"after_ms": after_at_ms, "after_id": after_id},
                )
            )
        # A unary plus keeps SQLite from choosing another index for the sake of the order.
        order = place if lead.ordered else (f"+{place[0]}", f"+{place[1]}")
        table = walk.table if filters else walk.table.partition(" CROSS JOIN")[0]  # places need no look at the run
        wheres = " AND ".join(where for where, _ in terms)
        parts.append(
            f"SELECT * FROM (SELECT {place[0]} AS created, {place[1]} AS run FROM {table} "  # noqa: S608 - our own names; values are bound
            f"WHERE {wheres} ORDER BY {order[0]} {way}, {order[1]} {way} LIMIT :limit)"
        )
        for _, values in terms:
            bindings |= values
    page = f"SELECT run FROM ({' UNION ALL '.join(parts)}) ORDER BY created {way}, run {way} LIMIT :limit"  # noqa: S608 - as above
    order_by = f"runs.created_ms {way}, runs.id {way}"
    sql = f"SELECT {COLUMNS_OF_RUNS} FROM ({page}) CROSS JOIN runs ON runs.id = run ORDER BY {order_by}"  # noqa: S608 - as above
    return sql, bindings


def _leads(search: Search) -> list[Lead]:
    ns = search.namespace
    leads = [_by_attribute(number, condition, ns) for number, condition in enumerate(search.conditions)]
    if search.statuses is not None:
        each = _statuses(search.statuses).items()
        walks = tuple(_walk("runs_by_status", (f"status = :{name}", {name: status}), ns) for name, status in each)
        leads.append(Lead("status", walks))
    if search.workflow is not None:
        leads.append(
            Lead("workflow", (_walk("runs_by_workflow", ("workflow = :workflow", {"workflow": search.workflow}), ns),))
        )
    if search.key_prefix is not None:
        leads.append(Lead("key", (_walk("runs_by_any_key", _prefix("key", search.key_prefix), ns),), ordered=False))
    if search.finished.is_set:
        leads.append(
            Lead(
                "end",
                (_walk("runs_by_end", _span("finished_ms", search.finished, name="finished"), ns),),
                ordered=False,
            )
        )
    return [
        *leads,
        Lead("creation", (_walk("runs_by_creation", _span("created_ms", _window(search), name="window"), ns),)),
    ]


def _window(search: Search) -> Span:
    """When the runs were created: no run ends before that, so the end bounds it too."""
    bounds = [bound for bound in (search.created.until_ms, search.finished.until_ms) if bound is not None]
    return Span(search.created.since_ms, min(bounds, default=None))


def _walk(index: str, term: Term, namespace: str) -> Walk:
    where, bindings = term
    return Walk(f"runs INDEXED BY {index}", f"namespace = :namespace AND {where}", {"namespace": namespace, **bindings})


def _by_attribute(number: int, condition: Condition, namespace: str) -> Lead:
    where, bindings = _value("a.value", number, condition)
    walk = Walk(
        _BY_ATTRIBUTE,
        f"a.namespace = :namespace AND a.name = :name_{number} AND a.kind = :kind_{number} AND {where}",
        {"namespace": namespace, **bindings},
    )
    return Lead(f"attribute {condition.name}", (walk,), condition.is_equality)


def _fewest(db: Database, leads: list[Lead], few: int) -> Lead:
    """The lead with the fewest runs. If all hold many, any that is in order fills a page soon."""
    best, fewest = next(lead for lead in leads if lead.ordered), few
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
        filters.append(("workflow", ("+workflow = :workflow", {"workflow": search.workflow})))
    if search.statuses is not None:
        statuses = _statuses(search.statuses)
        marks = ", ".join(f":{name}" for name in statuses)
        filters.append(("status", (f"+status IN ({marks})", statuses)))
    if search.key_prefix is not None:
        filters.append(("key", _prefix("+key", search.key_prefix)))
    if search.created.is_set:
        filters.append(("creation", _span("+runs.created_ms", search.created, name="created")))
    if search.finished.is_set:
        filters.append(("end", _span("+finished_ms", search.finished, name="finished")))
    for number, condition in enumerate(search.conditions):
        where, bindings = _value("value", number, condition)
        named = f"name = :name_{number} AND kind = :kind_{number}"
        held = f"EXISTS (SELECT 1 FROM attributes WHERE run_id = runs.id AND {named} AND {where})"  # noqa: S608 - as above
        filters.append((f"attribute {condition.name}", (held, bindings)))
    if search.roots_only:
        child = "SELECT 1 FROM attributes WHERE run_id = runs.id AND name = :parent"
        filters.append(("roots", (f"NOT EXISTS ({child})", {"parent": PARENT})))
    return filters


def _statuses(statuses: Collection[Status]) -> Bindings:
    return {f"status_{number}": status for number, status in enumerate(sorted(statuses))}


def _value(column: str, number: int, condition: Condition) -> Term:
    """A condition on an attribute. Its number keeps its names apart from those of the other conditions."""
    bindings: Bindings = {f"name_{number}": condition.name, f"kind_{number}": condition.kind}
    if condition.is_equality:
        return f"{column} = :low_{number}", bindings | {f"low_{number}": condition.low}
    where, bounds = _between(
        (f"{column} {'>' if condition.low_open else '>='}", f"low_{number}", condition.low),
        (f"{column} {'<' if condition.high_open else '<='}", f"high_{number}", condition.high),
    )
    return where, bindings | bounds


def _span(column: str, span: Span, *, name: str) -> Term:
    where, bindings = _between(
        (f"{column} >=", f"{name}_low", span.since_ms), (f"{column} <", f"{name}_high", span.until_ms)
    )
    return where or f"{column} IS NOT NULL", bindings


def _between(*bounds: tuple[str, str, Any]) -> Term:
    """Those bounds that are given: each a comparison, its name, and what it is compared with."""
    given = [bound for bound in bounds if bound[2] is not None]
    where = " AND ".join(f"{compared} :{name}" for compared, name, _ in given)
    return where, {name: value for _, name, value in given}


def _prefix(column: str, prefix: str) -> Term:
    """SQLite compares text by code points: what begins with `prefix` lies before the first text that is too great."""
    following = ord(prefix[-1]) + 1
    if following > _LAST:
        return f"{column} >= :key_low AND substr({column}, 1, {len(prefix)}) = :key_low", {"key_low": prefix}
    if following == _SURROGATES[0]:
        following = _SURROGATES[1]
    bindings = {"key_low": prefix, "key_high": prefix[:-1] + chr(following)}
    return f"{column} >= :key_low AND {column} < :key_high", bindings
